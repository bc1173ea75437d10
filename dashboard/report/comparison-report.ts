/** Two runs beside each other, as a file to mail. */

import {type Column, numberText} from '../../client/text/format.ts';
import {type Comparison, type Side, shownWhole} from '../../client/views/comparison.ts';
import type {Stats} from '../../shared/domain/run/result.ts';
import {type Cell, layerMap} from '../html/charts.ts';
import {figures, further, type Html, html, type Part, state, table} from '../html/html.ts';
import {exact, file, part} from './frame.ts';

const MOST_STATISTICS = 100;
/** A relative difference of the mean norm that has the darkest shade. */
const DARKEST = 0.1;

export function comparisonReport(comparison: Comparison, sides: readonly [Side, Side], at: string): string {
  const {a, b, spec, statistics} = comparison;
  return file({title: `${a} and ${b}`, at, made_by: `gleaner run compare ${a} ${b}`}, [
    head(comparison),
    part('Totals', pairs(comparison, comparison.totals)),
    part('Spec', spec.length === 0 ? html`<p>The specs are equal.</p>` : pairs(comparison, spec)),
    part('Statistics', statisticsOf(comparison, sides)),
    ...(statistics.length > 0 ? [part('Largest differences', largest(comparison))] : []),
  ]);
}

function head({a, b, same, shards, notes}: Comparison): Html {
  const verdict = same
    ? 'Both hold the same samples, tokens and statistics, within 0.1 %.'
    : 'They differ in samples, tokens or statistics.';
  return html`<h1>${a} and ${b} ${state(same ? 'the same' : 'different', same ? 'good' : 'bad')}</h1>
<p class="lead">${verdict}</p>
${notes.map(note => html`<p class="note">${note}</p>`)}
${figures([
  ['Shards with equal bytes', numberText(shards.same_bytes)],
  ['With other bytes', numberText(shards.other_bytes)],
  [`Only in ${a}`, numberText(shards.only_a)],
  [`Only in ${b}`, numberText(shards.only_b)],
])}`;
}

type Pair = Comparison['totals'][number];

function pairs({a, b}: Comparison, of: readonly Pair[]): Html {
  const shown = (name: string, value: unknown) => {
    const text = shownWhole(name, value);
    return typeof value === 'number' ? text : exact(text);
  };
  const differs = (pair: Pair) => shownWhole(pair.name, pair.a) !== shownWhole(pair.name, pair.b);
  const columns: Column<Pair, Part>[] = [
    {title: 'Value', cell: ({name}) => name.replaceAll('_', ' ')},
    {title: a, cell: pair => shown(pair.name, pair.a), right: true},
    {title: b, cell: pair => shown(pair.name, pair.b), right: true},
    {title: 'Note', cell: pair => differs(pair) && html`<span class="differs">differs</span>`},
  ];
  return table('Values of both runs', columns, of);
}

/** The relative difference of the mean norm, by layer and site. */
function statisticsOf({a, b}: Comparison, [{result: of_a}, {result: of_b}]: readonly [Side, Side]): Html {
  const in_b = of_b?.stats ?? {};
  const both = Object.entries(of_a?.stats ?? {}).flatMap(([name, one]): [string, [Stats, Stats]][] => {
    const other = in_b[name];
    return other ? [[name, [one, other]]] : [];
  });
  if (both.length === 0) return html`<p>${a} and ${b} have no statistics of one layer in common.</p>`;
  const caption = 'Relative difference of the mean norm, in %, by layer';
  return layerMap(caption, Object.fromEntries(both), ([one, other]) => cell(one, other));
}

function cell({norm: one}: Stats, {norm: other}: Stats): Cell {
  const most = Math.max(one, other);
  const relative = most === 0 ? 0 : Math.abs(one - other) / most;
  return {
    shade: Math.min(1, relative / DARKEST),
    text: relative === 0 ? '0' : (100 * relative).toPrecision(2),
  };
}

function largest({a, b, statistics}: Comparison): Html {
  const columns: Column<Comparison['statistics'][number]>[] = [
    {title: 'Statistic', cell: ({name}) => name},
    {title: a, cell: pair => shownWhole('', pair.a), right: true},
    {title: b, cell: pair => shownWhole('', pair.b), right: true},
    {title: 'Difference', cell: differenceText, right: true},
  ];
  return html`${table('Statistics that differ', columns, statistics.slice(0, MOST_STATISTICS))}${further(statistics.length - MOST_STATISTICS, 'statistics')}`;
}

function differenceText({relative}: Comparison['statistics'][number]): string {
  if (relative === null || !Number.isFinite(relative)) return '–';
  return `${(100 * relative).toPrecision(2)} %`;
}
