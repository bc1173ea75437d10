/** `gleaner run report` and `compare`. A report is one HTML file that loads nothing. */

import {rename, writeFile} from 'node:fs/promises';
import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import {unknownRun} from '../../client/cloud/fleet.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {CliError} from '../../client/text/errors.ts';
import {aligned, bytesText, cut} from '../../client/text/format.ts';
import {complain, print, say} from '../../client/text/output.ts';
import {
  type Comparison,
  compareSides,
  readSide,
  type Side,
  shownWhole,
  TOLERANCE,
} from '../../client/views/comparison.ts';
import {readReport} from '../../client/views/report.ts';
import {readComparison} from './reference.ts';
import {verifyRun} from './verify.ts';

type ReportOptions = CloudOptions & {output?: string; verify?: boolean};

export async function report(run: string, options: ReportOptions): Promise<void> {
  await withCloud(options, async cloud => {
    const text = await reportText(cloud, run, options.verify === true);
    const written = await replaceFile(options.output ?? `${run}-report.html`, text);
    const {file, size_bytes} = written;
    print<'run report'>(options.json, written, [
      `${file} is written, ${bytesText(size_bytes)}: a browser opens it`,
    ]);
  });
}

async function reportText(cloud: Cloud, run: string, verifies: boolean): Promise<string> {
  const {connection, store, objects} = cloud;
  const found = await readReport(cloud, run);
  if (!found) throw await unknownRun(store, run);
  found.page.state.invalid.forEach(complain);
  const verified = verifies ? await verifyRun(connection, run, say) : null;
  const compared = await readComparison(objects, run);
  const {runReport} = await import('../../dashboard/report/run-report.ts');
  const {bucket, project} = connection;
  return runReport(found, {at: new Date().toISOString(), bucket, project, verified, compared});
}

/** Replaces a file as a whole: no reader sees a part of it. */
async function replaceFile(name: string, text: string): Promise<{file: string; size_bytes: number}> {
  const draft = `${name}.${process.pid}.tmp`;
  try {
    await writeFile(draft, text);
    await rename(draft, name);
  } catch (error) {
    throw new CliError(`Failed to write ${name}: ${(error as Error).message}`, {cause: error});
  }
  return {file: name, size_bytes: Buffer.byteLength(text)};
}

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
      [['', a, b], ...rows.map(({name, a, b}) => [name, shortValue(name, a), shortValue(name, b)])],
      [false, true, true],
    ),
    ...(spec.length === 0 ? ['the specs are equal'] : []),
    `shards: ${same_bytes} with equal bytes, ${other_bytes} with other bytes, ${only_a} only in ${a}, ${only_b} only in ${b}`,
    ...statistics
      .slice(0, MOST_STATISTICS)
      .map(({name, a, b}) => `differs: ${name}  ${shortValue(name, a)}  ${shortValue(name, b)}`),
    ...(statistics.length > MOST_STATISTICS
      ? [`… ${statistics.length - MOST_STATISTICS} further statistics differ`]
      : []),
    ...notes.map(note => `note: ${note}`),
    same ? `same samples, tokens and statistics (within ${TOLERANCE * 100} %)` : 'DIFFERENT',
  ];
}

function shortValue(name: string, value: unknown): string {
  return cut(shownWhole(name, value), 24);
}
