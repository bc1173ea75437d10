import {atPrice, BUDGET_ALLOWS, BY_BUDGET, isPausedByBudget, priceOf} from '../billing/budget.ts';
import type {Ceilings} from '../billing/ceilings.ts';
import {
  budgetReserver,
  costOfDeleting,
  costOfDeletingAll,
  costOfLiving,
  downloadsOf,
  JOBS,
  KEPT,
  leastBudget,
  overspent,
  type ReserveBudget,
  runAtWork,
} from '../billing/cost.ts';
import {livingInMonth} from '../billing/monthly-spending.ts';
import {type BucketRegion, crossRegionProblem} from '../billing/network.ts';
import {ageText, oldestDay} from '../billing/prices.ts';
import {parseWorkerName} from '../names.ts';
import {isRunnable} from '../records/run.ts';
import type {BudgetSnapshot} from './snapshot.ts';

/** A run to pause if its document still has this version. An operator fixes the cause and resumes the run. */
export type Pause = {run: string; version: number; reason: string; isForBudget: boolean};

export type Budgets = {
  pauses: Pause[];
  /** New reasons for runs that a budget paused earlier: its figures have changed, or it allows more now. */
  reasons: Pause[];
  /** The budget of the pool or of the month that is used up, and why. Jobs and kept TPUs have no other budget. */
  sharedLimit: {about: string; why: string} | undefined;
  /** Runs whose budget is used up, or that have no zone they may use, each with the reason; includes runs that were paused or ended before. */
  overBudget: ReadonlyMap<string, string>;
  leftOf: (run: string) => number;
  /** Workers to delete now instead of draining: finishing a shard would cost as much as computing it again. */
  dismissed: ReadonlySet<string>;
  /** Dollars left in the budget of the pool or of the month, whichever has less. */
  left_usd: number;
  /** Reserves money for the new nodes of this plan. `kept_usd` is set aside for other nodes. */
  newReserver: (kept_usd: number) => ReserveBudget;
};

/**
 * Every budget has to pay for the minutes that deleting TPUs takes. A run is over budget once only that money is left in its own budget, or
 * in that of its pool or month.
 */
