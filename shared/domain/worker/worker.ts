import type {PublishTimes} from '../commands/publish-order.ts';
import type {SourceReport} from '../source/source.ts';
import {isOlderThan, iso, msOf} from '../time.ts';
import type {Shown, Symptom} from './provider-states.ts';

/**
 * Phases of a slot.
 * `creating`: the node was requested, at once or in the queue. `booting`: the node is READY, and its agent has not spoken.
 * `idle` and `working`: the agent speaks. `draining`: the agent finishes its shard and gets no more work.
 * `deleting`: the node must go. `gone`: the slot has no node. A wanted slot is created from here, as the next incarnation.
 */
export type Phase = 'creating' | 'booting' | 'idle' | 'working' | 'draining' | 'deleting' | 'gone';

/** A stream that may be the cause of its worker's end. That end charges the stream, unless a shard was stored since. */
export type Suspect = {work: string; epoch: number; total_shards: number};

/** Bytes that a host has downloaded since its boot: through Cloud NAT, from the bucket of the deployment, and from other buckets. */
export type Received = {nat_bytes: number; bucket_bytes: number; other_bytes: number};

/** Dollars that an incarnation has cost, by the run that it worked for: see billing/cost.ts. No run id starts with an underscore. */
export type Costs = Record<string, number>;

/** Fields: docs/firestore.md. */
export type Worker = Shown & {
  name: string;
  pool: string;
  zone: string;
  slot: number;
  phase: Phase;
  phase_since_at: string;
  /** First time at which the node of this incarnation was READY, as far as ticks can tell. Billing starts here. */
  ready_at: string | null;
  usd_per_hour: number | null;
  /** Type and kind of the node that the price is of: see billing/budget.ts. */
  priced_as: string | null;
  /** Start of the time that `costs` has at `usd_per_hour`; null before a first change of the price. */
  priced_from_at: string | null;
  /** Costs of this incarnation up to `costs_at`: see billing/cost.ts. */
  costs: Costs;
  costs_at: string | null;
  /** Downloads that are in `costs`, by host: see billing/downloads.ts. */
  received: Record<string, Received>;
  charged_to: string | null;
  incarnation: number;
  born_at: string | null;
  hello_at: string | null;
  /** First word of the agent: the boot has succeeded. */
  agent_at: string | null;
  /** Step of the boot; null once the agent speaks. */
  boot_step: string | null;
  host_secrets: Record<string, string>;
  hosts: Record<string, {hostname: string; address: string}>;
  /** Ids of commands that the hosts have not finished: see control-plane/execs/. */
  execs: string[];
  source_version: number;
  source_report: SourceReport | null;
  /** The worker bundle of this incarnation, and whether its node probes its zone: see fleet/silence-brake.ts. */
  bundle: string | null;
  is_probe: boolean;
  /** True: Cloud TPU refused the node before it showed. The next request is for the same incarnation. */
  refused: boolean;
  provisioning: 'node' | 'queued-resource' | null;
  valid_until_at: string | null;
  /** Start of the present standing of the node and its queued resource: see provider-states.ts. */
  provider_since_at: string | null;
  unready_at: string | null;
  missing_since_at: string | null;
  symptoms: Symptom[];
  fault: string | null;
  heartbeat_at: string | null;
  activity: string | null;
  work: string | null;
  epoch: number | null;
  claimed_at: string | null;
  drains: boolean;
  /** The job for which the worker gives its stream back after the shard in hand: see fleet/yields.ts. */
  yields_to: string | null;
  suspect: Suspect | null;
  samples_done: number | null;
  samples_total: number | null;
  tokens_done: number | null;
  shards_done: number | null;
  tokens_per_s: number | null;
  waits_for: string | null;
  progress_at: string | null;
  blocked_until_at: string | null;
  asked_at: string | null;
  recreate: boolean;
  held: boolean;
  said: PublishTimes;
  last_death: string | null;
  last_error: string | null;
  created_at: string;
  updated_at: string;
};

export function newWorker(
  name: string,
  slot: {pool: string; zone: string; slot: number},
  now: number,
): Worker {
  return {
    name,
    ...slot,
    phase: 'gone',
    // Older than every observation.
    phase_since_at: iso(0),
    incarnation: 0,
    ...NO_NODE,
    ...NO_WORK,
    usd_per_hour: null,
    priced_as: null,
    provisioning: null,
    valid_until_at: null,
    held: false,
    said: {},
    last_death: null,
    created_at: iso(now),
    updated_at: iso(now),
  };
}

/** More than a few ticks: a longer time without an observation means that ticks could not observe. */
const UNSEEN_MS = 300_000;

/**
 * Billing start of a node first seen READY at `now`: `now`, or the newest bound if it is over 5 minutes old.
 * `bounds` are instants before which the node was not READY.
 * The start is late by less than `UNSEEN_MS`, or early by the rest of the node's creation.
 */
export function readySince(bounds: readonly (string | null)[], now: number): string {
  const since = Math.max(...bounds.map(at => (at === null ? 0 : msOf(at))));
  return iso(now - since > UNSEEN_MS ? since : now);
}

/** The phases in which an agent may hold a lease and be heard. */
export function isAlive(worker: Worker): boolean {
  return worker.phase === 'booting' || isSpeaking(worker);
}

function isSpeaking(worker: Worker): boolean {
  return worker.phase === 'idle' || worker.phase === 'working' || worker.phase === 'draining';
}

/** True if the incarnation is over: its node goes or is gone. */
export function hasEnded({phase}: Pick<Worker, 'phase'>): boolean {
  return phase === 'deleting' || phase === 'gone';
}

export function isBlocked(worker: Worker, now: number): boolean {
  return worker.blocked_until_at !== null && !isOlderThan(worker.blocked_until_at, 0, now);
}

/** Observed fields of a slot without a node. */
export const NOTHING_SHOWN = {
  provider_state: null,
  health: null,
  queue_state: null,
  provider_since_at: null,
  unready_at: null,
  missing_since_at: null,
  symptoms: [] as Symptom[],
};

export const NO_COSTS = {costs: {}, costs_at: null, priced_from_at: null, charged_to: null};

/** Fields of an incarnation without a node: nothing is known about its node or its agent. */
export const NO_NODE = {
  born_at: null,
  hello_at: null,
  agent_at: null,
  boot_step: null,
  host_secrets: {},
  hosts: {},
  execs: [] as string[],
  source_version: 0,
  source_report: null,
  bundle: null,
  is_probe: false,
  refused: false,
  suspect: null,
  asked_at: null,
  ready_at: null,
  ...NO_COSTS,
  received: {},
  heartbeat_at: null,
  progress_at: null,
  ...NOTHING_SHOWN,
  fault: null,
  activity: null,
  blocked_until_at: null,
  recreate: false,
  last_error: null,
};

/** Work fields of a worker without a stream. */
export const NO_WORK = {
  work: null,
  epoch: null,
  claimed_at: null,
  drains: false,
  yields_to: null,
  samples_done: null,
  samples_total: null,
  tokens_done: null,
  shards_done: null,
  tokens_per_s: null,
  waits_for: null,
};

/** The worker after its lease was revoked: its agent learns so at the next heartbeat. */
export function withoutWork(worker: Worker): Worker {
  return {...worker, ...NO_WORK};
}
