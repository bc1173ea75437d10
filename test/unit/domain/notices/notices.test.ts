import assert from 'node:assert/strict';
import {NO_SPENDING} from '../../../../shared/domain/billing/monthly-spending.ts';
import {newsOfMonth, newsOfRun} from '../../../../shared/domain/notices/news.ts';
import {afterFailure, afterSent, NOTHING_SENT, newNotice} from '../../../../shared/domain/notices/notice.ts';
import type {BudgetMark} from '../../../../shared/domain/records/budget-marks.ts';
import {aRun, at, T0} from '../../../world/builders.ts';

describe('the news of a budget', () => {
  const MARK: BudgetMark = {of: '2026-01', budget_usd: 100, spent_usd: 90, percent: 90};
  const cases: {name: string; after: Partial<BudgetMark>; told: number}[] = [
    {name: 'a further change of the month has none', after: {spent_usd: 99}, told: 0},
    {name: 'half of the next month has news', after: {of: '2026-02', percent: 50}, told: 1},
    {name: 'half of a raised budget has news', after: {budget_usd: 180, percent: 50}, told: 1},
  ];
  for (const {name, after, told} of cases)
    it(name, () => {
      const before = {...NO_SPENDING, budget_notice: MARK};
      const news = newsOfMonth(before, {...NO_SPENDING, budget_notice: {...MARK, ...after}});
      assert.equal(news.length, told);
    });

  for (const [misses, count] of [
    [2, 1],
    [3, 0],
  ] as const)
    it(`a run that is paused after ${misses} tries without its model has ${count} news`, () => {
      const paused = aRun({status: 'paused', model_next_at: at(60), model_misses: misses});
      assert.equal(newsOfRun(aRun(), paused).length, count);
    });

  it('a budget of a run that is lowered to its cost has news', () => {
    const run = aRun({budget_usd: 1000, cost_usd: 95});
    const news = newsOfRun(run, {...run, budget_usd: 100});
    const keys = news.map(({key}) => key);
    assert.deepEqual(keys, ['run.budget my-run 90']);
  });
});

describe('a notification', () => {
  const NEWS = {type: 'run.failed', key: 'run.failed my-run', text: 'Run my-run', reason: null, facts: {}};
  const notice = newNotice({...NEWS, type: 'run.failed'}, T0, 1000);

  it('is tried for a day, later and later up to an hour, and the receiver keeps the time of its first failure', () => {
    let now = T0;
    let found = {notice, receiver: NOTHING_SENT};
    const waits_s: number[] = [];
    while (found.notice.next_at !== null) {
      found = afterFailure(found.notice, found.receiver, now, 'answered 503');
      const next = found.notice.next_at === null ? now : Date.parse(found.notice.next_at);
      waits_s.push((next - now) / 1000);
      now = next;
    }
    assert.deepEqual(waits_s.slice(0, 8), [60, 120, 240, 480, 960, 1920, 3600, 3600]);
    assert.ok(now - T0 > 86_400_000 && now - T0 < 26 * 3_600_000, `${now - T0}`);
    const {failures, failing_since_at} = found.receiver;
    assert.deepEqual([found.notice.outcome, failures, failing_since_at], ['failed', waits_s.length, at(0)]);
  });

  it('that arrives ends the failures of its receiver, which forgets what it got ten minutes ago', () => {
    const failing = afterFailure(notice, NOTHING_SENT, T0, 'answered 503');
    const recent = {old: at(0), other: at(1)};
    const sent = afterSent(failing.notice, {...failing.receiver, recent}, T0 + 600_000);
    assert.deepEqual([sent.notice.outcome, sent.notice.next_at, sent.notice.error], ['sent', null, null]);
    const {sent_at, failures, failing_since_at, error} = sent.receiver;
    assert.deepEqual([sent_at, failures, failing_since_at, error], [at(600), 0, null, null]);
    assert.deepEqual(sent.receiver.recent, {other: at(1), [notice.key]: at(600)});
  });
});
