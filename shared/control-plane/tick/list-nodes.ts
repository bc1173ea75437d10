/** Reads from Cloud TPU: the list of all nodes, and each node that a list omits. */

import type {Worker} from '../../domain/records/worker.ts';
import {isLeftOut, type Nodes, sortNodes} from '../../domain/worker/nodes.ts';
import type {Tpus} from '../../ports/ports.ts';
import {forEachConcurrently} from '../calls/concurrency.ts';
import type {Log} from '../calls/log.ts';
import type {Deps} from '../deps.ts';

export async function listNodes({tpus, now, config: {deployment}}: Deps): Promise<Nodes> {
  const at_ms = now();
  const {tpus: listed, unreachable} = await tpus.list();
  return sortNodes(listed, {deployment, unreachable, at_ms});
}

/** Adds each missing node that `get` finds, and the names of absent nodes. An error proves nothing about the node. */
export async function findMissing(
  {tpus, log}: {tpus: Tpus; log: Log},
  nodes: Nodes,
  missing: readonly Worker[],
): Promise<Nodes> {
  const listed = new Map(nodes.tpus);
  const absent = new Set<string>();
  await forEachConcurrently(missing, async worker => {
    const {name, zone} = worker;
    try {
      const tpu = await tpus.get(name, zone);
      if (tpu && !isLeftOut(tpu, worker)) listed.set(name, tpu);
      else absent.add(name);
    } catch (error) {
      log('WARNING', `Failed to read node ${name}: ${(error as Error).message}`, {worker: name});
    }
  });
  return {...nodes, tpus: listed, absent};
}
