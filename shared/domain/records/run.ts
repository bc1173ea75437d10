import {z} from 'zod';
import {amount, count, dollars, emptyOf, instant, message_times, orNull, stored, text} from '../fields.ts';
import {nextRunName} from '../names.ts';
import {iso, msOf} from '../time.ts';
import {waiting} from './constraint.ts';
import type {ValuesOf} from './field.ts';
import {storedShape} from './field-schema.ts';
import {runHistory, withPoint} from './history.ts';
import {machineDeaths} from './machine-deaths.ts';
import {runSettings} from './spec-keys.ts';

const modelFailures = {
  certain_failure: orNull(text).describe(
    'Failure that ended the run, because every stream would fail in the same way. `retry` and `rebuild` clear it.',
  ),
  model_misses: count.describe(
    'Tries in a row in which the hub did not deliver the model. From the second on, each pauses the run until its next try.',
  ),
  model_misses_shards: count.describe(
    'Value of `total_shards` at the last such try. A higher total resets the count.',
  ),
  model_next_at: orNull(instant).describe(
    'Time of the next try of a run that is paused for its model; else null.',
  ),
};
export const NO_MODEL_FAILURES = emptyOf(modelFailures);

const totals = {
  streams_pending: count.describe('Streams that wait for a TPU, as of the last summary.'),
  streams_in_progress: count.describe('Streams with a lease, as of the last summary.'),
  streams_completed: count.describe('Streams whose final shard is stored, as of the last summary.'),
  streams_failed: count.describe('Failed streams, as of the last summary.'),
  total_samples_processed: count.describe('Stored samples of all streams.'),
  rejected_samples: count.describe('Rejected samples of all streams.'),
  total_tokens: count.describe('Tokens of the stored samples.'),
  total_shards: count.describe('Stored shards of all streams.'),
  total_bytes: count.describe('Bytes of the stored shards.'),
};

/** History of a run: traffic between regions, downloads, messages, and failures of its machines and its model. */
const history = {
  waits: orNull(waiting).describe(
    'Why the run waits, as of the last tick: `kind` and `about` name the [constraint](../operations.md#my-run-does-not-move), `evidence` is the text of its cause, `since_at` its beginning, `refusals` the refused requests since then, `next_try_at` the next request. Null while it moves.',
  ),
  network_bytes: count.describe('Bytes between the bucket and TPUs in other regions, as of the last tick.'),
  network_usd: amount.describe('Dollars of these bytes.'),
  spent_download_usd: amount.describe(
    'Dollars of weights and worker environments that ended incarnations have downloaded.',
  ),
  download_usd: amount.describe(
    'Dollars of downloads of ended and living incarnations, as of the last tick.',
  ),
  version: count.describe(
    'Count of applied `configure` messages. A message with `if_version` applies only to this version.',
  ),
  paused_at: orNull(instant).describe('Time of the last pause. Null: never paused.'),
  stopped_at: orNull(instant).describe('Time of a final `stop`; else null.'),
  history: orNull(runHistory).describe(
    'The past of the run in at most 288 points over its life, for curves: `at_s`, `tokens`, `usd`, `leases` and `preemptions`, in steps of `step_s` seconds or more. Null before the first summary.',
  ),
  message_times,
  ...machineDeaths,
  ...modelFailures,
};

/**
 * `spec` holds the settings that workers need. It is frozen, with its hash, when the first stream is accepted. Operators, budgets and
 * breakers set the status `paused`; only operators set `stopped`; the other statuses follow from the streams.
 */
