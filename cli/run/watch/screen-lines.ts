/** The screen of `gleaner run watch` for a width and a height. */

import type {RunState} from '../../screen/read-run.ts';
import {
  costLine,
  headLine,
  streamCounts,
  streamLines,
  summaryLine,
  tpuLines,
} from '../../screen/run-screen.ts';
import {timeText} from '../../terminal/format.ts';
import type {StyledLine} from '../../terminal/styled-lines.ts';

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
  const room = Math.max(0, height - FIXED - (invalid.length > 0 ? 1 : 0));
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
    costLine(state),
    ...invalid.slice(0, 1).map(text => ({text: `not shown: ${text}`, style: 'yellow' as const})),
    ...(left > 0 ? events.slice(-Math.min(left, MOST_EVENTS)) : []),
  ];
  const update = `Last update: ${timeText(new Date(now).toISOString())}  Ctrl-C ends the watch, and not the run`;
  return [...lines.slice(0, height - 1), {text: update, style: 'dim'}];
}
