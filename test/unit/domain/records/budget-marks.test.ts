import assert from 'node:assert/strict';
import {type BudgetMark, withSpending} from '../../../../shared/domain/records/budget-marks.ts';

type Spent = {of?: string; budget_usd?: number | null; spent_usd: number};

/** The percents of the new marks while the dollars of a budget change as in `steps`. */
function marks(...steps: Spent[]): number[] {
  let mark: BudgetMark | null = null;
  return steps.flatMap(step => {
    const before = mark;
    mark = withSpending(mark, {of: '2026-01', budget_usd: 10, ...step});
    return mark === before || mark === null ? [] : [mark.percent];
  });
}

const spent = (...usd: number[]): Spent[] => usd.map(spent_usd => ({spent_usd}));

describe('the marks of a budget', () => {
  for (const {name, steps, then} of [
    {name: 'are half of it and nine tenths, each once', steps: spent(4.9, 5, 8.9, 9, 11), then: [50, 90]},
    {name: 'do not come again where the dollars are less for a while', steps: spent(9, 4, 9), then: [90]},
    {name: 'begin anew with a month', steps: [...spent(9), {of: '2026-02', spent_usd: 5}], then: [90, 50]},
    {
      name: 'begin anew with another budget',
      steps: [...spent(9), {budget_usd: 16, spent_usd: 9}],
      then: [90, 50],
    },
    {name: 'need a budget', steps: [{budget_usd: null, spent_usd: 9}], then: []},
  ])
    it(name, () => assert.deepEqual(marks(...steps), then));
});
