/** Cloud TPU of a local cloud for the tests of one `describe`. */
import {setTimeout as sleep} from 'node:timers/promises';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {openTpus} from '../../shared/google/tpus.ts';
import type {Tpu, TpuRequest, Tpus} from '../../shared/ports.ts';
import {useLocalCloud} from './local-cloud.ts';

export function aRequest(changes: Partial<TpuRequest> = {}): TpuRequest {
  return {
    name: 'tpu-us-central1-a-0',
    zone: 'us-central1-a',
    accelerator: 'v5litepod-1',
    runtime_version: 'v2-alpha-tpuv5-lite',
    spot: true,
    labels: {gleaner: 'yes', pool: 'tpu'},
    metadata: {'startup-script': '#!/bin/bash\nexec sleep 600\n', 'gleaner-worker': 'tpu-us-central1-a-0'},
    queue: null,
    ...changes,
  };
}

type Use = {
  cloud: () => LocalCloud;
  client: () => Tpus;
  /** Lists again and again until the list is as wanted. */
  listUntil: (isReached: (tpus: Tpu[]) => boolean) => Promise<Tpu[]>;
};

/** Every test starts without faults and TPUs. */
export function useTpus(): Use {
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
    tpus = openTpus({project, endpoint: url, token});
  });
  afterEach(async () => {
    await cloud().fault('clear', 'all');
    for (const {name, zone} of (await tpus.list()).tpus) await tpus.delete(name, zone);
    await listUntil(found => found.length === 0);
  });
  return {cloud, client: () => tpus, listUntil};
}
