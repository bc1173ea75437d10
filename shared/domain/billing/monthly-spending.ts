/** Cost of the deployment in each UTC month. A month is named as in `2026-11`. */

import {z} from 'zod';
import {dollars, instant, orNull, stored, text} from '../fields.ts';
import {budgetMark} from '../records/budget-marks.ts';
import type {Worker} from '../records/worker.ts';
import {iso, msOf} from '../time.ts';
import {accrue, totalOf} from './cost.ts';

export type Months = Record<string, number>;

export const spendingDocument = stored({
  months: z
    .record(text, dollars)
    .describe('Dollars of ended incarnations and of network by UTC month, such as `{"2026-11": 12.5}`.'),
  copied_at: orNull(instant).describe(
    'Time of the copy with which the document began after a lost database, or after a backup: `months` has the cost of each life until then. Null: there was none.',
  ),
  budget_notice: orNull(budgetMark).describe(
    'The notified mark of the ceiling of a month: `of`, `budget_usd`, `spent_usd`, `percent`. Null before half of it is spent, and without notifications.',
  ),
});
export type Spending = z.infer<typeof spendingDocument>;

export const NO_SPENDING: Spending = {months: {}, copied_at: null, budget_notice: null};

export const monthOf = (now: number) => iso(now).slice(0, 7);

/** Cost by month of a worker's life from `copied_at` up to `costs_at`, spread evenly over its hours. */
export function costByMonth({costs, ready_at, costs_at}: Worker, copied_at: string | null): Months {
  const total = totalOf(costs);
  if (total === 0 || ready_at === null) return {};
  const [begin, end] = [msOf(ready_at), msOf(costs_at ?? ready_at)];
  // Downloads may cost something before the node is READY.
  if (begin === end) return {[monthOf(begin)]: total};
  const months: Months = {};
  for (let from = Math.max(begin, copied_at === null ? begin : msOf(copied_at)); from < end; ) {
    const to = Math.min(end, nextMonth(from));
    months[monthOf(from)] = (total * (to - from)) / (end - begin);
    from = to;
  }
  return months;
}

function nextMonth(ms: number): number {
  const [year = 0, month = 0] = monthOf(ms).split('-').map(Number);
  return msOf(
    `${month === 12 ? year + 1 : year}-${String((month % 12) + 1).padStart(2, '0')}-01T00:00:00.000Z`,
  );
}

/** Cost so far in this month of incarnations that are still alive. */
export function livingInMonth(
  {name, copied_at}: {name: string; copied_at: string | null},
  workers: Iterable<Worker>,
  now: number,
): number {
  const living = [...workers].filter(({phase}) => phase !== 'gone').map(worker => accrue(worker, now));
  return addLives({months: {}, copied_at}, living)[name] ?? 0;
}

export function addLives(
  {months, copied_at}: Pick<Spending, 'months' | 'copied_at'>,
  workers: Iterable<Worker>,
): Months {
  const sums = {...months};
  for (const worker of workers)
    for (const [month, usd] of Object.entries(costByMonth(worker, copied_at)))
      sums[month] = (sums[month] ?? 0) + usd;
  return sums;
}
