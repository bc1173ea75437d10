/** Totals, status and reason of a run from its streams. */

import {type Constraint, goesOn, isMoving, waitText} from '../records/constraint.ts';
import {withPoint} from '../records/history.ts';
import {againCommand, isOpen, NO_STREAMS, type Run, type StreamTotals} from '../records/run.ts';
import type {Stream} from '../records/stream.ts';
import {iso} from '../time.ts';

export type StreamFacts = Pick<
  Stream,
  'stream' | 'status' | 'last_error' | 'digest' | (typeof SUMMED)[number]
>;

export const SUMMED = [
  'total_samples_processed',
  'rejected_samples',
  'total_tokens',
  'total_shards',
  'total_bytes',
] as const;

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

export function addGone(totals: StreamTotals, object: string): void {
  totals.gone = {object: totals.gone?.object ?? object, count: (totals.gone?.count ?? 0) + 1};
}

export function goneText({object, count}: {object: string; count: number}): string {
  const others = count > 1 ? ` and ${count - 1} more are` : ' is';
  return `${object}${others} gone: verify cannot compare`;
}

/** Samples from which on the share of rejected samples of an open run is meaningful. */
const FEW_SAMPLES = 100;

export function isMostlyRejected({total_samples_processed, rejected_samples, status}: Run): boolean {
  const samples = total_samples_processed + rejected_samples;
  const isEnough = samples >= FEW_SAMPLES || status === 'completed' || status === 'failed';
  return isEnough && rejected_samples > total_samples_processed;
}

/** Warning about rejected samples of a run, or about missing stream objects of a completed run. */
function warningOf(run: Run, gone: StreamTotals['gone']): string | null {
  if (gone) return goneText(gone);
  if (!isMostlyRejected(run)) return null;
  const {rejected_samples, total_samples_processed} = run;
  const samples = total_samples_processed + rejected_samples;
  return `${rejected_samples} of ${samples} samples were rejected: rejects.jsonl beside the shards says why`;
}

function allRejectedText({run, rejected_samples}: Run): string {
  return `all ${rejected_samples} samples were rejected: rejects.jsonl beside the shards says why. The spec is frozen: \`${againCommand(run)}\` starts another run, with the options that change, such as --field`;
}

/** Costs of a run as a tick knows them, including living incarnations: time of TPUs, and their downloads. */
export type RunCosts = Pick<Run, 'cost_usd' | 'download_usd'>;

/** The cost never shrinks, because a slow tick may know less than a later one. */
export function withDownloads(run: Run, download_usd: number, now: number): Run {
  return download_usd > run.download_usd ? {...run, download_usd, updated_at: iso(now)} : run;
}

/**
 * Totals and status of a run from its streams. A run with a failed stream and no other work left has failed, and its reason names the first
 * failed stream. A run whose samples were all rejected has failed too. A finished run becomes active again when another stream is uploaded. A
 * stop is final. A pause lasts until all streams are complete: a revived stream still waits for `resume`.
 * - `known_usd`: cost of the run as a tick knows it, including living incarnations.
 * - `ending`: keeps the run open although its streams have all ended, and becomes its reason.
 * - `waits`: why the run waits; the reason of an active run that does not move.
 */
export function summarizeRun(
  run: Run,
  {failed, gone, ...totals}: StreamTotals,
  known_usd: number,
  now: number,
  {ending, waits}: {ending?: string | undefined; waits?: Constraint | undefined} = {},
): Run {
  // The cost never shrinks, because a slow tick may know less than a later one.
  const cost_usd = Math.max(run.cost_usd, run.spent_usd, known_usd);
  const next: Run = {...run, ...exact(totals), cost_usd};
  const ended = next.streams_completed + next.streams_failed;
  const isEmpty = ended + next.streams_pending + next.streams_in_progress === 0;
  if (run.status !== 'stopped' && run.spec !== null && !isEmpty) {
    const unfinished = next.streams_pending + next.streams_in_progress;
    const isAllRejected = next.total_samples_processed === 0 && next.rejected_samples > 0;
    if (unfinished > 0 || ending) next.status = run.status === 'paused' ? 'paused' : 'active';
    else if (!failed) next.status = isAllRejected ? 'failed' : 'completed';
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
  if (!changed) return run;
  const turns = next.status !== run.status;
  // Costs that arrive after the end do not belong to its curves.
  const history = isOpen(next) || turns ? withPoint(run.history, next, now, {turns}) : run.history;
  return {...next, history, updated_at: iso(now)};
}

/** Bounds each sum by the largest exact integer, so that the run's document stays valid whatever its shards claim. */
export function exact<T extends {[field: string]: number}>(totals: T): T {
  const bounded = Object.entries(totals).map(([field, sum]) => [
    field,
    Math.min(sum, Number.MAX_SAFE_INTEGER),
  ]);
  return Object.fromEntries(bounded) as T;
}
