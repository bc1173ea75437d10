/** The state of a run for `gleaner run watch`: a screen of a width and a height, or one line. */

import {tpuStatus} from '../../../client/explanations/tpu-status.ts';
import {bytesText, counted, dollarText, numberText, timeText} from '../../../client/text/format.ts';
import type {StyledLine} from '../../../client/text/output.ts';
import {computedSamples} from '../../../client/views/pace.ts';
import type {RunState} from '../../../client/views/run-state.ts';
import {capped} from '../../../shared/domain/billing/network.ts';
import {
  costLine,
  headLine,
  streamCounts,
  streamLines,
  summaryLine,
  tpuLines,
} from '../../screen/run-screen.ts';

/** Events that the screen shows at most. */
export const MOST_EVENTS = 6;

export type Frame = {width: number; height: number; header: string; now: number};

/** Lines of the screen beside TPUs, streams and events: head, titles, totals, summary, counts, cost, last update, empty lines. */
const FIXED = 10;

/** The whole screen. On a low terminal events go first, then streams, and the last line stays. */
export function screenLines(
  state: RunState,
  events: readonly StyledLine[],
  {width, height, header, now}: Frame,
): StyledLine[] {
  const {invalid} = state;
  const cost = costLine(state);
  // A narrow screen has the money and the time left below each other.
  const costs = cost.text.length < width ? [cost] : cost.text.split('; ').map(text => ({...cost, text}));
  const room = Math.max(0, height - FIXED - (costs.length - 1) - (invalid.length > 0 ? 1 : 0));
  // A line says how many TPUs are left out, or that there is none.
  const of_tpus = Math.max(1, Math.min(state.tpus.length, Math.ceil(room / 2) - 1));
  const tpus = tpuLines(state, {width, height: of_tpus});
  const streams = streamLines(state, {width, height: Math.max(0, room - (tpus.length - 2))});
  const left = Math.max(0, room - (tpus.length - 2) - streams.length);
  const lines = [
    headLine(state),
    {text: header, style: 'dim' as const},
    {text: ''},
    ...tpus,
    summaryLine(state),
    {text: ''},
    streamCounts(state),
    ...streams,
    ...costs,
    ...invalid.slice(0, 1).map(text => ({text: `not shown: ${text}`, style: 'yellow' as const})),
    ...(left > 0 ? events.slice(-Math.min(left, MOST_EVENTS)) : []),
  ];
  const update = `Last update: ${timeText(new Date(now).toISOString())}  Ctrl-C ends the watch, and not the run`;
  return [...lines.slice(0, height - 1), {text: update, style: 'dim'}];
}

/** `my-run active  1,300 computed, 1,240 samples stored, 12 shards, 41 MB, $0.02; 8 streams: 3 completed …; 2 TPUs: 1 WORKING, 1 PREEMPTED`. */
export function plainLine(state: RunState): string {
  const {run, tpus} = state;
  const {reason, total_samples_processed, total_shards, total_bytes} = run;
  const computed = computedSamples(state);
  const ahead = computed > total_samples_processed ? `${numberText(computed)} computed, ` : '';
  const stored = `${ahead}${counted(total_samples_processed, 'sample')} stored, ${counted(total_shards, 'shard')}, ${bytesText(total_bytes)}`;
  const words = new Map<string, number>();
  for (const worker of tpus) words.set(tpuStatus(worker), (words.get(tpuStatus(worker)) ?? 0) + 1);
  const states = [...words].map(([word, count]) => `${count} ${word}`).join(', ');
  const fleet = `${counted(tpus.length, 'TPU')}${states ? `: ${states}` : ''}`;
  return `${run.run} ${run.status}  ${stored}, ${dollarText(capped(run))}; ${streamCounts(state).text}; ${fleet}${reason === null ? '' : `; ${reason}`}`;
}
