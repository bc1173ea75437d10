import type {Constraint} from '../../domain/records/constraint.ts';
import {isOpen, type Run, type StreamTotals} from '../../domain/records/run.ts';
import {markAfterCount} from '../../domain/run/marks.ts';
import {
  exact,
  isMostlyRejected,
  type RunCosts,
  SUMMED,
  summarizeRun,
  withDownloads,
} from '../../domain/run/summarize.ts';
import type {StreamCounts} from '../../domain/tick/snapshot.ts';
import {iso} from '../../domain/time.ts';
import type {Deps} from '../deps.ts';
import {runRecords} from '../documents/documents.ts';
import {recordEvent} from '../documents/event-log.ts';
import {reopenRun} from '../documents/runs.ts';
import {readNetworkBill, trafficOf} from './bill-network.ts';
import {countTotals, storedTotals} from './count-streams.ts';

/** Prefix of the reason of an open run whose streams have all ended. */
export const FINISHING = 'writing its result';

/**
 * Stores the totals of a run. If its streams have all ended, the run ends too, unless `ending` says what it waits for and becomes its reason.
 * `waits`: why it waits. `counts`: the count of the totals, which may clear the dirty flag. Returns true if the run has ended.
 */
export async function storeRunTotals(
  deps: Deps,
  seen: Run,
  totals: StreamTotals,
  costs: RunCosts,
  {
    counts,
    ...state
  }: {ending?: string | undefined; waits?: Constraint | undefined; counts?: StreamCounts} = {},
): Promise<boolean> {
  const {run} = seen;
  const {store, log, now, openRuns} = deps;
  const traffic = await trafficOf(store, seen);
  const last = openRuns.counts.get(run);
  const {hasEnded, count} = await store.transaction(async tx => {
    const current = await runRecords.get(tx, run);
    // Another tick may have ended the run since; counts of a slow tick never reopen it.
    if (!current || (isOpen(seen) && !isOpen(current))) return {hasEnded: false};
    const at = now();
    const bill = await readNetworkBill(deps, tx, current, traffic, at);
    const known = withDownloads(bill.run, costs.download_usd, at);
    const isCounted = !counts || (counts.counted_ms !== null && !mayBeNewer(current, seen));
    const present = isCounted
      ? withGrants(totals, seen, current)
      : {...storedTotals(current), failed: totals.failed};
    const summed = summarizeRun(known, present, costs.cost_usd, at, state);
    const changed_at = counts ? markAfter(current, counts) : current.changed_at;
    const next = summed.changed_at === changed_at ? summed : {...summed, changed_at, updated_at: iso(at)};
    const isLast = last?.updated_at === current.updated_at;
    const counted_ms = isCounted ? counts?.counted_ms : isLast ? last.counted_ms : undefined;
    const count = counted_ms == null ? undefined : {counted_ms, updated_at: next.updated_at};
    if (next === current) return {hasEnded: false, count};
    bill.write();
    runRecords.set(tx, next);
    const text = `Run ${run} is ${next.status}${next.reason ? `: ${next.reason}` : ''}`;
    if (next.status !== current.status) recordEvent(tx, {kind: 'run', run, text}, at);
    if (next.status === 'failed' && current.status !== 'failed')
      log('ERROR', text, {run, signal: 'run-failed'});
    else if (isMostlyRejected(next) && !isMostlyRejected(current))
      log('WARNING', `Run ${run}: ${next.reason}`, {run, signal: 'samples-rejected'});
    return {hasEnded: !isOpen(next), count};
  });
  if (count) openRuns.counts.set(run, count);
  return hasEnded;
}

/** True if another tick may have stored a newer count: the run has changed since, and has no dirty flag. */
function mayBeNewer(current: Run, seen: Run): boolean {
  return isOpen(current) && current.changed_at === null && current.updated_at !== seen.updated_at;
}

/** Streams that no node can serve keep the flag set: each tick counts them again, because another release may understand their documents. */
function markAfter(current: Run, {counted_ms, unfinished, totals}: StreamCounts): string | null {
  const isWhole = unfinished === totals.streams_pending + totals.streams_in_progress;
  if (counted_ms === null) return current.changed_at;
  if (!isWhole) return current.changed_at ?? current.updated_at;
  return markAfterCount(current, counted_ms);
}

/** The counts of a run with a budget, plus the grants since the tick read the run, which the counts may lack. */
function withGrants(totals: StreamTotals, seen: Run, current: Run): StreamTotals {
  const grants = Math.min(current.streams_in_progress - seen.streams_in_progress, totals.streams_pending);
  if (current.budget_usd === null || grants <= 0) return totals;
  const {streams_in_progress, streams_pending} = totals;
  return {
    ...totals,
    streams_in_progress: streams_in_progress + grants,
    streams_pending: streams_pending - grants,
  };
}

/**
 * Writes the totals of an ended run. After a rebuild (`isRebuilt`) there may be fewer shards; otherwise fewer shards come from an older count
 * and are ignored. A completed or failed run that a rebuild changed is reopened, and ends again with its new result. A stopped run, and a run
 * whose every stream fails, may have unfinished streams, which its totals include.
 */
export async function updateTotals(deps: Deps, run: string, isRebuilt = false): Promise<void> {
  const {store, now} = deps;
  const seen = await runRecords.get(store, run);
  if (!seen || isOpen(seen)) return;
  // The documents of the streams were deleted, so the stored totals are final.
  if (seen.expired_at !== null) return;
  const {failed: _, gone: __, ...counted} = (await countTotals(store, run)).totals;
  const totals = exact(counted);
  const all = Object.keys(totals) as (keyof typeof totals)[];
  const traffic = await trafficOf(store, seen);
  await store.transaction(async tx => {
    const current = await runRecords.get(tx, run);
    if (!current || isOpen(current)) return;
    const bill = await readNetworkBill(deps, tx, current, traffic, now());
    const hasUnfinished = current.status === 'stopped' || current.certain_failure !== null;
    const fields = isRebuilt || hasUnfinished ? all : SUMMED;
    const isSame = bill.run === current && fields.every(field => current[field] === totals[field]);
    if (isSame || (!isRebuilt && totals.total_shards < current.total_shards)) return;
    if (isRebuilt && reopenRun(tx, current, 'its streams were rebuilt', now())) return;
    const changed = Object.fromEntries(fields.map(field => [field, totals[field]]));
    bill.write();
    runRecords.set(tx, {...bill.run, ...changed, updated_at: iso(now())});
  });
}
