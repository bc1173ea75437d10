import {isOpen, type Run, type StreamTotals, summarizeRun} from '../../domain/run/run.ts';
import {isOlderThan, iso} from '../../domain/time.ts';
import type {Deps} from '../deps.ts';
import {runRecords} from '../documents/documents.ts';
import {recordEvent} from '../documents/event-log.ts';

/** Prefix of the reason of an open run whose streams have all ended. */
export const FINISHING = 'writing its result';

/** Longest time between the time in a document and its commit. */
export const COMMIT_S = 60;

/**
 * Stores the totals of a run. A run whose streams have all ended ends too, unless `ending` says what it waits for: then `ending` is its
 * reason. Returns true if the run has ended.
 */
export async function storeRunTotals(
  {store, log, now}: Pick<Deps, 'store' | 'log' | 'now'>,
  seen: Run,
  totals: StreamTotals,
  cost_usd: number,
  ending?: string,
): Promise<boolean> {
  const {run} = seen;
  return store.transaction(async tx => {
    const current = await runRecords.get(tx, run);
    // Another tick may have ended the run since: counts of a slow tick never reopen it.
    if (!current || (isOpen(seen) && !isOpen(current))) return false;
    const at = now();
    const next = summarizeRun(current, withGrants(totals, seen, current), cost_usd, at, ending);
    if (next === current) {
      // The next tick finds no stream of a paused run that changed since, and counts none.
      const isRecount = current.status === 'paused' && isOlderThan(current.updated_at, COMMIT_S, at);
      if (isRecount) runRecords.set(tx, {...current, updated_at: iso(at)});
      return false;
    }
    runRecords.set(tx, next);
    const text = `Run ${run} is ${next.status}${next.reason ? `: ${next.reason}` : ''}`;
    if (next.status !== current.status) recordEvent(tx, {kind: 'run', run, text}, at);
    if (next.status === 'failed' && current.status !== 'failed')
      log('ERROR', text, {run, signal: 'run-failed'});
    return !isOpen(next);
  });
}

/** The counts of a run with a budget, and the grants since the tick read the run: the counts may lack them. */
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
