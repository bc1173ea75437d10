/** The curves of a run: tokens a second, dollars, and streams at work, with the preemptions that are known. */
import type {Line} from '../../cli/screen/timeline.ts';
import {dollarText, numberText} from '../../cli/terminal/format.ts';
import type {Run} from '../../shared/domain/run/run.ts';
import {type Chart, lineChart, type Point} from '../charts.ts';
import {type Html, html} from '../html.ts';

export function historyCharts(run: Run, events: readonly Line[]): Html {
  const marks = events
    .filter(({text}) => text.includes('preempted'))
    .map(({at, text}) => ({at_ms: Date.parse(at), text}));
  const charts = runCharts(run, marks);
  return charts === null ? html`` : html`<h2>History</h2>${charts}`;
}

/** Null for a run without a past. `marks`: preemptions. */
export function runCharts(
  {history, created_at, total_tokens}: Run,
  marks: NonNullable<Chart['marks']>,
): Html | null {
  if (!history || history.at_s.length < 2) return null;
  const start_ms = Date.parse(created_at);
  const pointsOf = (values: readonly number[]): Point[] =>
    values.map((value, index) => ({at_ms: start_ms + (history.at_s[index] ?? 0) * 1000, value}));
  const rate = (value: number) => `${numberText(Math.round(value))} tokens/s`;
  const charts = [
    lineChart({
      title: 'Stored tokens a second',
      points: ratesOf(pointsOf(history.tokens)),
      text: rate,
      marks,
    }),
    lineChart({title: 'Dollars', points: pointsOf(history.usd), text: dollarText}),
    lineChart({
      ...{title: 'Streams in progress', points: pointsOf(history.leases), marks, steps: true},
      text: value => numberText(Math.round(value)),
    }),
  ];
  const note = marks.length > 0 ? html`<p class="quiet">A dashed line is a preemption.</p>` : '';
  return total_tokens === 0 && history.usd.every(usd => usd === 0)
    ? null
    : html`<div class="charts">${charts}</div>${note}`;
}

/** Points over which a rate is taken: a shard brings its tokens at once. */
const WINDOW = 6;

/** The mean growth over the last points. */
function ratesOf(points: readonly Point[]): Point[] {
  return points.slice(1).map(({at_ms, value}, index) => {
    const from = points[Math.max(0, index + 1 - WINDOW)] ?? {at_ms, value};
    const seconds = (at_ms - from.at_ms) / 1000;
    return {at_ms, value: seconds > 0 ? Math.max(0, value - from.value) / seconds : 0};
  });
}