export function decideBudgets(
  snapshot: BudgetSnapshot,
  ceilings: Ceilings,
  now: number,
  region: BucketRegion = null,
): Budgets {
  const {pool, prices, runs, ended} = snapshot;
  // A new price applies at once; this tick writes it to the documents of the workers.
  const workers = new Map(
    [...snapshot.workers].map(([name, worker]) => [
      name,
      prices ? atPrice(worker, prices, pool, now) : worker,
    ]),
  );
  const living = costOfLiving(workers.values(), now);
  const leaving = costOfDeletingAll(workers.values());
  const zonePrices = pool.zones.map(zone => priceOf(prices ?? {}, pool, zone));
  // Prices that could not be read prove nothing: then only known costs use up a budget.
  const isKnown = !prices || !zonePrices.includes(null);
  // A run without a TPU needs the money for one; with less, a node would be created only to be deleted.
  const most_usd_per_hour = Math.max(0, ...zonePrices.map(price => price ?? 0));
  const one = costOfDeleting(most_usd_per_hour);
  // A resume must pay for a short life of a TPU. Budgets that could not be read prove nothing.
  const isMonthKnown = snapshot.month !== undefined || ceilings.max_budget_usd === null;
  const least_usd = prices && isMonthKnown ? leastBudget(most_usd_per_hour) : Number.POSITIVE_INFINITY;
  const leaving_usd = leaving.total || one;
  const age = ageText(oldestDay(prices ?? {}, pool.accelerator, pool.zones), now);
  const whole = sharedBudget(
    {...snapshot, workers},
    ceilings,
    {living_usd: living.total, leaving_usd, isKnown},
    now,
  );
  const unlimited = [JOBS, KEPT].map(payer => [payer, Number.POSITIVE_INFINITY] as const);
  const left = {runs: new Map<string, number>(unlimited), pool: whole.left_usd - leaving.total};
  const pauses: Pause[] = [];
  const reasons: Pause[] = [];
  const over = new Map<string, string>();
  for (const run of [...runs, ...ended]) {
    if (run.pool !== pool.pool) continue;
    const ended_usd = run.spent_usd + run.spent_download_usd;
    const living_usd = (living.runs.get(run.run) ?? 0) + (living.runs.get(downloadsOf(run.run)) ?? 0);
    const spent_usd = ended_usd + run.network_usd + living_usd;
    const leaving_usd = leaving.runs.get(run.run) ?? 0;
    const left_usd = (run.budget_usd ?? Number.POSITIVE_INFINITY) - spent_usd - leaving_usd;
    left.runs.set(run.run, left_usd);
    const ofRun = {spent_usd, leaving_usd: leaving_usd || one};
    const spent = overspent('run', run.budget_usd, ofRun, isKnown) ?? whole.spent?.why;
    const remote = crossRegionProblem(run, pool.zones, region);
    const aged = age ? ` (at prices that are ${age})` : '';
    const reason = spent ? `${BY_BUDGET}${spent}${aged}, then resume` : remote && `${remote}; then resume`;
    const pause = {run: run.run, version: run.version, isForBudget: Boolean(spent)};
    const isEased = Math.min(left_usd, left.pool) > least_usd;
    const other = reason ?? (isEased ? BUDGET_ALLOWS : run.reason);
    if (isPausedByBudget(run) && other && other !== run.reason) reasons.push({...pause, reason: other});
    if (reason === undefined) continue;
    over.set(run.run, reason);
    if (isRunnable(run)) pauses.push({...pause, reason});
  }
  const dismissed = [...workers.values()].filter(worker => whole.spent || over.has(runAtWork(worker) ?? ''));
  const priceIn = (slot: string) => priceOf(prices ?? {}, pool, parseWorkerName(slot)?.zone ?? '');
  return {
    pauses,
    reasons,
    sharedLimit: whole.spent,
    overBudget: over,
    leftOf: run => left.runs.get(run) ?? 0,
    dismissed: new Set(dismissed.map(({name}) => name)),
    left_usd: left.pool,
    newReserver: kept_usd =>
      budgetReserver({...left, pool: left.pool - kept_usd}, workers, priceIn, whole.about),
  };
}

/** The budget that all runs share: the tighter one of pool and month, and why it allows no more. */
function sharedBudget(
  {pool, month, workers, others}: BudgetSnapshot,
  {max_budget_usd}: Ceilings,
  {living_usd, leaving_usd, isKnown}: {living_usd: number; leaving_usd: number; isKnown: boolean},
  now: number,
): {spent: Budgets['sharedLimit']; left_usd: number; about: string} {
  const of_pool = {spent_usd: pool.spent_usd + living_usd, leaving_usd};
  const leavingElsewhere_usd = costOfDeletingAll(others.workers).total;
  const of_month = {
    // Without a ceiling, the sum over all workers is not needed.
    spent_usd:
      max_budget_usd === null || !month
        ? 0
        : (month.spent_usd ?? month.copied_usd ?? 0) +
          livingInMonth(month, [...workers.values(), ...others.workers], now),
    leaving_usd: leaving_usd + leavingElsewhere_usd,
  };
  const ofPool = overspent('pool', pool.budget_usd, of_pool, isKnown);
  const why = ofPool ?? overspent('month', month ? max_budget_usd : null, of_month, isKnown);
  const left = (budget_usd: number | null, {spent_usd}: {spent_usd: number}) =>
    (budget_usd ?? Number.POSITIVE_INFINITY) - spent_usd;
  const left_of_pool = left(pool.budget_usd, of_pool);
  const left_of_month =
    left(month ? max_budget_usd : null, of_month) - leavingElsewhere_usd - others.reserved_usd;
  const ofBoth = (isPool: boolean) => (isPool ? `pool ${pool.pool}` : 'the month');
  return {
    spent: why === undefined ? undefined : {about: ofBoth(ofPool !== undefined), why},
    left_usd: Math.min(left_of_pool, left_of_month),
    about: ofBoth(left_of_pool <= left_of_month),
  };
}
