/** The boot of a host with a built environment, in a network namespace with a bucket, a metadata server and worker-api. */
import {execFile} from 'node:child_process';
import {mkdtempSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {promisify} from 'node:util';
import {workerPython} from '../../client/python/python.ts';

const TESTS = fileURLToPath(new URL('../../test/worker/', import.meta.url));

export type Boot = {
  status: number;
  console: string;
  requests: Record<'metadata' | 'worker_api' | 'bucket', number>;
  fetched_bytes: number;
  cpu_s: number;
};

/** Boots a host up to the first request of its agent for work. `archive`: path of the environment. Needs root and Linux. */
export async function measureBoot(archive: string): Promise<Boot> {
  const python = await workerPython(line => console.error(line), join(TESTS, 'requirements.lock'));
  const folder = mkdtempSync(join(tmpdir(), 'gleaner-boot-'));
  try {
    const program = [
      python,
      join(TESTS, 'support/vm_process.py'),
      join(folder, 'home'),
      '--archive',
      archive,
    ];
    const {stdout} = await promisify(execFile)('unshare', ['--net', '--mount', ...program], {maxBuffer: 1e8});
    const boot: Boot = JSON.parse(stdout.trim().split('\n').at(-1) ?? '');
    if (boot.status !== 0) throw new Error(`The boot failed: ${boot.console}`);
    return boot;
  } finally {
    rmSync(folder, {recursive: true, force: true});
  }
}
