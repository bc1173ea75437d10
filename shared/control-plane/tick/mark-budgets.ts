/** Stores when half, and nearly all, of the budget of a pool or of the month is spent. */

import {costOfLiving} from '../../domain/billing/cost.ts';
import {livingInMonth} from '../../domain/billing/monthly-spending.ts';
import {type BudgetMark, withSpending} from '../../domain/records/budget-marks.ts';
import {budgetsByPool} from '../../domain/tick/pools.ts';
import type {BudgetSnapshot, DeploymentBudgets} from '../../domain/tick/snapshot.ts';
import type {Failures} from '../calls/failures.ts';
import type {Deps} from '../deps.ts';
import {poolRecords, spendingRecords} from '../documents/documents.ts';

/** A deployment without a receiver of notifications needs no mark. */
export async function markBudgets(deps: Deps, budgets: DeploymentBudgets, failures: Failures): Promise<void> {
  if (deps.config.notify === null) return;
  for (const part of budgetsByPool(budgets))
    await failures.isolate(`mark the budget of pool ${part.pool.pool}`, () => markPool(deps, part));
  await failures.isolate('mark the budget of the month', () => markMonth(deps, budgets));
}

async function markPool({store, config, now}: Deps, part: BudgetSnapshot): Promise<void> {
  const {pool, workers, isUnreadable} = part;
  if (isUnreadable || pool.zones.length === 0) return;
  const living_usd = costOfLiving(workers.values(), now()).total;
  const next = (mark: BudgetMark | null, budget_usd: number | null) =>
    withSpending(mark, {of: pool.pool, budget_usd, spent_usd: pool.spent_usd + living_usd});
  if (next(pool.budget_notice, pool.budget_usd) === pool.budget_notice) return;
  await store.transaction(async tx => {
    const current = await poolRecords.find(tx, pool.pool, config.pool);
    const budget_notice = current && next(current.budget_notice, current.budget_usd);
    if (current && budget_notice !== undefined && budget_notice !== current.budget_notice)
      poolRecords.set(tx, {...current, budget_notice});
  });
}

async function markMonth({store, config, now}: Deps, {month, workers}: DeploymentBudgets): Promise<void> {
  const {max_budget_usd} = config.ceilings;
  if (max_budget_usd === null || month?.spent_usd === undefined) return;
  const spent_usd = month.spent_usd + livingInMonth(month, workers.values(), now());
  const next = (mark: BudgetMark | null) =>
    withSpending(mark, {of: month.name, budget_usd: max_budget_usd, spent_usd});
  const known = (await spendingRecords.get(store)).budget_notice;
  if (next(known) === known) return;
  await store.transaction(async tx => {
    const current = await spendingRecords.get(tx);
    const budget_notice = next(current.budget_notice);
    if (budget_notice !== current.budget_notice) spendingRecords.set(tx, {...current, budget_notice});
  });
}
