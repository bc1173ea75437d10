/** Counts, sizes, money, durations and tables as people write them. */
import {createRequire} from 'node:module';
import {styleText} from 'node:util';
import {printable} from '../../shared/contracts/printable.ts';

const load = createRequire(import.meta.url);

/** `1 shard`, `1,240 shards`. */
export function counted(count: number, noun: string, plural = `${noun}s`): string {
  return `${numberText(count)} ${count === 1 ? noun : plural}`;
}

const SHOWN_NAMES = 20;

/** Names in one line: `a, b, c and 12 more`. */
export function listText(names: readonly string[], most = SHOWN_NAMES): string {
  const more = names.length > most ? ` and ${numberText(names.length - most)} more` : '';
  return names.length === 0 ? 'none' : `${names.slice(0, most).join(', ')}${more}`;
}

/** `1,240`. */
export function numberText(value: number): string {
  return value.toLocaleString('en-US');
}

const SIZES = ['bytes', 'kB', 'MB', 'GB', 'TB', 'PB'];

/** Decimal bytes: `0 bytes`, `54 kB`, `1.2 GB`. */
export function bytesText(bytes: number): string {
  let [value, unit] = [bytes, 0];
  // Rounds first: 999,999 bytes are 1 MB and not 1000 kB.
  while (Number(value.toPrecision(3)) >= 1000 && unit < SIZES.length - 1)
    [value, unit] = [value / 1000, unit + 1];
  if (unit === 0) return counted(Math.round(bytes), 'byte');
  return `${value < 10 ? value.toFixed(1) : value.toFixed(0)} ${SIZES[unit]}`;
}

/** Dollars as `$1,240.00`, and below a cent with two digits: `$0.0031`. */
export function dollarText(usd: number): string {
  const isSmall = usd > 0 && usd < 0.01;
  const digits = isSmall
    ? {maximumSignificantDigits: 2}
    : {minimumFractionDigits: 2, maximumFractionDigits: 2};
  return `$${usd.toLocaleString('en-US', digits)}`;
}

/** `45 s`, `5.2 min`, `3.1 h`, `2.4 days`. */
export function durationText(seconds: number): string {
  if (seconds < 100) return `${Math.round(seconds)} s`;
  if (seconds < 5940) return `${short(seconds / 60)} min`;
  if (seconds < 172_800) return `${short(seconds / 3600)} h`;
  return `${short(seconds / 86_400)} days`;
}

function short(value: number): string {
  return value < 10 ? value.toFixed(1) : numberText(Math.round(value));
}

/** Cells of a text on a terminal. Most texts are ASCII, and the package takes long to load. */
export function widthOf(text: string): number {
  if (/^[ -~]*$/.test(text)) return text.length;
  const {default: stringWidth} = load('string-width') as typeof import('string-width');
  return stringWidth(text);
}

/** `2026-01-02 03:04:05`, in UTC. */
export function timeText(at: string): string {
  return at.slice(0, 19).replace('T', ' ');
}

/** First cells of a line, with `…` at the end of a cut one. A character of Chinese or an emoji takes two cells. */
export function cut(line: string, width: number): string {
  if (widthOf(line) <= width) return line;
  let [start, cells] = ['', 0];
  for (const {segment} of new Intl.Segmenter().segment(line)) {
    cells += widthOf(segment);
    if (cells > width - 1) break;
    start += segment;
  }
  return `${start}…`;
}

/** A column of a listed thing. The cells of a `right` one end at one edge, as numbers do. */
export type Column<Row, Cell = string> = {title: string; cell: (row: Row) => Cell; right?: boolean};

/** Aligned cells. Their control characters are replaced, because they would move the columns. */
export function aligned(
  rows: readonly (readonly string[])[],
  right: readonly (boolean | undefined)[] = [],
): string[] {
  const cells = rows.map(row => row.map(printable));
  const widths = (rows[0] ?? []).map((_, at) => Math.max(...cells.map(row => widthOf(row[at] ?? ''))));
  const padded = (cell: string, index: number) => {
    const space = ' '.repeat(Math.max(0, (widths[index] ?? 0) - widthOf(cell)));
    return right[index] ? space + cell : cell + space;
  };
  return cells.map(row => row.map(padded).join('  ').trimEnd());
}

export type Style = 'red' | 'green' | 'yellow' | 'dim' | 'bold';

/** Text in a style, on a terminal alone and never with `NO_COLOR`. Apply it after alignment and cutting. */
export function styled(
  style: Style | Style[],
  text: string,
  stream: NodeJS.WriteStream = process.stdout,
): string {
  return styleText(style, text, {stream});
}
