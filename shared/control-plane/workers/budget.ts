/** What TPUs have cost, whose it is, and what happens when a budget is spent. */
import {z} from 'zod';
import {parseValue} from '../../contracts/schemas.ts';
import {
  costOfLeaving,
  costOfLiving,
  overspent,
  type Purse,
  pausedForMoney,
  purseOf,
  runAtWork,
  toLeave,
  totalOf,
} from '../../domain/billing/cost.ts';
import {addLives, livingInMonth, type Months, monthOf} from '../../domain/billing/monthly-spending.ts';
import {GENERATIONS, isPriceKey, overList, type Prices, usdPerHour} from '../../domain/billing/prices.ts';
import type {Pool} from '../../domain/fleet/pool.ts';
import {parseWorkerName, paths} from '../../domain/names.ts';
import {isOpen, isRunnable, type Run} from '../../domain/run/run.ts';
import {iso} from '../../domain/time.ts';
import type {Worker} from '../../domain/worker/worker.ts';
import type {Transaction} from '../../ports.ts';
import {openRuns} from '../runs/open-runs.ts';
import type {Deps} from '../state/deps.ts';
import {runRecords, spendingRecords, unlessBroken} from '../state/documents.ts';
import {tell} from '../state/event-log.ts';
import type {Failures} from '../state/failures.ts';
import {type Attempt, attemptRecords} from '../state/history-documents.ts';

const price = z.object({usd: z.number().min(0), spot_usd: z.number().min(0)});

/**
 * The workers; and the open runs, and what the pool has spent, as they were just before: of a life that ends in between, the bill does
 * not count beside what it has cost while it lived.
 */
export type Accounts = {
  workers: ReadonlyMap<string, Worker>;
  runs: readonly Run[];
  spent_usd: number;
  month: Month;
};

/** What lives that ended have cost the deployment in this UTC month; undefined where the document cannot be read. */
type Month = {name: string; spent_usd: number | undefined};

/** Nobody asks without a ceiling. */
export async function spentThisMonth(deps: Deps): Promise<Month> {
  const name = monthOf(deps.now());
  if (deps.config.ceilings.max_budget_usd === null) return {name, spent_usd: 0};
  const found = await unlessBroken(deps, () => spendingRecords.get(deps.store));
  return {name, spent_usd: found && (found.months[name] ?? 0)};
}

/**
 * The list prices, and over them what `prices/chips` says, entry by entry. Of one that is broken nobody knows the price: the list's is
 * what somebody wanted to change.
 */
export async function readPrices(
  deps: Pick<Deps, 'store' | 'log'>,
  {accelerator}: Pick<Pool, 'accelerator'>,
): Promise<Prices> {
  const given: Prices = {};
  for (const [key, value] of Object.entries((await deps.store.get(paths.prices())) ?? {})) {
    if (!isPriceKey(key, accelerator)) {
      const known = `a generation (${GENERATIONS.join(', ')}; v5e is v5litepod), a type such as v6e-8`;
      deps.log(
        'ERROR',
        `${paths.prices()} has "${key}", which has no price: write ${known}, or one with @REGION`,
      );
      continue;
    }
    const parsed = await unlessBroken(deps, async () => parseValue(price, value, `${paths.prices()} ${key}`));
    if (!parsed)
      deps.log(
        'ERROR',
        `Nobody knows the price of ${key}: write {"usd": 2.7, "spot_usd": 1.35}, for an hour`,
      );
    given[key] = parsed ?? null;
  }
  return overList(given);
}

export function priceOf(prices: Prices, {accelerator, spot}: Pool, zone: string): number | null {
  return usdPerHour(prices, {accelerator, spot, zone});
}

/**
 * Pauses every run whose budget, or whose pool's, is spent but for what it costs to let the TPUs go. Answers the workers that are
 * there for such a run, which go at once, because a shard that is finished costs as much as one that is not; the dollars that are left
 * of the tightest of the pool's and the month's budget; a purse of what the others may have made, but for what is kept for other nodes;
 * and the runs whose orders are to be kept when all that is decided, again at every look, for it may have failed before.
 */
