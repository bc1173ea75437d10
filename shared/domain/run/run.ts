import {z} from 'zod';
import {count, dollars, emptyOf, instant, said, stored, text} from '../fields.ts';
import {nextRunName} from '../names.ts';
import type {Stream} from '../stream/stream.ts';
import {iso, msOf} from '../time.ts';
import {type Constraint, goesOn, isMoving, waiting, waitText} from '../waiting/constraint.ts';
import {machineDeaths} from './machine-deaths.ts';

/**
 * Failures of the model: `certain_failure` ended the run, because every stream fails in the same way, until `retry` or `rebuild`. The others
 * count tries in a row in which the hub did not deliver the model, and the run's shards by then.
 */
const modelFailures = {
  certain_failure: text.nullable().default(null),
  model_misses: count.default(0),
  model_misses_shards: count.default(0),
  /** Time of the next try of a run that is paused for its model; null: no such try comes. */
  model_next_at: instant.nullable().default(null),
};
export const NO_MODEL_FAILURES = emptyOf(modelFailures);

/** Totals of a run over its streams. */
const totals = {
  streams_pending: count,
  streams_in_progress: count,
  streams_completed: count,
  streams_failed: count,
  total_samples_processed: count,
  rejected_samples: count,
  total_tokens: count,
  total_shards: count,
  total_bytes: count,
};

/** History of a run: traffic between regions, downloads, messages, and failures of its machines and its model. */
const history = {
  /** Why it waits, as of the last tick; null while it moves. */
  waits: waiting.nullable().default(null),
  network_bytes: count.default(0),
  network_usd: z.number().min(0).default(0),
  spent_download_usd: z.number().min(0).default(0),
  download_usd: z.number().min(0).default(0),
  version: count,
  paused_at: instant.nullable().default(null),
  stopped_at: instant.nullable().default(null),
  said,
  ...machineDeaths,
  ...modelFailures,
};

/**
 * `spec` holds the settings that workers need. It is frozen, with its hash, when the first stream is accepted. Operators, budgets and breakers
 * set the status `paused`, operators set `cancelled`, and the other statuses follow from the streams. Fields: docs/firestore.md.
 */
export const runDocument = stored({
  run: text,
  status: z.enum(['active', 'paused', 'completed', 'failed', 'cancelled']),
  reason: text.nullable(),
  spec: z.record(text, z.unknown()).nullable(),
  spec_hash: text.nullable(),
  pool: text,
  priority: z.number().int(),
  affinity: z.enum(['any', 'fixed']).default('any'),
  stream_offset: count.default(0),
  bundle: text.nullable().default(null),
  allow_cross_region: z.boolean().default(false),
  expire_days: count.nullable().default(null),
  budget_usd: dollars.nullable(),
  spent_usd: dollars,
  cost_usd: dollars,
  ...history,
  ...totals,
  /** Since when streams may differ from these counts; null: they are counted. Earlier releases mark no run. See marks.ts. */
  changed_at: instant.nullable().default('1970-01-01T00:00:00.000Z'),
  /** Since when the documents of its streams are deleted; null: they are kept. */
  expired_at: instant.nullable().default(null),
  created_at: instant,
  updated_at: instant,
});
export type Run = z.infer<typeof runDocument>;
export type RunStatus = Run['status'];

/** The fields of a pause. */
export function pausedFor(reason: string, now: number) {
  return {status: 'paused' as const, reason, waits: null, paused_at: iso(now), updated_at: iso(now)};
}

/** The totals of a run before its first stream. */
export const NO_STREAMS = emptyOf(totals);

/** A new run: no message has changed it, no machine and no model has failed it, and nothing has crossed a region. */
export const NO_MESSAGES = emptyOf(history);

/** Sums over the streams of a run. `failed`: one of the failed streams. */
export type StreamTotals = typeof NO_STREAMS & {
  failed: {stream: string; last_error: string | null} | undefined;
  /** Stream objects that are gone from the bucket: the first, and how many. */
  gone?: {object: string; count: number} | undefined;
};

export type StreamFacts = Pick<Stream, 'stream' | 'status' | 'last_error' | (typeof SUMMED)[number]>;

/** Seconds after which a manifest without a document proves that the document was lost: a function creates both within minutes. */
export const LOST_AFTER_S = 3600;

/** Reason of a run that lost its document and waits for an operator, with the command that resumes it. */
export function lostReason(run: string): string {
  return `run ${run} has output in the bucket and had no document: its database was lost, or the output is older than this deployment. Check the run, then publish: gcloud pubsub topics publish control --message='{"action":"resume","run":"${run}"}'`;
}

/** Number fields of a stream that its run sums. */
export const SUMMED = [
  'total_samples_processed',
  'rejected_samples',
  'total_tokens',
  'total_shards',
  'total_bytes',
] as const;

/** Adds a stream to the totals of its run. */
export function addStream(totals: StreamTotals, stream: StreamFacts): void {
  totals[`streams_${stream.status}`] += 1;
  for (const field of SUMMED) totals[field] += stream[field];
  const {status, last_error} = stream;
  if (status === 'failed') totals.failed ??= {stream: stream.stream, last_error};
}

export function totalsOf(streams: readonly StreamFacts[]): StreamTotals {
  const totals: StreamTotals = {...NO_STREAMS, failed: undefined};
  for (const stream of streams) addStream(totals, stream);
  return totals;
}

/** Counts a stream whose object is gone from the bucket. */
export function addGone(totals: StreamTotals, object: string): void {
  totals.gone = {object: totals.gone?.object ?? object, count: (totals.gone?.count ?? 0) + 1};
}

