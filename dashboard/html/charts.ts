/** Charts as SVG, without JavaScript: a page, a print and a report show the same. A table says the same to a screen reader. */
import {type Html, html, type Part} from './html.ts';

export type Point = {at_ms: number; value: number};
/** `text`: a value with its unit. */
type Chart = {
  title: string;
  points: readonly Point[];
  text: (value: number) => string;
  /** Steps hold a value until the next point; else a line joins the points. */
  steps?: boolean;
};

const [WIDTH, HEIGHT] = [320, 88];
/** Points that a chart of this width can show. */
const MOST_POINTS = 96;

/** Every n-th point, with the last one. */
function thinned(points: readonly Point[]): Point[] {
  const step = Math.max(1, Math.ceil(points.length / MOST_POINTS));
  return points.filter((_, index) => (points.length - 1 - index) % step === 0);
}

/** A line over time, from zero to the largest value. */
export function lineChart({title, points, text, steps = false}: Chart): Html {
  const shown = thinned(points);
  const [first, last] = [shown[0], shown.at(-1)];
  if (!first || !last || shown.length < 2) return html``;
  const most = Math.max(...shown.map(({value}) => value));
  const span_ms = Math.max(1, last.at_ms - first.at_ms);
  const x = (at_ms: number) => (((at_ms - first.at_ms) / span_ms) * WIDTH).toFixed(1);
  const y = (value: number) => (HEIGHT - (value / (most || 1)) * (HEIGHT - 8)).toFixed(1);
  const path = shown
    .map(({at_ms, value}, index) =>
      index === 0
        ? `M${x(at_ms)} ${y(value)}`
        : steps
          ? `H${x(at_ms)}V${y(value)}`
          : `L${x(at_ms)} ${y(value)}`,
    )
    .join('');
  const slot = WIDTH / shown.length;
  const clock = clockOf(span_ms);
  const label = `${title}: ${text(last.value)} now, ${text(most)} at most`;
  return html`<figure class="chart">
<figcaption>${title} <strong>${text(last.value)}</strong></figcaption>
<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label="${label}">
<line class="base" x1="0" y1="${HEIGHT}" x2="${WIDTH}" y2="${HEIGHT}"/>
<path class="area" d="${path}V${HEIGHT}H0Z"/><path class="line" d="${path}"/>
${shown.map(
  ({at_ms, value}, index) =>
    html`<rect class="hover" x="${(index * slot).toFixed(1)}" width="${slot.toFixed(1)}" height="${HEIGHT}"><title>${clock(at_ms)}  ${text(value)}</title></rect>`,
)}
</svg>
<div class="axis"><span>${clock(first.at_ms)}</span><span>${text(most)} at most</span><span>${clock(last.at_ms)}</span></div>
</figure>`;
}

const HOUR_MS = 3_600_000;

/** Times of a chart over so long, in UTC: `14:05:09` of minutes, and `11-26 14:05` of hours. */
function clockOf(span_ms: number): (at_ms: number) => string {
  const [from, to] = span_ms < HOUR_MS ? [11, 19] : [5, 16];
  return at_ms => new Date(at_ms).toISOString().slice(from, to).replace('T', ' ');
}

/** A part of a waterfall, in the order of time. */
type Bar = {name: string; amount: number; texts: readonly string[]};

/** Parts one after another, each where the one before ends. */
export function waterfall(caption: string, bars: readonly Bar[]): Html {
  const total = bars.reduce((sum, {amount}) => sum + amount, 0) || 1;
  let before = 0;
  return html`<table class="waterfall"><caption>${caption}</caption><tbody>${bars.map(
    ({name, amount, texts}) => {
      const [x, width] = [(before / total) * 100, Math.max(0.4, (amount / total) * 100)];
      before += amount;
      return html`<tr><th scope="row">${name.replaceAll('_', ' ')}</th><td class="lane"><svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect class="phase ${name}" x="${x.toFixed(2)}" width="${width.toFixed(2)}" height="8"/></svg></td>${texts.map(text => html`<td class="number">${text}</td>`)}</tr>`;
    },
  )}</tbody></table>`;
}

/** A heat map: rows and columns with a value for each pair. `shade` is from 0 to 1. `more`: shown on hover. */
export type Cell = {shade: number; text: string; more?: string; warns?: boolean} | null;

/** Columns that fit on a phone. */
const MOST_NARROW = 4;

export function heatMap(
  caption: string,
  {columns, rows}: {columns: readonly string[]; rows: readonly {name: string; cells: readonly Cell[]}[]},
): Html {
  const isWide = columns.length > MOST_NARROW;
  return html`${isWide ? html`<p class="sideways" aria-hidden="true">${columns.length} columns: scroll sideways →</p>` : ''}<div class="scroll" role="region" aria-label="${caption}" tabindex="0"><table class="heat"><caption>${caption}</caption><thead><tr><th scope="col">site</th>${columns.map(
    name => html`<th scope="col">${name}</th>`,
  )}</tr></thead><tbody>${rows.map(
    ({name, cells}) => html`<tr><th scope="row">${name}</th>${cells.map(heatCell)}</tr>`,
  )}</tbody></table></div>`;
}

/** A heat map by site and layer. `values`: those of each `{site}.{layer}`. */
export function layerMap<T>(
  caption: string,
  values: Readonly<Record<string, T>>,
  cellOf: (value: T) => Cell,
): Html {
  const names = Object.keys(values).map(name => name.split('.') as [site: string, layer: string]);
  const layers = [...new Set(names.map(([, layer]) => Number(layer)))].sort((a, b) => a - b);
  const rows = [...new Set(names.map(([site]) => site))].map(name => ({
    name,
    cells: layers.map(layer => {
      const value = values[`${name}.${layer}`];
      return value === undefined ? null : cellOf(value);
    }),
  }));
  return heatMap(caption, {columns: layers.map(String), rows});
}

/** The shade is one of ten classes, because the policy of the page allows no style of its own. */
function heatCell(cell: Cell): Part {
  if (!cell) return html`<td></td>`;
  const step = Math.max(0, Math.min(9, Math.floor(cell.shade * 10)));
  const more = cell.more === undefined ? '' : html` title="${cell.more}"`;
  return html`<td class="heat-${step}${cell.warns ? ' warns' : ''}"${more}>${cell.text}</td>`;
}
