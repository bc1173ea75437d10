/** Bills of ended incarnations: their costs go to runs, pool, months and attempts. */
import {totalOf} from '../../domain/billing/cost.ts';
import {addLives, type Months} from '../../domain/billing/monthly-spending.ts';
import type {Pool} from '../../domain/fleet/pool.ts';
import {paths} from '../../domain/names.ts';
import type {Run} from '../../domain/run/run.ts';
import {iso} from '../../domain/time.ts';
import type {Worker} from '../../domain/worker/worker.ts';
import type {Transaction} from '../../ports.ts';
import {skipIfInvalid} from '../documents/documents.ts';
import {type Attempt, attemptRecords} from '../documents/history-documents.ts';
import type {Log} from '../log.ts';

/** Ended incarnations, and the documents of their attempts. */
export type Bill = {worker: Worker; path: string; attempt: Attempt | undefined}[];

export async function readBill(log: Log, tx: Transaction, over: readonly Worker[]): Promise<Bill> {
  return Promise.all(
    over.map(async worker => {
      const path = paths.attempt(worker.name, worker.incarnation);
      return {worker, path, attempt: await skipIfInvalid(log, () => attemptRecords.get(tx, path))};
    }),
  );
}

export type Payers = {
  runs: ReadonlyMap<string, Run>;
  pool: Pool | undefined;
  spending: {months: Months} | undefined;
  bill: Bill;
};

/**
 * Adds the cost of ended incarnations to their runs, their pool, their months and their attempts. Runs in the transaction that ends the
 * incarnations, so each incarnation counts once.
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
    // No later tick sums up an ended run.
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

/** The attempt with the cost of its incarnation. If the node of a billed attempt was seen again, the costs add up. */
function billed(attempt: Attempt, {costs, ready_at}: Worker, now: number): Attempt {
  const gone = {gone_at: iso(now)};
  if (attempt.gone_at === undefined) return {...attempt, ready_at, costs, cost_usd: totalOf(costs), ...gone};
  if (ready_at === null) return attempt;
  const all = {...attempt.costs};
  for (const [run, usd] of Object.entries(costs)) all[run] = (all[run] ?? 0) + usd;
  const first = {ready_at: attempt.ready_at ?? ready_at, seen_again_at: ready_at};
  return {...attempt, ...first, costs: all, cost_usd: totalOf(all), ...gone};
}
