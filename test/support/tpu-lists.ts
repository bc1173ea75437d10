/** Nodes and queued resources as Cloud TPU lists them. */
import {iso} from '../../shared/domain/time.ts';
import type {Tpu} from '../../shared/ports.ts';
import type {FakeNode} from './fake-tpus.ts';
import type {QueuedResource} from './tpu-queue.ts';

export type Listed = {tpus: Tpu[]; unreachable: string[]};

export function nodeAsListed(
  {name, zone, state, before, health, labels, symptoms, created_at}: FakeNode,
  isStale: boolean,
): Tpu {
  return {
    ...{name, zone, state: isStale ? before : state, health, labels: {...labels}},
    ...{symptoms: [...symptoms], queued: null, created_at},
  };
}

export function queuedAsListed(
  {state, initiator, error, valid_until_at, request: {name, zone, labels}}: QueuedResource,
  now: number,
): Tpu {
  const queued = {state, initiator, error, valid_until_at, labels: {...labels}};
  return {
    ...{name, zone, state: null, health: 'HEALTH_UNSPECIFIED', labels: {...labels}},
    ...{symptoms: [], queued, created_at: iso(now)},
  };
}

/** Both lists as one. A zone that answered only one of them shows nothing. */
export function joined(nodes: Listed, queue: Listed): Listed {
  const unreachable = [...new Set([...nodes.unreachable, ...queue.unreachable])];
  const found = new Map(nodes.tpus.map(tpu => [tpu.name, tpu]));
  for (const {queued, ...bare} of queue.tpus)
    found.set(bare.name, {...(found.get(bare.name) ?? bare), queued});
  return {tpus: [...found.values()].filter(({zone}) => !unreachable.includes(zone)), unreachable};
}
