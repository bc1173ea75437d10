import {z} from 'zod';
import {
  amount,
  count,
  describing,
  dollars,
  emptyOf,
  epoch,
  incarnation,
  instant,
  integer,
  kept,
  message_times,
  orNull,
  stored,
  text,
} from '../fields.ts';
import {isOlderThan, iso, msOf} from '../time.ts';
import type {SourceReport} from './source.ts';

/** Evidence about a node that Cloud TPU collects by itself, at no cost. */
export const symptom = stored({symptom: text, details: text, created_at: instant});

export type Symptom = z.infer<typeof symptom>;

/** A stream that may have caused its worker's end. That end charges the stream, unless a shard was stored since. */
const suspect = stored({work: text, epoch, total_shards: count});
export type Suspect = z.infer<typeof suspect>;

/** Bytes that a host has downloaded since its boot: through Cloud NAT, from the bucket of the deployment, and from other buckets. */
const received = stored({nat_bytes: count, bucket_bytes: count, other_bytes: count});
export type Received = z.infer<typeof received>;

/** A host of a node, and its last report. Host 0 has no report here, because the fields of the worker hold it. */
const host = stored({
  hostname: text,
  address: text,
  heartbeat_at: orNull(instant),
  phase: orNull(text),
  source_version: orNull(count),
  source_error: orNull(text),
});

export const NO_HOST = {
  hostname: '',
  address: '',
  ...emptyOf(host.omit({hostname: true, address: true}).shape),
};

export type Host = z.infer<typeof host>;

/** Observed fields of a slot: states of its node and of its queued resource. */
const shown = {
  provider_state: orNull(text).describe(
    'State of the node in the words of Cloud TPU, such as `READY`. Null without a node.',
  ),
  health: orNull(text).describe(
    'Health of the node in the words of Cloud TPU. Null without a node or a report.',
  ),
  queue_state: orNull(text).describe(
    'State of the queued resource in the words of Cloud TPU. Null without one.',
  ),
  provider_since_at: orNull(instant).describe(
    'Start of the present standing of the node and its queued resource; null if unknown.',
  ),
  unready_at: orNull(instant).describe(
    'Last time at which a tick saw that the node was not READY yet, to within two minutes; else null.',
  ),
  missing_since_at: orNull(instant).describe(
    'Time of the first complete list without the node that was listed before. Null while it is listed.',
  ),
  symptoms: z
    .array(symptom)
    .describe('Symptoms that Cloud TPU reported since the node was READY, the newest last.'),
};

export const NOTHING_SHOWN = emptyOf(shown);

/** Dollars that an incarnation has cost up to `costs_at`, by the run that paid: see billing/cost.ts. */
const costs = {
  costs: z
    .record(text, dollars)
    .describe(
      'Dollars of this incarnation up to `costs_at`, by the run that paid. Keys with `_` are no runs: `_idle` has time that no run paid for, and `_downloads/RUN` has the downloads that RUN pays for.',
    ),
  costs_at: orNull(instant).describe('Time up to which `costs` is counted; null before the first count.'),
  priced_from_at: orNull(instant).describe(
    'Time from which `costs` uses the present price; null if the price never changed.',
  ),
  charged_to: orNull(text).describe(
    'The run that pays for the time of the TPU, also while it boots or waits. Null: no run pays.',
  ),
};

const seconds = amount;
/** Time and tokens of an incarnation: see life-phases.ts. `unstored_*`: since its stream stored the last shard. */
const life = {
  phase_seconds: z
    .record(text, seconds)
    .describe('Seconds of this incarnation since READY by phase, as in its attempt.'),
  unstored_s: seconds.describe('Seconds of work since the last stored shard.'),
  computed_tokens: count.describe('Tokens that the heartbeats of this incarnation reported.'),
  unstored_tokens: count.describe('Those of them since the last stored shard.'),
};