export function goneText({object, count}: {object: string; count: number}): string {
  const others = count > 1 ? ` and ${count - 1} more are` : ' is';
  return `${object}${others} gone: verify cannot compare`;
}

/** True if streams of this run may be leased. */
export function isRunnable(run: Run): boolean {
  return run.status === 'active' && run.spec !== null;
}

/** True if the run may still need TPUs, now or after a `resume`. */
export function isOpen(run: Run): boolean {
  return run.status === 'active' || run.status === 'paused';
}

/** Samples after which the share of rejected samples of an open run says something. */
const FEW_SAMPLES = 100;

/** True if more than half of the samples so far were rejected. */
export function isMostlyRejected({total_samples_processed, rejected_samples, status}: Run): boolean {
  const samples = total_samples_processed + rejected_samples;
  const isEnough = samples >= FEW_SAMPLES || status === 'completed' || status === 'failed';
  return isEnough && rejected_samples > total_samples_processed;
}

/** Warning about the samples of a run, or about stream objects of a complete run that are gone. */
function warningOf(run: Run, gone: StreamTotals['gone']): string | null {
  if (gone) return goneText(gone);
  if (!isMostlyRejected(run)) return null;
  const {rejected_samples, total_samples_processed} = run;
  const samples = total_samples_processed + rejected_samples;
  return `${rejected_samples} of ${samples} samples were rejected: rejects.jsonl beside the shards says why`;
}

function isAllRejected({total_samples_processed, rejected_samples}: Run): boolean {
  return total_samples_processed === 0 && rejected_samples > 0;
}

/** The command that starts another run with the spec and the streams of this one. */
export function againCommand(run: string): string {
  return `gleaner run start ${nextRunName(run)} --from ${run}`;
}

/** Reason of a run whose samples were all rejected. */
function allRejectedText({run, rejected_samples}: Run): string {
  return `all ${rejected_samples} samples were rejected: rejects.jsonl beside the shards says why. The spec is frozen: \`${againCommand(run)}\` starts another run, with the options that change, such as --field`;
}

/** Costs of a run as a tick knows them, living incarnations included: time of TPUs, and their downloads. */
export type RunCosts = Pick<Run, 'cost_usd' | 'download_usd'>;

/** A slow tick may know less than a later tick: the cost never shrinks. */
export function withDownloads(run: Run, download_usd: number, now: number): Run {
  return download_usd > run.download_usd ? {...run, download_usd, updated_at: iso(now)} : run;
}

/**
 * Totals and status of a run from its streams. A run with a failed stream and no other work left has failed, and its reason names the
 * first failed stream. A run whose samples were all rejected has failed too. A finished run becomes active again when a further stream is uploaded. A stop stays. A pause stays until all
 * streams are complete: a revived stream still waits for `resume`.
 *
 * - `known_usd`: cost of the run as a tick knows it, living incarnations included.
 * - `ending`: keeps a run open whose streams have all ended, and becomes its reason.
 * - `waits`: why the run waits. An active run that does not move has this reason.
 */
export function summarizeRun(
  run: Run,
  {failed, gone, ...totals}: StreamTotals,
  known_usd: number,
  now: number,
  {ending, waits}: {ending?: string | undefined; waits?: Constraint | undefined} = {},
): Run {
  // A slow tick may know less than a later tick: the cost never shrinks.
  const cost_usd = Math.max(run.cost_usd, run.spent_usd, known_usd);
  const next: Run = {...run, ...exact(totals), cost_usd};
  const ended = next.streams_completed + next.streams_failed;
  const isEmpty = ended + next.streams_pending + next.streams_in_progress === 0;
  if (run.status !== 'cancelled' && run.spec !== null && !isEmpty) {
    const unfinished = next.streams_pending + next.streams_in_progress;
    if (unfinished > 0 || ending) next.status = run.status === 'paused' ? 'paused' : 'active';
    else if (!failed) next.status = isAllRejected(next) ? 'failed' : 'completed';
    else if (run.status !== 'paused') next.status = 'failed';
    if (next.status !== 'paused') next.model_next_at = null;
    const isHeld = next.status === 'paused' && run.status === 'paused';
    next.waits = next.status === 'active' ? goesOn(run.waits, waits, now) : null;
    const wait = next.waits && waitText(next.waits);
    if (next.waits && !isMoving(next.waits)) next.reason = wait;
    else if (failed && !(isHeld && run.reason))
      next.reason = `stream ${failed.stream}: ${failed.last_error ?? 'failed'}`;
    else if (next.status === 'failed') next.reason = allRejectedText(next);
    else if (!isHeld) next.reason = wait ?? ((unfinished === 0 && ending) || warningOf(next, gone));
  }
  const changed = (Object.keys(next) as (keyof Run)[]).some(field => next[field] !== run[field]);
  return changed ? {...next, updated_at: iso(now)} : run;
}

/** Instant from which the bucket may have deleted shards of the run; null for a run that keeps them. */
export function expiresFrom({
  created_at,
  expire_days,
}: Pick<Run, 'created_at' | 'expire_days'>): string | null {
  return expire_days === null ? null : iso(msOf(created_at) + expire_days * 86_400_000);
}

/** Bounds each sum by the largest exact number: the run's document must stay valid, whatever its shards claim. */
export function exact<T extends {[field: string]: number}>(totals: T): T {
  const bounded = Object.entries(totals).map(([field, sum]) => [
    field,
    Math.min(sum, Number.MAX_SAFE_INTEGER),
  ]);
  return Object.fromEntries(bounded) as T;
}