export const runDocument = stored({
  run: text.describe('Id of the run, as in `datasets/RUN/`.'),
  status: z
    .enum(['active', 'paused', 'completed', 'failed', 'stopped'])
    .describe('Status word of the run; [Operations](../operations.md) explains each.'),
  reason: orNull(text).describe('Why the run waits, is paused or has ended; null without a reason.'),
  spec: orNull(z.record(text, z.unknown())).describe(
    'The complete spec that TPUs use. Null until the first stream is accepted, then frozen.',
  ),
  spec_hash: orNull(text).describe(
    'SHA-256 of `spec` with sorted keys. Every shard carries it. Null as long as `spec` is null.',
  ),
  ...storedShape(runSettings),
  bundle: orNull(text).describe('SHA-256 of the newest bundle of its leases. Null before the first lease.'),
  spent_usd: dollars.describe(
    'Dollars of the TPU incarnations that have ended. Equals `cost_usd` when no TPU works for the run.',
  ),
  cost_usd: dollars.describe(
    'Dollars of ended and living incarnations, as of the last tick. The budget compares with the sum of this cost, `network_usd` and `download_usd`.',
  ),
  preemptions: orNull(count).describe(
    'TPUs that Google preempted or took away while the run paid for them. Counted when the node is gone. Null: unknown, because the document of the run was lost.',
  ),
  ...history,
  ...totals,
  changed_at: orNull(instant).describe(
    'Time since which these counts may be out of date; the next tick counts the streams again. Null: up to date.',
  ),
  expired_at: orNull(instant).describe(
    'Time at which the documents of its streams were deleted; the totals stay. Null: not deleted.',
  ),
  created_at: instant.describe('Time at which the document was written first.'),
  updated_at: instant.describe(
    'Time of the last change of the document. Ticks read runs by it: change it too if you edit a document.',
  ),
});
export type Run = z.infer<typeof runDocument>;
/** Where a run works and what it may cost. */
export type Placement = ValuesOf<typeof runSettings>;
export type RunStatus = Run['status'];

/** A run without a spec. `earlier`: its previous document, whose counts and history it keeps. */
export function newRun(run: string, placement: Placement, now: number, earlier?: Run): Run {
  return {
    ...{...NO_STREAMS, ...NO_MESSAGES, ...earlier, ...placement},
    ...{run, status: 'active', reason: null, spec: null, spec_hash: null, bundle: null},
    ...{spent_usd: 0, cost_usd: 0, preemptions: 0, expired_at: null},
    ...{created_at: iso(now), updated_at: iso(now), changed_at: iso(now)},
  };
}

export function pausedFor(reason: string, now: number) {
  return {status: 'paused' as const, reason, waits: null, paused_at: iso(now), updated_at: iso(now)};
}

/** The run, ended by a person or by its model before its streams have ended. Its history ends too. */
export function endedAs(status: 'failed' | 'stopped', run: Run, reason: string | null, now: number): Run {
  const history = withPoint(run.history, run, now, {turns: true});
  return {...run, status, reason, waits: null, history, updated_at: iso(now)};
}

export const NO_STREAMS = emptyOf(totals);

/** The history of a new run: no messages, no failures of machines or model, and no traffic between regions. */
export const NO_MESSAGES = emptyOf(history);

/** Sums over the streams of a run. `failed`: one of the failed streams. */
export type StreamTotals = typeof NO_STREAMS & {
  failed: {stream: string; last_error: string | null} | undefined;
  /** Stream objects that are gone from the bucket: the first, and how many. */
  gone?: {object: string; count: number} | undefined;
};

/** A manifest older than this without a document proves that the document was lost, because a function creates both within minutes. */
export const LOST_AFTER_S = 3600;

/** Reason of a run that lost its document and waits for an operator, including the command that resumes it. */
export function lostReason(run: string): string {
  return `run ${run} has output in the bucket and had no document: its database was lost, or the output is older than this deployment. Check the run, then publish: gcloud pubsub topics publish control --message='{"action":"resume","run":"${run}"}'`;
}

export const isRunnable = (run: Run) => run.status === 'active' && run.spec !== null;

/** True if the run may still need TPUs, now or after a `resume`. */
export const isOpen = (run: Run) => run.status === 'active' || run.status === 'paused';

export const againCommand = (run: string) => `gleaner run start ${nextRunName(run)} --from ${run}`;

/** Time from which the bucket may have deleted shards of the run; null for a run whose shards do not expire. */
export function expiresFrom(run: Pick<Run, 'created_at' | 'expire_days'>): string | null {
  return run.expire_days === null ? null : iso(msOf(run.created_at) + run.expire_days * 86_400_000);
}
