/** A provider of TPUs on a local cloud for the tests of one `describe`. */
import {setTimeout as sleep} from 'node:timers/promises';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {openTpus} from '../../shared/google/tpus.ts';
import type {Tpus} from '../../shared/ports/ports.ts';
import {useLocalCloud} from './local-cloud.ts';
import type {TpuCloud} from './tpus-contract.ts';

type Use = TpuCloud & {cloud: () => LocalCloud};

/** Every test starts without faults and TPUs. */
export function useTpus(open: typeof openTpus = openTpus): Use {
  const cloud = useLocalCloud({queue_ms: 20});
  let tpus: Tpus;
  const listUntil: Use['listUntil'] = async isReached => {
    for (;;) {
      const {tpus: found} = await tpus.list();
      if (isReached(found)) return found;
      await sleep(20);
    }
  };
  beforeEach(() => {
    const {project, url, token} = cloud();
    tpus = open({project, endpoint: url, token});
  });
  afterEach(async () => {
    await cloud().fault('clear', 'all');
    for (const {name, zone} of (await tpus.list()).tpus) await tpus.delete(name, zone);
    await listUntil(found => found.length === 0);
  });
  const fault: Use['fault'] = async (kind, zone) => void (await cloud().fault(kind, zone));
  return {cloud, client: () => tpus, listUntil, fault};
}
