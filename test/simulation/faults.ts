/** Faults of a world and their frequencies. Each kind is drawn independently. */
import type {Chance} from '../support/kernel.ts';

/** Probabilities, unless the comment says otherwise. The ranges come from public reports and the limits of the services. */
export type Faults = {
  /** A message or an object event never arrives. */
  loss: number;
  /** A message or an object event arrives twice. */
  duplicate: number;
  /** The longest delay of a delivery in seconds. */
  delay_s: number;
  /** A call of a service fails without an effect. */
  refusal: number;
  /** A call has its effect, but its answer is lost. For a transaction this is an ambiguous commit. */
  silence: number;
  /** The longest latency of a call in milliseconds. A slow handler can overlap with the redelivery of its message. */
  latency_ms: number;
  /** A call hangs for minutes. The message is delivered again, and both handlers run. */
  hang: number;
  /** The calling process crashes before or after the effect of the call. */
  crash: number;
  /** A request of a worker arrives minutes late, after its sender timed out or ended. */
  late: number;
  /** A machine has no network for minutes. */
  cut: number;
  /** Preemptions of a node in an hour. */
  preemption: number;
  /** A zone preempts all its nodes within a minute. Drawn about every ten minutes. */
  storm: number;
  /** A preempted node gets 30 seconds' notice. */
  notice: number;
  /** A preempted node is deleted without a trace. */
  vanish: number;
  /** The machine of a preempted node stops, and the node stays READY. Other preempted nodes show a state of `TAKEN`. */
  deaf: number;
  /** A machine continues to work for minutes after its node is gone. */
  zombie: number;
  /** The machine of a READY node never boots, or its setup never ends. */
  stillborn: number;
  /** An operation of Cloud TPU never ends, or fails late without an error for its caller. */
  stuck: number;
  /** A queued resource is suspended before it creates a node. */
  suspension: number;
  /** A host has no usable chips. */
  bad_host: number;
  /** Cloud TPU reports a working node as unhealthy. */
  ill: number;
  /** A list of nodes is up to 90 seconds old, and shows deleted nodes. */
  stale: number;
  /** A list leaves out half of the nodes. */
  omission: number;
  /** worker-api does not answer. Drawn about every ten minutes. */
  outage: number;
  /** A zone has no capacity. Drawn about every ten minutes, as are `quota` and `partition`. */
  stockout: number;
  /** A zone is over quota. */
  quota: number;
  /** A zone does not answer. */
  partition: number;
  /** A node is under repair for minutes, or for ever. */
  repair: number;
  /** A worker cannot extract a stream, because its disk is full. */
  machine_fault: number;
  /** A worker reports `completed` without its last shard in the bucket. */
  lie: number;
  /** The clock skew of a function instance in seconds. */
  skew_s: number;
  /** The relative clock drift of a worker. A worker compares no time with another clock. */
  drift: number;
  /** A new function instance runs the next release of the code. */
  rollout: number;
  /** An instance crashes at a critical call: before a publish, or after the end of a stream, a run or an incarnation. */
  aim: number;
  /** The Store does not answer for minutes. */
  store_outage: number;
  /** One verb of one service is refused for minutes, as after the removal of a role. */
  permission: number;
  /** A node with Gleaner's label has a name that fits no slot. */
  stray: number;
  /** Another owner has a node in a zone of the pool, sometimes with the name of a slot. */
  foreign: number;
  /** The whole database is lost once. */
  wipe: number;
  /** An operator overwrites a stream object with other content. */
  overwrite: number;
  /** Operators send messages, valid and invalid. */
  meddling: number;
  /** The nodes of a zone have no network, and their requests do not arrive. Drawn about every ten minutes. */
  zone_cut: number;
  /** A machine sends a request in the name of another worker beside its own. */
  forgery: number;
};

/** The greatest value of each kind. */
const LIMITS: Faults = {
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
  forgery: 0.2,
};

/** An upper bound of the difference between the clocks of two instances. */
export const MAX_SKEW_MS = (2 * LIMITS.skew_s + 5) * 1000;

/** Faults that may lose or delay the wake that an event causes. */
const WAKE_FAULTS: (keyof Faults)[] = [
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
  return WAKE_FAULTS.every(kind => faults[kind] === 0);
}

/** The longest time for which a call from the storm may hang in the calm. */
export const MAX_HANG_MINUTES = 12;

export const KINDS = Object.keys(LIMITS) as (keyof Faults)[];

export const CALM = Object.fromEntries(KINDS.map(kind => [kind, 0])) as Faults;

/** Draws the faults of a world: most worlds have a few kinds, some have every kind, and a few have none. */
export function drawFaults(chance: Chance, without: ReadonlySet<string> = new Set()): Faults {
  const share = chance.pick([0, 0.15, 0.3, 0.5, 0.7, 1]);
  const faults = {...CALM};
  for (const kind of KINDS) {
    // Every kind is drawn, so leaving out one kind does not change the others.
    const [on, level] = [chance.happens(share), chance.next()];
    if (on && !without.has(kind)) faults[kind] = level * LIMITS[kind];
  }
  return faults;
}
