/** The history of a run as a few points over its whole life, so that curves need no document for each point. */
import {z} from 'zod';
import {count, stored} from '../fields.ts';
import {msOf} from '../time.ts';

/** Points of a full history. The next point removes half of them, and from then on points are added half as often. */
const MOST_POINTS = 288;
/** Shortest distance in seconds between the points of a new run: 288 of them cover 24 minutes. */
const FIRST_STEP_S = 5;

const numbers = z.array(z.number().min(0));

export const runHistory = stored({
  step_s: count.describe('Least seconds between two points.'),
  at_s: numbers.describe('Seconds of each point since the run was created.'),
  tokens: numbers.describe('Stored tokens at each point.'),
  usd: numbers.describe('Dollars at each point.'),
  leases: numbers.describe('Streams in progress at each point.'),
  preemptions: numbers.describe('Preemptions up to each point. Empty for a run without a count of them.'),
});
export type RunHistory = z.infer<typeof runHistory>;

const NO_POINTS = {at_s: [], tokens: [], usd: [], leases: [], preemptions: []};
const NO_HISTORY: RunHistory = {step_s: FIRST_STEP_S, ...NO_POINTS};
const SERIES = ['at_s', 'tokens', 'usd', 'leases', 'preemptions'] as const;

type Totals = {
  created_at: string;
  total_tokens: number;
  cost_usd: number;
  streams_in_progress: number;
  preemptions: number | null;
};

/** The history with the present totals, unless the last point is too recent. `turns`: the run changes its status, which always gets a point. */
export function withPoint(history: RunHistory | null, run: Totals, now: number, {turns = false} = {}) {
  const before = history ?? NO_HISTORY;
  const at_s = Math.max(0, Math.round((now - msOf(run.created_at)) / 1000));
  const last_s = before.at_s.at(-1);
  if (last_s !== undefined && at_s < last_s + before.step_s && !turns) return before;
  const kept = before.at_s.length < MOST_POINTS ? before : thinned(before);
  return {
    ...kept,
    at_s: [...kept.at_s, at_s],
    tokens: [...kept.tokens, run.total_tokens],
    usd: [...kept.usd, Number(run.cost_usd.toPrecision(6))],
    leases: [...kept.leases, run.streams_in_progress],
    preemptions: run.preemptions === null ? [] : [...kept.preemptions, run.preemptions],
  };
}

/** About half of the points, evenly spaced. */
function thinned(history: RunHistory): RunHistory {
  const {at_s} = history;
  const step_s = Math.ceil(((at_s.at(-1) ?? 0) * 2) / MOST_POINTS);
  let next_s = 0;
  const isKept = at_s.map(value => {
    if (value < next_s) return false;
    next_s = value + step_s;
    return true;
  });
  const series = SERIES.map(name => [name, history[name].filter((_, index) => isKept[index])]);
  return {...history, ...Object.fromEntries(series), step_s};
}
