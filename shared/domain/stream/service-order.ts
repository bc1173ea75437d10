/** The order in which runs serve a worker that requests work. */
import {budgetProblem} from '../billing/budget.ts';
import type {Run} from '../records/run.ts';
import type {Worker} from '../records/worker.ts';
import {spreadOver} from './spread.ts';

/** Spec and model in the worker's memory. Runs of the same spec reuse everything, runs of the same model the weights. */
export type Loaded = {model: string; spec_hash: string} | null;

/** How much the worker has to load for the run: 0 is nothing, 1 all except the weights, 2 everything. */
function loadingOf({spec, spec_hash}: Pick<Run, 'spec' | 'spec_hash'>, loaded: Loaded): number {
  if (spec_hash === loaded?.spec_hash) return 0;
  return String(spec?.model ?? '') === loaded?.model ? 1 : 2;
}

/** Best first: higher priority, least loading, older run. People set the priority, so it comes before what the worker has loaded. */
export function byPreference(loaded: Loaded): (a: Run, b: Run) => number {
  return (a, b) =>
    b.priority - a.priority ||
    loadingOf(a, loaded) - loadingOf(b, loaded) ||
    a.created_at.localeCompare(b.created_at) ||
    a.run.localeCompare(b.run);
}

/** True if the run had no pending stream at the last tick, so a search of it would probably find none. */
export function isServedOut({affinity, streams_pending, streams_in_progress}: Run): boolean {
  return affinity === 'any' && streams_pending === 0 && streams_in_progress > 0;
}

/**
 * The runs that may serve the worker, in order. Among runs of equal rank the oldest comes first, and each asker has its own order for the
 * others. Runs without pending streams come last.
 */
export function inServiceOrder(runs: readonly Run[], worker: Worker, loaded: Loaded, asker: string): Run[] {
  const served = runs
    .filter(run => !budgetProblem(run, worker.usd_per_hour))
    .sort(byPreference(loaded))
    .sort((one, other) => Number(isServedOut(one)) - Number(isServedOut(other)));
  const rankOf = (run: Run) => [isServedOut(run), run.priority, loadingOf(run, loaded), run.affinity].join();
  const groups = [...Map.groupBy(served, rankOf).values()];
  return groups.flatMap(([oldest, ...others]) => (oldest ? [oldest, ...spreadOver(others, asker)] : []));
}
