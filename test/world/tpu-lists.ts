/** Nodes and queued resources as Cloud TPU lists them, and instances as Compute Engine does. */
import {iso} from '../../shared/domain/time.ts';
import type {Tpu} from '../../shared/ports/ports.ts';
import type {QueuedResource} from './tpu-queue.ts';
import type {FakeNode} from './tpus.ts';

/** Words for a node that exists and costs money. */
export const UP = ['READY', 'RUNNING'];

/** Status of an instance by the state of a node. The other words are the same. */
const STATUSES: Readonly<Record<string, string>> = {
  ...{CREATING: 'PROVISIONING', STARTING: 'STAGING', UNHIDING: 'STAGING', UNKNOWN: 'UNDEFINED_STATUS'},
  ...{READY: 'RUNNING', RESTARTING: 'REPAIRING', REIMAGING: 'REPAIRING'},
  ...{DELETING: 'STOPPING', PREEMPTED: 'STOPPING', HIDING: 'STOPPING', HIDDEN: 'DEPROVISIONING'},
};

export type Listed = {tpus: Tpu[]; unreachable: string[]};

export function nodeAsListed(
  {name, zone, provider, state, before, health, labels, symptoms, created_at}: FakeNode,
  isStale: boolean,
): Tpu {
  const shown = isStale ? before : state;
  if (provider === 'compute-engine') {
    const status = STATUSES[shown] ?? shown;
    const bare = {health: 'HEALTH_UNSPECIFIED', symptoms: [], queued: null};
    return {name, zone, state: status, labels: {...labels}, created_at, ...bare};
  }
  return {
    ...{name, zone, state: shown, health, labels: {...labels}},
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
