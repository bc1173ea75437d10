/** Cost of the deployment in each UTC month. A month is named as in `2026-11`. */

import {z} from 'zod';
import {dollars, orNull, stored, text} from '../fields.ts';
import {iso, msOf} from '../time.ts';
import type {Worker} from '../worker/worker.ts';
import {budgetMark} from './budget-marks.ts';
import {accrue, totalOf} from './cost.ts';

export type Months = Record<string, number>;

export const spendingDocument = stored({
  months: z
    .record(text, dollars)
    .describe('Dollars of ended incarnations and of network by UTC month, such as `{"2026-11": 12.5}`.'),
  budget_mark: orNull(budgetMark).describe(
    'The notified mark of the ceiling of a month: `of`, `budget_usd`, `spent_usd`, `percent`. Null before half of it is spent, and without notifications.',
  ),
});
export type Spending = z.infer<typeof spendingDocument>;

export const NO_SPENDING: Spending = {months: {}, budget_mark: null};

export const monthOf = (now: number) => iso(now).slice(0, 7);

/** Cost of a life up to `costs_at`, by month: every hour of the life costs the same. */
export function costByMonth({costs, ready_at, costs_at}: Worker): Months {
  const total = totalOf(costs);
  if (total === 0 || ready_at === null) return {};
  const [begin, end] = [msOf(ready_at), msOf(costs_at ?? ready_at)];
  // Downloads have a cost before the time has one.
  if (begin === end) return {[monthOf(begin)]: total};
  const months: Months = {};
  for (let from = begin; from < end; ) {
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

/** Cost of these lives in the month by now, without the lives that have ended. */
export function livingInMonth(month: string, workers: Iterable<Worker>, now: number): number {
  const living = [...workers].filter(({phase}) => phase !== 'gone').map(worker => accrue(worker, now));
  return addLives({}, living)[month] ?? 0;
}

export function addLives(months: Months, workers: Iterable<Worker>): Months {
  const sums = {...months};
  for (const worker of workers)
    for (const [month, usd] of Object.entries(costByMonth(worker))) sums[month] = (sums[month] ?? 0) + usd;
  return sums;
}
