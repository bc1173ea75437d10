/** Changes that people are notified of: the end or the pause of a run, a budget that is half or nearly spent, silent workers. */

import type {Spending} from '../billing/monthly-spending.ts';
import {capped} from '../billing/network.ts';
import {type BudgetMark, reachedPercent} from '../records/budget-marks.ts';
import type {Pool} from '../records/pool.ts';
import type {Run} from '../records/run.ts';
import type {Zone} from '../records/zone.ts';
import {isFurtherMiss} from '../run/model-failures.ts';
import type {News, NoticeType} from './notice.ts';

const TOLD: Partial<Record<Run['status'], NoticeType>> = {
  completed: 'run.completed',
  failed: 'run.failed',
  paused: 'run.paused',
};

/** A run that had no document yet has no earlier state; if it is paused, it still waits for a person. */
export function newsOfRun(before: Run | undefined, run: Run): News[] {
  const news: News[] = [];
  const type = TOLD[run.status];
  const isNew = run.status !== before?.status && !isFurtherMiss(run);
  if (type && isNew) {
    const text = `Run ${run.run} is ${run.status}`;
    news.push({type, key: `${type} ${run.run}`, text, reason: run.reason, facts: factsOf(run)});
  }
  const percent = reachedPercent(run.budget_usd, capped(run));
  if (percent > (before ? reachedPercent(before.budget_usd, capped(before)) : 0)) {
    const spent_usd = capped(run);
    const text = budgetText(`Run ${run.run}`, percent, spent_usd, run.budget_usd);
    const facts = {...factsOf(run), percent};
    news.push({type: 'run.budget', key: `run.budget ${run.run} ${percent}`, text, reason: null, facts});
  }
  return news;
}

function factsOf(run: Run): News['facts'] {
  const {streams_completed, streams_failed, total_samples_processed, rejected_samples, total_tokens} = run;
  return {
    ...{run: run.run, pool: run.pool, status: run.status},
    ...{spent_usd: capped(run), budget_usd: run.budget_usd},
    streams: streams_completed + streams_failed + run.streams_pending + run.streams_in_progress,
    ...{streams_completed, streams_failed, total_samples_processed, rejected_samples, total_tokens},
  };
}

export function newsOfPool(before: Pool | undefined, {pool, budget_notice}: Pool): News[] {
  return newsOfMark('pool.budget', `Pool ${pool}`, {pool}, before?.budget_notice ?? null, budget_notice);
}

/** A budget without a subject is that of the deployment. */
export function newsOfMonth(before: Spending | undefined, {budget_notice}: Spending): News[] {
  const month = budget_notice?.of ?? '';
  return newsOfMark('month.budget', `Month ${month}`, {month}, before?.budget_notice ?? null, budget_notice);
}

function newsOfMark(
  type: 'pool.budget' | 'month.budget',
  subject: string,
  about: News['facts'],
  before: BudgetMark | null,
  mark: BudgetMark | null,
): News[] {
  if (!mark || mark.percent === 0) return [];
  const {of, percent, spent_usd, budget_usd} = mark;
  const isSame = before?.of === of && before.budget_usd === budget_usd;
  if (percent <= (isSame ? before.percent : 0)) return [];
  const text = budgetText(subject, percent, spent_usd, budget_usd);
  const facts = {...about, percent, spent_usd, budget_usd};
  return [{type, key: `${type} ${of} ${percent}`, text, reason: null, facts}];
}

function budgetText(subject: string, percent: number, spent_usd: number, budget_usd: number | null): string {
  const dollars = `$${spent_usd.toFixed(2)} of its budget of $${(budget_usd ?? 0).toFixed(2)}`;
  return `${subject} has spent ${dollars}, which is ${percent} % or more`;
}

export function newsOfZone(before: Zone | undefined, {zone, pool, silence_guard}: Zone): News[] {
  if (!silence_guard || silence_guard.held === 0 || (before?.silence_guard?.held ?? 0) > 0) return [];
  const {held, held_usd_per_hour} = silence_guard;
  const cost =
    held_usd_per_hour === null ? 'at an unknown price' : `for $${held_usd_per_hour.toFixed(2)} an hour`;
  const text = `${zone} keeps ${held} silent workers ${cost}`;
  const reason = 'They are kept until a new worker sends a heartbeat: check worker-api and the network';
  const facts = {zone, pool, held, held_usd_per_hour};
  return [{type: 'zone.silent', key: `zone.silent ${pool ?? ''} ${zone}`, text, reason, facts}];
}
