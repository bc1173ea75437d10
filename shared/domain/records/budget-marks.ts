/** Marks of a budget: half spent, and nearly spent. */
import {z} from 'zod';
import {dollars, stored, text} from '../fields.ts';

/** Percentages of a budget at which people are notified, the greatest first. */
const PERCENTS = [90, 50] as const;

/** `of`: the pool or the month of the budget. The mark belongs to this budget only. */
export const budgetMark = stored({
  of: text,
  budget_usd: dollars,
  spent_usd: dollars,
  percent: z.number().int(),
});
export type BudgetMark = z.infer<typeof budgetMark>;

export function reachedPercent(budget_usd: number | null, spent_usd: number): number {
  if (budget_usd === null) return 0;
  return PERCENTS.find(percent => spent_usd * 100 >= percent * budget_usd) ?? 0;
}

/** Returns the same mark if nothing changes. A mark keeps the spending of the time when it was reached. */
export function withSpending(
  mark: BudgetMark | null,
  now_is: {of: string; budget_usd: number | null; spent_usd: number},
): BudgetMark | null {
  const {of, budget_usd, spent_usd} = now_is;
  const percent = reachedPercent(budget_usd, spent_usd);
  const isSame = mark !== null && mark.of === of && mark.budget_usd === budget_usd;
  if (budget_usd === null || percent === 0) return isSame ? mark : null;
  return isSame && mark.percent >= percent ? mark : {of, budget_usd, spent_usd, percent};
}
