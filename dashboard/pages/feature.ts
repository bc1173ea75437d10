/** A feature of a run: how often and how strongly it is active, and the texts in which it is strongest. */
import {type Column, numberText} from '../../client/text/format.ts';
import type {Feature, FeatureAsked, FeatureKnown} from '../../client/views/feature.ts';
import {streamId} from '../../shared/domain/names.ts';
import {type Section, section} from '../html/feed.ts';
import {address, bar, figures, further, type Html, html, link, type Part, table} from '../html/html.ts';
import {token} from '../html/tokens.ts';

/** Streams that are listed, and characters of a kept field. */
const [MOST_STREAMS, MOST_CHARS] = [50, 200];

export function featurePage({run, name, layer, id}: FeatureAsked, known: FeatureKnown): Section[] {
  const title = html`<h1>Feature ${id} of ${name}, layer ${layer}</h1><p class="quiet">of run ${link(address('runs', run), run)}</p>`;
  if ('text' in known) {
    const begin = known.isUnread ? html` ${link('?read=1', 'Read it')}` : '';
    return [section('head', html`${title}<p class="lead">${known.text}${begin}</p>`)];
  }
  const {density, active, at_least, max, examples} = known.feature;
  const least = at_least ? 'at least, because rows were cut' : '';
  const head = figures([
    ['Density', percent(density), least],
    ['Active rows', numberText(active), least],
    ['Largest value', short(max)],
  ]);
  if (examples.length === 0) return [section('head', html`${title}${head}<p>It is active in no row.</p>`)];
  const texts = examples.map(each => exampleText(run, max, each));
  return [
    section('head', html`${title}${head}`),
    section(
      'examples',
      html`<h2>Strongest examples</h2><p class="quiet">The fuller the colour of a token, the stronger the feature there. The strongest has a frame, and a value is shown on hover.</p>${texts}`,
    ),
    section('values', byValue(known.feature)),
    section('streams', byStream(run, known.feature)),
  ];
}

function exampleText(run: string, max: number, example: Feature['examples'][number]): Html {
  const {stream, sample, position, score, kept, values} = example;
  const texts = example.tokens ?? example.token_ids ?? [];
  const most = Math.max(...values);
  const spans = texts.map((text, place) => {
    const value = values[place] ?? 0;
    const kinds = [`heat-${Math.min(9, Math.floor((value / max) * 10))}`, value === most ? 'strongest' : ''];
    return token(String(text ?? ''), value > 0 ? kinds : [], value > 0 ? short(value) : '');
  });
  const where = `stream ${stream}, sample ${numberText(sample)}${position === null ? '' : `, token ${numberText(position)}`}`;
  const fields = Object.entries(kept).map(([name, value]) => {
    const text = typeof value === 'string' ? value : JSON.stringify(value);
    return ` · ${name}: ${text.length > MOST_CHARS ? `${text.slice(0, MOST_CHARS)}…` : text}`;
  });
  return html`<div class="tokens">${spans}</div><p class="quiet">${short(score)} · ${link(address('runs', run, 'streams', streamId(stream)), where)}${fields}</p>`;
}

function byValue({histogram}: Feature): Html {
  const most = Math.max(...histogram);
  const edge = (bin: number) => short(2 ** (bin / 2 - 16));
  const bins = histogram.map((count, bin) => ({count, text: `${edge(bin)} to ${edge(bin + 1)}`}));
  const columns: Column<(typeof bins)[number], Part>[] = [
    {title: 'Value', cell: ({text}) => text},
    {title: 'Active rows', cell: ({count}) => bar(count / most, numberText(count))},
  ];
  const used = bins.slice(
    histogram.findIndex(count => count > 0),
    histogram.findLastIndex(count => count > 0) + 1,
  );
  return html`<h2>Active rows by value</h2>${table('Active rows by value', columns, used)}`;
}

function byStream(run: string, {by_stream, density_by_stream}: Feature): Html {
  const rows = Object.entries(by_stream)
    .map(([id, active]) => ({stream: streamId(Number(id)), active, density: density_by_stream[id] ?? 0}))
    .sort((a, b) => b.density - a.density);
  const columns: Column<(typeof rows)[number], Part>[] = [
    {title: 'Stream', cell: ({stream}) => link(address('runs', run, 'streams', stream), stream)},
    {title: 'Active rows', cell: ({active}) => numberText(active), right: true},
    {title: 'Density', cell: ({density}) => percent(density), right: true},
  ];
  return html`<h2>Density by stream</h2>${table('Density by stream', columns, rows.slice(0, MOST_STREAMS))}${further(rows.length - MOST_STREAMS, 'streams')}`;
}

function percent(share: number): string {
  return `${short(100 * share)} %`;
}

function short(value: number): string {
  return String(Number(value.toPrecision(3)));
}
