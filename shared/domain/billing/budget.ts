import type {Pool} from '../records/pool.ts';
import type {Run} from '../records/run.ts';
import type {Worker} from '../records/worker.ts';
import {msOf} from '../time.ts';
import {costOfDeleting, repricedAt} from './cost.ts';
import {capped} from './network.ts';
import {type Prices, sinceOf, usdPerHour} from './prices.ts';

/** Start of the reason of a run that a budget paused. */
export const BY_BUDGET = 'its budget allows no more: ';
export const BUDGET_ALLOWS = 'a budget paused this run, and its budgets allow more now: resume it';

export function isPausedByBudget({status, reason}: Pick<Run, 'status' | 'reason'>): boolean {
  return status === 'paused' && (reason === BUDGET_ALLOWS || (reason?.startsWith(BY_BUDGET) ?? false));
}

export function priceOf(prices: Prices, {accelerator, spot}: Pool, zone: string): number | null {
  return usdPerHour(prices, {accelerator, spot, zone});
}

/** Type and kind of a node of the pool, which its price depends on: `v6e-8 on spot`. */
export function pricedAs({accelerator, spot}: Pick<Pool, 'accelerator' | 'spot'>): string {
  return `${accelerator} ${spot ? 'on spot' : 'on demand'}`;
}

/** The worker at the current price. If the pool has changed its type since, the node keeps its price. */
export function atPrice(worker: Worker, prices: Prices, pool: Pool, now: number): Worker {
  if (worker.priced_as !== pricedAs(pool)) return worker;
  const usd_per_hour = priceOf(prices, pool, worker.zone);
  if (usd_per_hour === null) return worker;
  const since_at = sinceOf(prices, pool.accelerator, worker.zone);
  return repricedAt(worker, usd_per_hour, since_at === undefined ? now : msOf(since_at), now);
}

/** The run after a grant: from now on its budget has to pay for the worker. The next tick replaces both numbers by exact counts. */
export function withGrant(run: Run): Run {
  const streams_pending = Math.max(0, run.streams_pending - 1);
  return {...run, streams_in_progress: run.streams_in_progress + 1, streams_pending};
}

/**
 * True if the budget of the run may not pay for every worker of the deployment, so that each grant has to count. The run's count of pending
 * streams proves nothing here: it is only as new as the last tick.
 */
export function isScarce(run: Run, usd_per_hour: number | null, max_workers: number): boolean {
  const streams_in_progress = Math.max(run.streams_in_progress, max_workers);
  return budgetProblem({...run, streams_in_progress}, usd_per_hour) !== undefined;
}

/**
 * Why the run's budget does not pay for one more worker at this price; undefined if it does. `isHolder`: the worker holds a stream of the run
 * and is counted already. `cost_usd` is from the last tick; `streams_in_progress` has each grant since then.
 */
export function budgetProblem(
  run: Pick<Run, 'run' | 'budget_usd' | 'cost_usd' | 'network_usd' | 'download_usd' | 'streams_in_progress'>,
  usd_per_hour: number | null,
  isHolder = false,
): string | undefined {
  if (run.budget_usd === null) return undefined;
  if (usd_per_hour === null) return 'the price of the worker is unknown; set prices/chips';
  const kept_usd = costOfDeleting(usd_per_hour) * (run.streams_in_progress + (isHolder ? 0 : 1));
  const spent_usd = capped(run);
  if (spent_usd + kept_usd < run.budget_usd) return undefined;
  return `run "${run.run}" has cost $${spent_usd.toFixed(2)} of $${run.budget_usd.toFixed(2)}, which does not pay for another worker`;
}