const node = {
  born_at: orNull(instant).describe('Time of the request for this incarnation; null before.'),
  hello_at: orNull(instant).describe('First heartbeat of the host of this incarnation; null before.'),
  agent_at: orNull(instant).describe('First message of its agent, after the boot; null before.'),
  boot_step: orNull(text).describe(
    'Step of the boot while `activity` is `setup`: `metadata`, `bundle`, `environment` or `agent`. Else null.',
  ),
  host_secrets: z
    .record(text, text)
    .describe('SHA-256 of the secret of each host that has said hello, by the number of the host.'),
  hosts: z
    .record(text, host)
    .describe(
      '`hostname` and `address` of each host, by its number, as the agents report them. Hosts other than 0 also have their last report: `heartbeat_at`, `phase`, `source_version`, `source_error`. That of host 0 is in the fields of the document.',
    ),
  execs: z.array(text).describe('Ids of commands that the hosts have not finished.'),
  source_version: count.describe('Version of the source of the pool that the TPU should have.'),
  source_report: orNull(kept<SourceReport>()).describe(
    'Last report about the source: `version`, `status`, `ran`, `error`, `at`. Null before a report.',
  ),
  bundle: orNull(text).describe('SHA-256 of the bundle of this incarnation; null if unknown.'),
  is_canary: z
    .boolean()
    .describe('True: the node is a canary, created to test whether new TPUs of its zone boot and report.'),
  refused: z
    .boolean()
    .describe(
      'True: Cloud TPU refused the node before listing it. The next request is for the same incarnation.',
    ),
  suspect: orNull(suspect).describe(
    'Stream that the TPU lost through silence or a fault: `work`, `epoch`, `total_shards`. Else null.',
  ),
  model_loads: count.describe(
    'Count of grants to this incarnation that changed its run: each may load a model.',
  ),
  last_run: orNull(text).describe('Run of the last grant of a stream to this incarnation; null before.'),
  idle_leases: count.describe(
    'Consecutive leases of streams without a stored shard, including the present one. After three the TPU is replaced.',
  ),
  asked_at: orNull(instant).describe(
    'Time of the last create or delete request. A request without effect is repeated. Null before the first.',
  ),
  ready_at: orNull(instant).describe(
    'First time at which the node of this incarnation was READY. Billing starts here. Null before.',
  ),
  ...costs,
  received: z
    .record(text, received)
    .describe(
      'Bytes that each host has downloaded since its boot, by the number of the host: `nat_bytes` through Cloud NAT, `bucket_bytes` from the bucket, `other_bytes` from other buckets.',
    ),
  ...life,
  heartbeat_at: orNull(instant).describe('Time of the last heartbeat; null before the first.'),
  progress_at: orNull(instant).describe(
    'Time of the last progress of the work. A heartbeat proves only that the agent lives.',
  ),
  ...shown,
  fault: orNull(text).describe(
    'Failure of the machine or of its boot, as its host reported it: the machine is replaced. Else null.',
  ),
  activity: orNull(text).describe(
    'Present work of the agent, as it reports it: `setup`, `idle`, `loading`, `compiling`, `running`, `waiting` (a job, for its other hosts), `ended` (its code has), `uploading`. Null before.',
  ),
  blocked_until_at: orNull(instant).describe(
    'No create before this time, because a create failed. Null: no wait.',
  ),
  recreate: z
    .boolean()
    .describe('True: a `recreate` or `delete` message wants this node deleted, and a tick does so.'),
  last_error: orNull(text).describe(
    'Last error of the slot, such as a refused create. Null without one, and as soon as a TPU of the slot asks for work.',
  ),
};

export const NO_NODE = emptyOf(node);

const work = {
  work: orNull(text).describe('The leased stream, `my-run/007`, or job, `job:ID`. Null without a lease.'),
  epoch: orNull(epoch).describe('Epoch of that lease; null without a lease.'),
  claimed_at: orNull(instant).describe(
    'Time of the grant, or of the last heartbeat that claimed the lease. Null after a restart of the host.',
  ),
  drains: z
    .boolean()
    .describe('True: the next heartbeat tells the agent to finish its shard and to release the stream.'),
  yields_to: orNull(text).describe(
    'Job for which the agent is told to finish its shard and to release the stream.',
  ),
  samples_done: orNull(count).describe(
    'Samples of the stream so far, as the agent reports. Null without work.',
  ),
  samples_total: orNull(count).describe('Samples of the stream; null until the agent knows.'),
  tokens_done: orNull(count).describe('Tokens of the stream so far; null without work.'),
  shards_done: orNull(count).describe('Shards of the stream so far; null without work.'),
  tokens_per_s: orNull(z.number()).describe('Tokens a second, as the agent reports; null if unknown.'),
  waits_for: orNull(text).describe(
    'Host that does not answer the agent, its error, and the number of tries. Else null.',
  ),
};

