/** `gleaner run compare`: two runs beside each other, as text, JSON or a file. */
import {withCloud} from '../../client/cloud/cloud.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {aligned, cut} from '../../client/text/format.ts';
import {print, say} from '../../client/text/output.ts';
import {
  type Comparison,
  compareSides,
  readSide,
  type Side,
  shownWhole,
  TOLERANCE,
} from '../../client/views/comparison.ts';
import {replaceFile} from './report.ts';

/** Exit code 0: the runs hold the same. Exit code 1: something differs. */
export async function compareRuns(
  a: string,
  b: string,
  options: CloudOptions & {html?: string},
): Promise<void> {
  await withCloud(options, async cloud => {
    const sides: [Side, Side] = [await readSide(cloud, a), await readSide(cloud, b)];
    const comparison = compareSides(...sides);
    if (options.html !== undefined) {
      const {comparisonReport} = await import('../../dashboard/report/comparison-report.ts');
      await replaceFile(options.html, comparisonReport(comparison, sides, new Date().toISOString()));
      say(`${options.html} is written: a browser opens it`);
    }
    print<'run compare'>(options.json, comparison, linesOf(comparison));
    if (!comparison.same) process.exitCode = 1;
  });
}

const MOST_STATISTICS = 10;

function linesOf({a, b, same, spec, totals, statistics, shards, notes}: Comparison): string[] {
  const rows = [...totals, ...spec.map(pair => ({...pair, name: `spec: ${pair.name}`}))];
  const {same_bytes, other_bytes, only_a, only_b} = shards;
  return [
    ...aligned(
      [['', a, b], ...rows.map(({name, a, b}) => [name, shown(name, a), shown(name, b)])],
      [false, true, true],
    ),
    ...(spec.length === 0 ? ['the specs are equal'] : []),
    `shards: ${same_bytes} with equal bytes, ${other_bytes} with other bytes, ${only_a} only in ${a}, ${only_b} only in ${b}`,
    ...statistics
      .slice(0, MOST_STATISTICS)
      .map(({name, a, b}) => `differs: ${name}  ${shown(name, a)}  ${shown(name, b)}`),
    ...(statistics.length > MOST_STATISTICS
      ? [`… ${statistics.length - MOST_STATISTICS} further statistics differ`]
      : []),
    ...notes.map(note => `note: ${note}`),
    same ? `same samples, tokens and statistics (within ${TOLERANCE * 100} %)` : 'DIFFERENT',
  ];
}

function shown(name: string, value: unknown): string {
  return cut(shownWhole(name, value), 24);
}
