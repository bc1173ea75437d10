/** Faults of a world and their frequencies. Each kind is drawn independently. */
import type {Chance} from '../../world/clock.ts';

/**
 * The greatest value of each kind: a probability, unless the comment says otherwise. The ranges come from public reports and the limits
 * of the services.
 */
const LIMITS = {
  /** A message or an object event never arrives. */
  loss: 0.3,
  /** A message or an object event arrives twice. */
  duplicate: 0.5,
  /** The longest delay of a delivery in seconds. */
  delay_s: 240,
  /** A call of a service fails without an effect. */
  refusal: 0.08,
  /** A call has its effect, but its answer is lost. For a transaction this is an ambiguous commit. */
  silence: 0.05,
  /** The longest latency of a call in milliseconds. A slow handler can overlap with the redelivery of its message. */
  latency_ms: 20_000,
  /** A call hangs for minutes. The message is delivered again, and both handlers run. */
  hang: 0.004,
  /** The calling process crashes before or after the effect of the call. */
  crash: 0.01,
  /** A request of a worker arrives minutes late, after its sender timed out or ended. */
  late: 0.1,
  /** A machine has no network for minutes. */
  cut: 0.4,
  /** Preemptions of a node in an hour. */
  preemption: 12,
  /** A zone preempts all its nodes within a minute. Drawn about every ten minutes. */
  storm: 0.5,
  /** A preempted node gets 30 seconds' notice. */
  notice: 0.4,
  /** A preempted node is deleted without a trace. */
  vanish: 0.3,
  /** The machine of a preempted node stops, and the node stays READY. Other preempted nodes show a state of `TAKEN`. */
  deaf: 0.6,
  /** A machine continues to work for minutes after its node is gone. */
  zombie: 0.3,
  /** The machine of a READY node never boots, or its setup fails or never ends. */
  stillborn: 0.2,
  /** An operation of Cloud TPU never ends, or fails late without an error for its caller. */
  stuck: 0.15,
  /** A queued resource is suspended before it creates a node. */
  suspension: 0.2,
  /** A host has no usable chips. */
  bad_host: 0.3,
  /** Cloud TPU reports a working node as unhealthy. */
  ill: 0.5,
  /** A list of nodes is up to 90 seconds old, and shows deleted nodes. */
  stale: 0.5,
  /** A list leaves out half of the nodes. */
  omission: 0.4,
  /** worker-api does not answer. Drawn about every ten minutes. */
  outage: 0.3,
  /** A zone has no capacity. Drawn about every ten minutes, as are `quota` and `partition`. */
  stockout: 0.4,
  /** A zone is over quota. */
  quota: 0.2,
  /** A zone does not answer. */
  partition: 0.3,
  /** A node is under repair for minutes, or for ever. */
  repair: 0.2,
  /** A worker cannot extract a stream, because its disk is full. */
  machine_fault: 0.1,
  /** A worker reports `completed` without its last shard in the bucket. */
  lie: 0.2,
  /** The clock skew of a function instance in seconds. */
  skew_s: 10,
  /** The relative clock drift of a worker. A worker compares no time with another clock. */
  drift: 0.3,
  /** A new function instance runs the next release of the code. */
  rollout: 1,
  /** An instance crashes at a critical call: before a publish, or after the end of a stream, a run or an incarnation. */
  aim: 0.1,
  /** The Store does not answer for minutes. */
  store_outage: 0.15,
  /** One verb of one service is refused for minutes, as after the removal of a role. */
  permission: 0.15,
  /** A node with Gleaner's label has a name that fits no slot. */
  stray: 0.4,
  /** Another owner has a node in a zone of the pool, sometimes with the name of a slot. */
  foreign: 0.5,
  /** The whole database is lost once. */
  wipe: 0.8,
  /** An operator overwrites a stream object with other content. */
  overwrite: 0.3,
  /** Operators send messages, valid and invalid. */
  meddling: 0.9,
  /** The nodes of a zone have no network, and their requests do not arrive. Drawn about every ten minutes. */
  zone_cut: 0.3,
  /** A machine sends a request in the name of another worker beside its own. */
  forgery: 0.2,
};

export type Faults = Record<keyof typeof LIMITS, number>;

/** Terms of the draws: the share of the kinds of faults that a world has, and kinds that it has at their greatest value. */
export type FaultTerms = {share?: number; faults?: readonly (keyof Faults)[]};

/** An upper bound of the difference between the clocks of two instances. */
export const MAX_SKEW_MS = (2 * LIMITS.skew_s + 5) * 1000;

/** Faults that may lose or delay the wake that an event causes. */
const WAKE_FAULTS: (keyof Faults)[] = [
  ...(['loss', 'delay_s', 'refusal', 'silence', 'latency_ms', 'hang', 'crash', 'aim'] as const),
  ...(['store_outage', 'permission', 'wipe'] as const),
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
export function drawFaults(
  chance: Chance,
  without: ReadonlySet<string> = new Set(),
  {share = chance.pick([0, 0.15, 0.3, 0.5, 0.7, 1]), faults: certain = []}: FaultTerms = {},
): Faults {
  const faults = {...CALM};
  for (const kind of KINDS) {
    // Every kind is drawn, so leaving out one kind does not change the others.
    const [on, level] = [chance.happens(share), chance.next()];
    if (on && !without.has(kind)) faults[kind] = level * LIMITS[kind];
  }
  for (const kind of certain) if (!without.has(kind)) faults[kind] = LIMITS[kind];
  return faults;
}