export const NO_WORK = emptyOf(work);

/**
 * A slot and its node. Phases of a slot:
 * `creating`: the node was requested, directly or in the queue. `booting`: the node is READY, and its agent has sent nothing yet.
 * `idle` and `working`: the agent sends heartbeats. `draining`: the agent finishes its shard and gets no more work.
 * `deleting`: the node must go. `gone`: the slot has no node. If the slot is wanted, its next incarnation is created from here.
 */
export const workerDocument = stored({
  name: text.describe('Name of the slot and of its TPU: `POOL-ZONE-SLOT`.'),
  pool: text.describe('Pool of the slot.'),
  zone: text.describe('Zone of the slot.'),
  slot: count.describe('Number of the slot in its zone, from 0.'),
  phase: z
    .enum(['creating', 'booting', 'idle', 'working', 'draining', 'deleting', 'gone'])
    .describe(
      "The control plane's own state of the slot. Plans use this field; [Operations](../operations.md) explains each.",
    ),
  phase_since_at: instant.describe('Start of the phase.'),
  incarnation: incarnation.describe(
    'Number of the node in this slot. Every create adds 1, so an older node and its messages are recognised.',
  ),
  usd_per_hour: orNull(dollars).describe('Price in force, in dollars an hour. Null: unknown.'),
  priced_as: orNull(text).describe(
    'Type and kind of node that the price is for, such as `v6e-8 on spot`. Null: the price does not change.',
  ),
  host_count: integer
    .positive()
    .describe('Hosts of each node of the slot, by the type of its last request. Host 0 reports the work.'),
  provisioning: orNull(describing(['node', 'queued-resource', 'flex-start'])).describe(
    'Kind of the request: `node` at once, `queued-resource` or `flex-start`. Null before the first request.',
  ),
  valid_until_at: orNull(instant).describe('Expiry of the queued request; null without one.'),
  ...node,
  ...work,
  held: z.boolean().describe('True: a `delete` message empties the slot until a `recreate` message.'),
  message_times,
  last_death: orNull(text).describe(
    'Why the last incarnation ended before its work did; null without such an end.',
  ),
  created_at: instant.describe('Time at which the document was written first.'),
  updated_at: instant.describe('Time of the last change of the document.'),
});

export type Worker = z.infer<typeof workerDocument>;
/** Workers by name. */
export type Workers = ReadonlyMap<string, Worker>;
export type Phase = Worker['phase'];
export type LifeFields = Pick<Worker, keyof typeof life>;
export type Costs = Worker['costs'];

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
    host_count: 1,
    phase: 'gone',
    // Older than every observation.
    phase_since_at: iso(0),
    created_at: iso(now),
    updated_at: iso(now),
  };
}

/** Longer than a few ticks: a longer time without an observation means that ticks could not observe the node. */
const UNSEEN_MS = 300_000;

/**
 * Billing start of a node first seen READY at `now`: `now`, or the newest bound if that is over 5 minutes old.
 * `bounds`: instants at which the node was not READY yet.
 * The start is at most `UNSEEN_MS` late, or early by the rest of the node's creation.
 */
export function readySince(bounds: readonly (string | null)[], now: number): string {
  const since = Math.max(...bounds.map(at => (at === null ? 0 : msOf(at))));
  return iso(now - since > UNSEEN_MS ? since : now);
}

/** The phases in which an agent may hold a lease and send requests. */
export const isAlive = ({phase}: Worker) => ['booting', 'idle', 'working', 'draining'].includes(phase);

export const hasEnded = ({phase}: Pick<Worker, 'phase'>) => phase === 'deleting' || phase === 'gone';

export function isBlocked(worker: Worker, now: number): boolean {
  return worker.blocked_until_at !== null && !isOlderThan(worker.blocked_until_at, 0, now);
}

/** The worker after the control plane ended its lease of a stream: that lease does not count as idle. */
export const notIdle = (worker: Worker): Worker => ({
  ...worker,
  idle_leases: Math.max(0, worker.idle_leases - 1),
});

/** The worker after its lease was revoked. Its agent is notified at the next heartbeat. */
export const withoutWork = (worker: Worker): Worker => ({...worker, ...NO_WORK});
