/** Text as a model reads it: each token by itself, with its blanks and line ends. */

import {numberText} from '../../client/text/format.ts';
import type {FirstSample, FirstSamples} from '../../client/views/first-samples.ts';
import {type Html, html, type Part} from './html.ts';

/** A token. `kinds`: its classes in the style. */
export function token(text: string, kinds: readonly string[], title = ''): Html {
  const visible = /^ +$/.test(text) ? text.replaceAll(' ', '·') : text;
  const shown = visible.replaceAll('\t', '⇥').replaceAll('\n', '↵\n') || '▫';
  return html`<span class="${['token', ...kinds].filter(Boolean).join(' ')}"${title && html` title="${title}"`}>${shown}</span>`;
}

const KINDS: [kind: string, has: (sample: FirstSample) => boolean, text: string][] = [
  ['special', ({special}) => special.length > 0, 'dashed: a special token'],
  ['chosen', ({rows}) => rows !== null, 'filled, line below: a token that is stored or pooled'],
  ['masked', ({mask}) => mask !== null, 'line above: a token in the mask'],
];

/** The first samples of a stream, the first one open. */
export function sampleTexts({stream, samples}: FirstSamples): Html {
  const used = KINDS.filter(([, has]) => samples.some(has));
  const legend = used.map(([kind, , text]) => html`<li><span class="token ${kind}">${text}</span></li>`);
  const hasAll = samples.every(({rows}) => rows === null);
  const all = hasAll ? ' Every token is stored or pooled.' : '';
  const [first, ...others] = samples.map(each => sampleText(each, hasAll));
  const more = others.length > 0 ? html`<details><summary>More samples</summary>${others}</details>` : '';
  return html`<h2>${samples.length === 3 ? 'Three' : 'First'} samples as the model saw them</h2><p class="quiet">The first of stream ${stream}, each token in its own box; ↵ is the end of a line, ▫ a token without text of its own.${all}</p>${used.length > 0 ? html`<ul class="legend">${legend}</ul>` : ''}${first}${more}`;
}

function sampleText(
  {sample, line, tokens, special, rows, mask, left_out}: FirstSample,
  hasAll: boolean,
): Html {
  const sets = {special: new Set(special), chosen: new Set(rows ?? (hasAll ? [] : tokens.keys()))};
  const spans: Part[] = tokens.map((text, place) =>
    token(text, [
      sets.special.has(place) ? 'special' : '',
      sets.chosen.has(place) ? 'chosen' : '',
      mask?.[place] ? 'masked' : '',
    ]),
  );
  if (left_out > 0)
    spans.splice(tokens.length / 2, 0, html` <em class="quiet">… ${numberText(left_out)} tokens …</em> `);
  return html`<h3>Sample ${numberText(sample)}, line ${numberText(line)}</h3><div class="tokens">${spans}</div>`;
}
