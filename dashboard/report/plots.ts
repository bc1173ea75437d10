/** Plots of a report beside the charts of the pages: a histogram, and shares of a sum. */
import {numberText} from '../../cli/terminal/format.ts';
import {type Html, html} from '../html.ts';

const [WIDTH, HEIGHT] = [640, 120];
const MOST_BINS = 24;

/** How many values lie in each of some equal intervals. */
export function histogram(title: string, values: readonly number[], text: (value: number) => string): Html {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  if (!(most > least))
    return html`<h3>${title}</h3><p>${text(least)} in each of ${numberText(values.length)}.</p>`;
  const bins = Math.min(MOST_BINS, Math.max(4, Math.ceil(Math.sqrt(values.length))));
  const step = (most - least) / bins;
  const counts = new Array<number>(bins).fill(0);
  for (const value of values) {
    const bin = Math.min(bins - 1, Math.floor((value - least) / step));
    counts[bin] = (counts[bin] ?? 0) + 1;
  }
  const highest = Math.max(...counts);
  const slot = WIDTH / bins;
  const label = `${title}: from ${text(least)} to ${text(most)}`;
  return html`<h3>${title}</h3><figure class="chart wide"><svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label="${label}">
<line class="base" x1="0" y1="${HEIGHT}" x2="${WIDTH}" y2="${HEIGHT}"/>
${counts.map((count, bin) => {
  const height = (count / highest) * (HEIGHT - 6);
  const range = `${text(least + bin * step)} to ${text(least + (bin + 1) * step)}: ${numberText(count)}`;
  return html`<rect class="column" x="${(bin * slot + 1).toFixed(1)}" y="${(HEIGHT - height).toFixed(1)}" width="${(slot - 2).toFixed(1)}" height="${height.toFixed(1)}"><title>${range}</title></rect>`;
})}
</svg><div class="axis"><span>${text(least)}</span><span>${numberText(highest)} streams at most</span><span>${text(most)}</span></div></figure>`;
}

export type Share = {name: string; amount: number; text: string};

/** Parts of a sum as bars of one scale, the largest first. */
export function shares(caption: string, parts: readonly Share[]): Html {
  const most = Math.max(...parts.map(({amount}) => amount), Number.MIN_VALUE);
  const rows = parts.toSorted((a, b) => b.amount - a.amount);
  return html`<table class="waterfall"><caption>${caption}</caption><tbody>${rows.map(
    ({name, amount, text}) =>
      html`<tr><th scope="row">${name}</th><td class="lane"><svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect class="phase extract" width="${((amount / most) * 100).toFixed(2)}" height="8"/></svg></td><td class="number">${text}</td></tr>`,
  )}</tbody></table>`;
}