export async function holdTheSpent(
  deps: Deps,
  pool: Pool,
  prices: Prices,
  {workers, runs, spent_usd, month}: Accounts,
  failures: Failures,
): Promise<{
  dismissed: Set<string>;
  left_usd: number;
  newPurse: (kept_usd: number) => Purse;
  held: string[];
}> {
  const living = costOfLiving(workers.values(), deps.now());
  const leaving = costOfLeaving(workers.values());
  const found = pool.zones.map(zone => priceOf(prices, pool, zone));
  const isKnown = !found.includes(null);
  // Who has no TPU needs the money for one: it would only come and go.
  const one = toLeave(Math.max(...found.map(price => price ?? 0)));
  const left = {runs: new Map<string, number>(), pool: Number.POSITIVE_INFINITY};
  const ofPool = {spent_usd: spent_usd + living.total, leaving_usd: leaving.total || one};
  const poolIsOver = overspent('pool', pool.budget_usd, ofPool, isKnown);
  if (pool.budget_usd !== null) left.pool = pool.budget_usd - ofPool.spent_usd - leaving.total;
  const {max_budget_usd} = deps.config.ceilings;
  const ofMonth = {
    spent_usd: (month.spent_usd ?? 0) + livingInMonth(month.name, workers.values(), deps.now()),
    leaving_usd: ofPool.leaving_usd,
  };
  const monthIsOver =
    month.spent_usd === undefined
      ? `${paths.spending()} cannot be read: mend it`
      : overspent('month', max_budget_usd, ofMonth, isKnown);
  if (max_budget_usd !== null)
    left.pool = Math.min(left.pool, max_budget_usd - ofMonth.spent_usd - leaving.total);
  const allIsOver = poolIsOver ?? monthIsOver;
  const billed = new Map(runs.map(run => [run.run, run.spent_usd]));
  const over = new Set<string>();
  const held: string[] = [];
  for (const run of await runsThatCost(deps, workers, failures)) {
    if (run.pool !== pool.pool) continue;
    const spent = (billed.get(run.run) ?? run.spent_usd) + (living.runs.get(run.run) ?? 0);
    const kept = leaving.runs.get(run.run) ?? 0;
    left.runs.set(run.run, (run.budget_usd ?? Number.POSITIVE_INFINITY) - spent - kept);
    const ofRun = {spent_usd: spent, leaving_usd: kept || one};
    const why = overspent('run', run.budget_usd, ofRun, isKnown) ?? allIsOver;
    if (!why) continue;
    over.add(run.run);
    if (isRunnable(run)) await failures.isolate(`pause run ${run.run}`, () => pause(deps, run, why));
    if (isOpen(run)) held.push(run.run);
  }
  // One without work is another run's, or nobody's and goes.
  const isAtWork = (worker: Worker) => over.has(runAtWork(worker) ?? '');
  const named = [...workers.values()].filter(worker => allIsOver || isAtWork(worker));
  const priceIn = (slot: string) => priceOf(prices, pool, parseWorkerName(slot)?.zone ?? '');
  return {
    dismissed: new Set(named.map(worker => worker.name)),
    left_usd: left.pool,
    newPurse: kept_usd => purseOf({...left, pool: left.pool - kept_usd}, workers, priceIn),
    held,
  };
}

/** The open runs, and those that have ended and whose last workers are not done with them. */
async function runsThatCost(
  deps: Deps,
  workers: ReadonlyMap<string, Worker>,
  failures: Failures,
): Promise<Run[]> {
  const open = await openRuns(deps);
  const named = new Set([...workers.values()].flatMap(worker => runAtWork(worker) ?? []));
  for (const {run} of open) named.delete(run);
  const ended = await Promise.all(
    [...named].map(run => failures.isolate(`read run ${run}`, () => runRecords.get(deps.store, run))),
  );
  return [...open, ...ended.filter(run => run !== undefined)];
}

async function pause(deps: Deps, seen: Run, why: string): Promise<void> {
  await deps.store.transaction(async tx => {
    const run = await runRecords.get(tx, seen.run);
    // Whoever configured it meanwhile is asked again at the next look.
    if (!run || !isRunnable(run) || run.version !== seen.version) return;
    const now = deps.now();
    const paused = pausedForMoney(run, why, now);
    runRecords.set(tx, paused);
    tell(tx, {kind: 'run', run: run.run, text: `Run ${run.run} is paused: ${paused.reason}`}, now);
  });
}

/** Incarnations that are over, and the documents of their attempts. */
export type Bill = {worker: Worker; path: string; attempt: Attempt | undefined}[];

export async function readBill(deps: Deps, tx: Transaction, over: readonly Worker[]): Promise<Bill> {
  return Promise.all(
    over.map(async worker => {
      const path = paths.attempt(worker.name, worker.incarnation);
      return {worker, path, attempt: await unlessBroken(deps, () => attemptRecords.get(tx, path))};
    }),
  );
}

type Payers = {
  runs: ReadonlyMap<string, Run>;
  pool: Pool | undefined;
  spending: {months: Months} | undefined;
  bill: Bill;
};

/**
 * Adds the cost of incarnations that are over to their runs, their pool, their months and their attempts. Called in the transaction
 * that ends them, so that each is counted once.
 */
export function addBill<P extends Payers>(tx: Transaction, payers: P, now: number): P {
  const {bill, pool, spending} = payers;
  if (bill.length === 0) return payers;
  const sum = (of: (worker: Worker) => number) => bill.reduce((total, {worker}) => total + of(worker), 0);
  const runs = new Map(payers.runs);
  for (const [name, run] of runs) {
    const usd = sum(({costs}) => costs[name] ?? 0);
    if (usd === 0) continue;
    const spent_usd = run.spent_usd + usd;
    // A run that has ended is summed up by no later tick.
    runs.set(name, {...run, spent_usd, cost_usd: Math.max(run.cost_usd, spent_usd), updated_at: iso(now)});
  }
  for (const {worker, path, attempt} of bill)
    if (attempt) attemptRecords.set(tx, path, billed(attempt, worker, now));
  const total = sum(({costs}) => totalOf(costs));
  if (total === 0) return {...payers, runs};
  const workers = bill.map(({worker}) => worker);
  return {
    ...payers,
    runs,
    ...(pool ? {pool: {...pool, spent_usd: pool.spent_usd + total}} : {}),
    ...(spending ? {spending: {...spending, months: addLives(spending.months, workers)}} : {}),
  };
}

/** The attempt with what its life has cost. One that ended before, and whose node was seen again, has cost that too. */
function billed(attempt: Attempt, {costs, ready_at}: Worker, now: number): Attempt {
  const gone = {gone_at: iso(now)};
  if (attempt.gone_at === undefined) return {...attempt, ready_at, costs, cost_usd: totalOf(costs), ...gone};
  if (ready_at === null) return attempt;
  const all = {...attempt.costs};
  for (const [run, usd] of Object.entries(costs)) all[run] = (all[run] ?? 0) + usd;
  const first = {ready_at: attempt.ready_at ?? ready_at, seen_again_at: ready_at};
  return {...attempt, ...first, costs: all, cost_usd: totalOf(all), ...gone};
}
