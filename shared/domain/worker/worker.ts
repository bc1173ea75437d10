import {z} from 'zod';
import {
  count,
  describing,
  dollars,
  emptyOf,
  epoch,
  incarnation,
  instant,
  kept,
  said,
  stored,
  text,
} from '../fields.ts';
import type {SourceReport} from '../source/source.ts';
import {isOlderThan, iso, msOf} from '../time.ts';
import {symptom} from './provider-states.ts';

/** A stream that may be the cause of its worker's end. That end charges the stream, unless a shard was stored since. */
const suspect = stored({work: text, epoch, total_shards: count});
export type Suspect = z.infer<typeof suspect>;

/** Bytes that a host has downloaded since its boot: through Cloud NAT, from the bucket of the deployment, and from other buckets. */
const received = stored({nat_bytes: count, bucket_bytes: count, other_bytes: count});
export type Received = z.infer<typeof received>;

/** Observed fields of a slot: states of its node and of its queued resource. */
const shown = {
  provider_state: text.nullable(),
  health: text.nullable(),
  queue_state: text.nullable().default(null),
  provider_since_at: instant.nullable().default(null),
  unready_at: instant.nullable().default(null),
  missing_since_at: instant.nullable().default(null),
  symptoms: z.array(symptom).default([]),
};
export const NOTHING_SHOWN = emptyOf(shown);

/** Dollars that an incarnation has cost up to `costs_at`, by the run that it worked for: see billing/cost.ts. */
const costs = {
  costs: z.record(text, dollars),
  costs_at: instant.nullable(),
  priced_from_at: instant.nullable().default(null),
  charged_to: text.nullable(),
};

const seconds = z.number().min(0);
/** Time and tokens of an incarnation: see life-phases.ts. `unstored_*`: since the last stored shard of its stream. */
const life = {
  phase_seconds: z.record(text, seconds).default({}),
  unstored_s: seconds.default(0),
  computed_tokens: count.default(0),
  unstored_tokens: count.default(0),
};

/** Fields of an incarnation: its node and its agent. */
const node = {
  born_at: instant.nullable().default(null),
  hello_at: instant.nullable().default(null),
  agent_at: instant.nullable().default(null),
  boot_step: text.nullable().default(null),
  host_secrets: z.record(text, text).default({}),
  hosts: z.record(text, stored({hostname: text, address: text})).default({}),
  execs: z.array(text).default([]),
  source_version: count.default(0),
  source_report: kept<SourceReport>().nullable().default(null),
  bundle: text.nullable().default(null),
  is_probe: z.boolean().default(false),
  refused: z.boolean().default(false),
  suspect: suspect.nullable().default(null),
  asked_at: instant.nullable(),
  ready_at: instant.nullable(),
  ...costs,
  received: z.record(text, received).default({}),
  ...life,
  heartbeat_at: instant.nullable(),
  progress_at: instant.nullable(),
  ...shown,
  fault: text.nullable().default(null),
  activity: text.nullable(),
  blocked_until_at: instant.nullable(),
  recreate: z.boolean(),
  last_error: text.nullable(),
};
/** Nothing is known about a node or its agent. */
export const NO_NODE = emptyOf(node);

const work = {
  work: text.nullable(),
  epoch: epoch.nullable().default(null),
  claimed_at: instant.nullable().default(null),
  drains: z.boolean().default(false),
  /** The job for which the worker gives its stream back after the shard in hand: see fleet/yields.ts. */
  yields_to: text.nullable().default(null),
  samples_done: count.nullable(),
  samples_total: count.nullable(),
  tokens_done: count.nullable(),
  shards_done: count.nullable(),
  tokens_per_s: z.number().nullable(),
  waits_for: text.nullable().default(null),
};
/** Work fields of a worker without a stream. */
export const NO_WORK = emptyOf(work);

/**
 * A slot and its node. Phases of a slot:
 * `creating`: the node was requested, at once or in the queue. `booting`: the node is READY, and its agent has not spoken.
 * `idle` and `working`: the agent speaks. `draining`: the agent finishes its shard and gets no more work.
 * `deleting`: the node must go. `gone`: the slot has no node. A wanted slot is created from here, as the next incarnation.
 * Fields: docs/firestore.md.
 */
export const workerDocument = stored({
  name: text,
  pool: text,
  zone: text,
  slot: count,
  phase: z.enum(['creating', 'booting', 'idle', 'working', 'draining', 'deleting', 'gone']),
  phase_since_at: instant,
  incarnation,
  usd_per_hour: dollars.nullable(),
  priced_as: text.nullable().default(null),
  provisioning: describing(['node', 'queued-resource']).nullable().default(null),
  valid_until_at: instant.nullable().default(null),
  ...node,
  ...work,
  held: z.boolean(),
  said,
  last_death: text.nullable(),
  created_at: instant,
  updated_at: instant,
});
export type Worker = z.infer<typeof workerDocument>;
export type Phase = Worker['phase'];
export type LifeFields = Pick<Worker, keyof typeof life>;
export type Costs = Worker['costs'];

/** Fields of a slot without a name, a node and work. */
const NO_SLOT = emptyOf(workerDocument.shape);

export function newWorker(
  name: string,
  slot: {pool: string; zone: string; slot: number},
  now: number,
): Worker {
  return {
    ...NO_SLOT,
    name,
    ...slot,
    phase: 'gone',
    // Older than every observation.
    phase_since_at: iso(0),
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

/** The worker after its lease was revoked: its agent learns so at the next heartbeat. */
export function withoutWork(worker: Worker): Worker {
  return {...worker, ...NO_WORK};
}
