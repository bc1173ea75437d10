/** The curves of a run: tokens a second, dollars, streams at work, and preemptions. */
import {dollarText, numberText} from '../../client/text/format.ts';
import type {Run} from '../../shared/domain/records/run.ts';
import {lineChart, type Point} from '../html/charts.ts';
import {type Html, html} from '../html/html.ts';

export function historyCharts(run: Run): Html {
  const {history, created_at, total_tokens, preemptions} = run;
  if (!history || history.at_s.length < 2) return html``;
  if (total_tokens === 0 && history.usd.every(usd => usd === 0)) return html``;
  const start_ms = Date.parse(created_at);
  const pointsOf = (values: readonly number[]): Point[] =>
    values.map((value, index) => ({at_ms: start_ms + (history.at_s[index] ?? 0) * 1000, value}));
  const rate = (value: number) => `${numberText(Math.round(value))} tokens/s`;
  const whole = (value: number) => numberText(Math.round(value));
  // The node of the last preempted TPU may go after the last point.
  const counts = preemptions === null ? [] : [...history.preemptions.slice(0, -1), preemptions];
  const charts = [
    lineChart({title: 'Stored tokens a second', points: ratesOf(pointsOf(history.tokens)), text: rate}),
    lineChart({title: 'Dollars', points: pointsOf(history.usd), text: dollarText}),
    lineChart({
      ...{title: 'Streams in progress', points: pointsOf(history.leases), steps: true},
      text: whole,
    }),
    lineChart({...{title: 'Preemptions', points: pointsOf(counts), steps: true}, text: whole}),
  ];
  const note =
    preemptions === null
      ? html`<p class="quiet">Preemptions: unknown. The run has no count of them.</p>`
      : '';
  return html`<h2>History</h2><div class="charts">${charts}</div>${note}`;
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
