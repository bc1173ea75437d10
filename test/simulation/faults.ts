/** Faults of a world and their frequencies. The seed draws each kind by itself. */
import type {Chance} from '../support/kernel.ts';

/** Probabilities, unless the name says otherwise. Ranges are those of public reports and of the services' own promises. */
export type Faults = {
  /** A message or an object event never arrives. */
  loss: number;
  /** A message or an object event arrives twice. */
  duplicate: number;
  /** Seconds that a delivery may take. */
  delay_s: number;
  /** A call of a service fails, and nothing was done. */
  refusal: number;
  /** A call was done, and its answer is lost: for a transaction, an ambiguous commit. */
  silence: number;
  /** Milliseconds that a call may take; a slow handler meets its own redelivery. */
  latency_ms: number;
  /** A call hangs for minutes: the message is delivered again, and both handlers go on. */
  hang: number;
  /** The process that made the call dies before the answer arrives. */
  crash: number;
  /** A worker's request arrives minutes after its sender gave up or ended. */
  late: number;
  /** A machine's network is away for minutes. */
  cut: number;
  /** Losses of a node in an hour. */
  preemption: number;
  /** A zone preempts all its nodes within a minute; drawn about every ten minutes. */
  storm: number;
  /** Shares of lost nodes: with 30 seconds' notice; vanished; still READY. The rest show PREEMPTED or TERMINATED. */
  notice: number;
  vanish: number;
  deaf: number;
  /** A machine that continues after its node was deleted. */
  zombie: number;
  /** A READY node whose machine never boots. */
  stillborn: number;
  /** An operation never ends, or ends in an error that no caller receives. */
  stuck: number;
  /** A queued resource that is suspended before it has brought a node. */
  suspension: number;
  /** Hosts without usable chips; nodes that Cloud TPU calls unhealthy. */
  bad_host: number;
  ill: number;
  /** A list of nodes is up to 90 seconds behind, and shows nodes that are gone. */
  stale: number;
  /** A list leaves out half of the nodes. */
  omission: number;
  /** worker-api does not answer; drawn about every ten minutes. */
  outage: number;
  /** A zone has no capacity, is over quota, or does not answer; drawn about every ten minutes. */
  stockout: number;
  quota: number;
  partition: number;
  /** Nodes under repair for a while. */
  repair: number;
  /** Workers that cannot do a stream: the disk is full. */
  machine_fault: number;
  /** Workers that report `completed` when their last shard was never stored. */
  lie: number;
  /** Seconds by which the clocks of function instances differ. */
  skew_s: number;
  /** The share by which a worker's clock runs fast or slow. A worker compares no time with another clock. */
  drift: number;
  /** The share of function instances that run the next release. */
  rollout: number;
  /** An instance dies at a dangerous instant: before it publishes, or after it has ended a stream, a run or an incarnation. */
  aim: number;
  /** The Store answers nothing for minutes. */
  store_outage: number;
  /** One verb of one service is refused for minutes, as when a role was taken away. */
  permission: number;
  /** A node with our label fits no slot. */
  stray: number;
  /** Another owner has a node in a zone of the pool, perhaps under a name of ours. */
  foreign: number;
  /** The whole database is lost once. */
  wipe: number;
  /** An operator drops other content under the name of a stream. */
  overwrite: number;
  /** Messages of operators, valid and invalid. */
  meddling: number;
  /** The network of a zone is away: of every ten minutes. Its nodes live on, and their requests do not arrive. */
  zone_cut: number;
};

const MOST: Faults = {
  loss: 0.3,
  duplicate: 0.5,
  delay_s: 240,
  refusal: 0.08,
  silence: 0.05,
  latency_ms: 20_000,
  hang: 0.004,
  crash: 0.01,
  late: 0.1,
  cut: 0.4,
  preemption: 12,
  storm: 0.5,
  notice: 0.4,
  vanish: 0.3,
  deaf: 0.6,
  zombie: 0.3,
  stillborn: 0.2,
  stuck: 0.15,
  suspension: 0.2,
  bad_host: 0.3,
  ill: 0.5,
  stale: 0.5,
  omission: 0.4,
  outage: 0.3,
  stockout: 0.4,
  quota: 0.2,
  partition: 0.3,
  repair: 0.2,
  machine_fault: 0.1,
  lie: 0.2,
  skew_s: 10,
  drift: 0.3,
  rollout: 1,
  aim: 0.1,
  store_outage: 0.15,
  permission: 0.15,
  stray: 0.4,
  foreign: 0.5,
  wipe: 0.8,
  overwrite: 0.3,
  meddling: 0.9,
  zone_cut: 0.3,
};

/** Clocks of two instances differ by less. */
export const MOST_SKEW_MS = (2 * MOST.skew_s + 5) * 1000;

/** Faults that may lose or delay the wake that an event causes. */
const OF_WAKES: (keyof Faults)[] = [
  'loss',
  'delay_s',
  'refusal',
  'silence',
  'latency_ms',
  'hang',
  'crash',
  'aim',
  'store_outage',
  'permission',
  'wipe',
];

/** True if no fault of a world loses or delays a wake. */
export function keepsWakes(faults: Faults): boolean {
  return OF_WAKES.every(kind => faults[kind] === 0);
}

/** A call that was made in the storm may hang for so long in the calm. */
export const MOST_LATE_MINUTES = 12;

export const KINDS = Object.keys(MOST) as (keyof Faults)[];

export const CALM = Object.fromEntries(KINDS.map(kind => [kind, 0])) as Faults;

/** Most worlds have a few kinds of trouble, some have every kind, and a few have none. */
export function drawFaults(chance: Chance, without: ReadonlySet<string> = new Set()): Faults {
  const share = chance.pick([0, 0.15, 0.3, 0.5, 0.7, 1]);
  const faults = {...CALM};
  for (const kind of KINDS) {
    // A kind without faults is drawn all the same: leaving out one kind changes no other.
    const [on, level] = [chance.happens(share), chance.next()];
    if (on && !without.has(kind)) faults[kind] = level * MOST[kind];
  }
  return faults;
}
