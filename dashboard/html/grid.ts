/** The grid of the streams of a run: one drawing of a few shapes, also for 10,000 streams. */

import {numberText} from '../../client/text/format.ts';
import type {Stream} from '../../shared/domain/records/stream.ts';
import {type Html, html} from './html.ts';

type Status = Stream['status'];
type StreamStates = readonly {worker_id: number; status: Status}[];

/** Side of a cell with its gap, and its largest side on the screen. */
const CELL = 10;
const MOST_PIXELS = 16;

/** Shapes of neighbours of one status. A pattern of gaps divides them. */
const SHAPES: Record<Status, (x: number, y: number, width: number) => string> = {
  // A full square.
  completed: (x, y, width) => box(x, y, width, 8),
  // The lower half.
  in_progress: (x, y, width) => box(x, y + 4, width, 4),
  // A line.
  pending: (x, y, width) => box(x, y + 3, width, 2),
  // A cross for each.
  failed: (x, y, width) =>
    Array.from({length: width}, (_, n) => `M${x + n * CELL} ${y}l8 8m0 -8l-8 8`).join(''),
};

function box(x: number, y: number, width: number, height: number): string {
  return `M${x} ${y}h${width * CELL - 2}v${height}h-${width * CELL - 2}z`;
}

const ORDER: Status[] = ['completed', 'in_progress', 'pending', 'failed'];

/** A small grid is one row, and a large one four times as wide as high. */
function columnsOf(streams: number): number {
  return streams <= 60 ? streams : Math.min(200, Math.max(60, Math.ceil(Math.sqrt(streams * 4) / 5) * 5));
}

/** The streams in the order of their numbers, row by row. */
export function streamGrid(streams: StreamStates): Html {
  const sorted = streams.toSorted((a, b) => a.worker_id - b.worker_id);
  const columns = Math.max(1, columnsOf(sorted.length));
  const rows = Math.max(1, Math.ceil(sorted.length / columns));
  const paths: Record<Status, string> = {completed: '', in_progress: '', failed: '', pending: ''};
  for (let at = 0; at < sorted.length; ) {
    const from = at;
    const status = sorted[at]?.status ?? 'pending';
    const end = Math.min(sorted.length, from - (from % columns) + columns);
    while (at < end && sorted[at]?.status === status) at++;
    paths[status] += SHAPES[status]((from % columns) * CELL, Math.floor(from / columns) * CELL, at - from);
  }
  // Without a gap in the numbers, the place of a stream is its number.
  const isWhole = sorted.every(({worker_id}, index) => worker_id === index);
  const numbers = isWhole ? html` data-columns="${columns}" data-streams="${sorted.length}"` : '';
  const counts = ORDER.map(status => streams.filter(each => each.status === status).length);
  const label = ORDER.map((status, index) => `${numberText(counts[index] ?? 0)} ${status.replace('_', ' ')}`);
  return html`<svg class="grid" width="${columns * MOST_PIXELS}" viewBox="0 0 ${columns * CELL - 2} ${rows * CELL - 2}"${numbers} role="img" aria-label="Streams by number: ${label.join(', ')}">${ORDER.map(
    status => (paths[status] === '' ? '' : html`<path class="${status}" d="${paths[status]}"/>`),
  )}<defs><pattern id="gaps" width="${CELL}" height="${CELL}" patternUnits="userSpaceOnUse"><path class="gap" d="M8 0h2v10h-10v-2h8z"/></pattern></defs><rect width="100%" height="100%" fill="url(#gaps)"/></svg>`;
}

export function legend(counts: Record<Status, number>): Html {
  return html`<ul class="legend">${ORDER.map(
    status =>
      html`<li><svg class="grid swatch" viewBox="0 0 8 8" aria-hidden="true"><path class="${status}" d="${SHAPES[status](0, 0, 1)}"/></svg>${status.replace('_', ' ')} <strong>${numberText(counts[status])}</strong></li>`,
  )}</ul>`;
}
