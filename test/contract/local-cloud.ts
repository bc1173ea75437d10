import {mkdtempSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {type LocalCloud, type LocalCloudOptions, startLocalCloud} from '../../emulator/cloud.ts';

/** A local cloud for the tests of one `describe`. */
export function useLocalCloud(options: Partial<LocalCloudOptions> = {}): () => LocalCloud {
  let dir = '';
  let cloud: LocalCloud | undefined;
  before(async () => {
    dir = mkdtempSync(join(tmpdir(), 'gleaner-contract-'));
    cloud = await startLocalCloud({dir, port: 0, create_ms: 20, ...options});
  });
  after(async () => {
    await cloud?.close();
    rmSync(dir, {recursive: true, force: true});
  });
  return () => {
    if (!cloud) throw new Error('Failed to use the local cloud: it has not started');
    return cloud;
  };
}
