/** Streams from a dataset: a pass that counts the rows, and a pass that writes each row once, in order. */

import {realpath} from 'node:fs/promises';
import {join, resolve, sep} from 'node:path';
import type {Answers} from '../../client/json/index.ts';
import {CliError, Interrupted} from '../../client/text/errors.ts';
import {bytesText, counted, durationText, listText, numberText} from '../../client/text/format.ts';
import {print, quoted, say} from '../../client/text/output.ts';
import {abortedAtStop} from '../terminal/stop-signal.ts';
import type {Checksums, StreamChecksum} from './checksums.ts';
import {OutputFolder, type Wanted} from './output-folder.ts';
import {positionsOf} from './permutation.ts';
import {type PassProgress, passProgress} from './progress.ts';
import {
  type Convert,
  columnsRead,
  converter,
  LeftOut,
  type RecordOptions,
  requireReadable,
} from './records.ts';
import type {SourceOptions} from './sources/formats.ts';
import {knownFieldsOf} from './sources/known-fields.ts';
import {openSources} from './sources/resolve.ts';
import {cellsOf, type Row, type RowSource, type Watch} from './sources/row.ts';
import {planSplit, rowsToCount, type Split, type SplitOptions} from './split.ts';
import {openSpool} from './spool.ts';
import {type StreamWriter, streamFile, streamWriter} from './stream-writer.ts';

export type CreateOptions = SplitOptions &
  RecordOptions &
  Omit<SourceOptions, 'stop'> & {
    output_dir: string;
    force?: boolean | undefined;
    /** False: records without a field that a run reads are written too. */
    check?: boolean | undefined;
    /** Plans the streams, and writes none. */
    dry_run?: boolean | undefined;
  };

export type CreateReport = Answers['streams create'];

type Watcher = {say?: ((line: string) => void) | undefined; stopped?: AbortSignal | undefined};

const SPOOL_FOLDER = 'shuffled';
/** Size of the lines beside the size of their sources, which may be compressed. */
const UNPACKED = 4;

/** Creates the streams, or finds the folder complete. Throws `CliError`, and `Interrupted` after Ctrl-C. */
export async function createStreams(
  given: readonly string[],
  options: CreateOptions,
  {say = () => {}, stopped = new AbortController().signal}: Watcher = {},
): Promise<CreateReport> {
  const begun_ms = performance.now();
  const left_out = new LeftOut(options);
  const convert = converter(options, left_out);
  const progress = passProgress(say);
  const watch: Watch = {stop: stopped, moved: bytes => progress.moved(bytes)};
  const seconds = () => (performance.now() - begun_ms) / 1000;
  const output = new OutputFolder(options.output_dir);
  const folder = resolve(options.output_dir);
  let isTaken = false;
  try {
    progress.begin('reading the sources');
    const sources = await openSources(given, {...options, stop: stopped}, say);
    await refuseOwnSources(sources, folder);
    const wanted = await wantedOf(sources, options, watch);
    if (options.dry_run) {
      const split = planSplit(await countRows(sources, options, watch, progress), options);
      const streams = split.sizes.map((samples, index) => ({file: streamFile(index), samples}));
      const {samples} = split;
      return {status: 'planned', folder, samples, bytes: 0, streams, left_out: null, seconds: seconds()};
    }
    await output.take();
    isTaken = true;
    const there = await output.complete(wanted, options.force === true);
    if (there) return {...reportOf('complete', folder, there), seconds: seconds()};
    await output.prepare(options.force === true);
    const split = planSplit(await countRows(sources, options, watch, progress), options);
    const streams = await writeRows({
      sources,
      bytes: wanted.sources.reduce((sum, source) => sum + source.bytes, 0),
      convert,
      split,
      options,
      work: output.work,
      watch,
      progress,
      say,
    });
    const checksums: Checksums = {version: 1, streams, samples: split.samples, ...wanted};
    await output.publish(checksums);
    const leftOutNote = left_out.text();
    if (leftOutNote !== undefined) say(leftOutNote);
    return {...reportOf('created', folder, checksums, left_out.names), seconds: seconds()};
  } catch (error) {
    if (stopped.aborted)
      throw new Interrupted('Interrupted: the streams are incomplete, and the same command starts again');
    throw withoutSpace(error as NodeJS.ErrnoException, folder);
  } finally {
    progress.end();
    if (isTaken) await output.leave();
  }
}

/** A source in the output folder would be replaced, or read again as a source by the next command. */
async function refuseOwnSources(sources: RowSource[], folder: string): Promise<void> {
  const own = await realpath(folder).catch(() => undefined);
  if (own === undefined) return;
  for (const {name} of sources) {
    const path = await realpath(name).catch(() => undefined);
    if (path?.startsWith(`${own}${sep}`))
      throw new CliError(`${name} lies in --output-dir ${folder}: choose another folder for the streams`);
  }
}

async function wantedOf(sources: RowSource[], options: CreateOptions, watch: Watch): Promise<Wanted> {
  const identities = [];
  for (const source of sources) identities.push(await source.identity(watch));
  const {output_dir, force, dry_run, check, max_row_mib, ...decisive} = options;
  const given = Object.entries(decisive).filter(([, value]) => value !== undefined);
  return {sources: identities, options: Object.fromEntries(given) as Wanted['options']};
}

async function countRows(
  sources: RowSource[],
  options: CreateOptions,
  watch: Watch,
  progress: PassProgress,
): Promise<number> {
  progress.begin('counting the rows');
  const most = rowsToCount(options);
  let rows = 0;
  for (const source of sources) {
    if (rows >= most) break;
    rows += await source.count(watch, most - rows);
    progress.rows = rows;
  }
  return rows;
}

type Writing = {
  sources: RowSource[];
  bytes: number;
  convert: Convert;
  split: Split;
  options: CreateOptions;
  work: string;
  watch: Watch;
  progress: PassProgress;
  say: (line: string) => void;
};

async function writeRows(writing: Writing): Promise<StreamChecksum[]> {
  const {split, work, options, progress} = writing;
  progress.begin('writing the streams');
  const writer = streamWriter(work, split.sizes);
  try {
    if (options.shuffle_seed === undefined)
      for await (const lines of linesOf(writing)) for (const {line} of lines) await writer.write(line);
    else await writeShuffled(writing, options.shuffle_seed, writer);
    if (writer.done.length !== split.sizes.length)
      throw new CliError(
        'Failed to write the streams: the sources have fewer rows than at the first reading; try again when no program writes them',
      );
    return [...writer.done];
  } finally {
    await writer.abandon();
  }
}

/** Writes the chosen rows into files by their places in the permutation, and reads these files in their order. */
async function writeShuffled(writing: Writing, seed: number, writer: StreamWriter): Promise<void> {
  const {split, work, watch} = writing;
  const places = positionsOf(split.end - split.first, seed);
  const spool = await openSpool(join(work, SPOOL_FOLDER), split.samples, writing.bytes * UNPACKED);
  try {
    const isChosen = (row: number) => (places[row - split.first] as number) < split.samples;
    for await (const lines of linesOf(writing, isChosen))
      for (const {line, row} of lines) await spool.write(line, places[row - split.first] as number);
    writing.progress.begin('shuffling');
    for await (const lines of spool.read()) {
      watch.stop.throwIfAborted();
      for (const line of lines) await writer.write(line);
      for (const line of lines) writing.progress.moved(line.length);
    }
  } finally {
    await spool.remove();
  }
}

async function* linesOf(
  {sources, convert, split, options, watch, progress, say}: Writing,
  isChosen?: (row: number) => boolean,
): AsyncGenerator<{line: Buffer; row: number}[]> {
  const columns = columnsRead(options);
  // Without a permutation the first rows of the range are the samples.
  const end = isChosen ? split.end : split.first + split.samples;
  let index = 0;
  const givenAdvice = new Set<string>();
  const sayOnce = (advice: string | undefined) => {
    if (advice === undefined || givenAdvice.has(advice)) return;
    givenAdvice.add(advice);
    say(advice);
  };
  for (const source of sources) {
    if (index >= end) return;
    let isFirst = true;
    for await (const rows of source.rows(watch, columns)) {
      watch.stop.throwIfAborted();
      const from = Math.max(0, split.first - index);
      const to = Math.min(rows.length, end - index);
      const lines: {line: Buffer; row: number}[] = [];
      for (let at = from; at < to; at++) {
        const row = rows[at] as Row;
        if (isChosen && !isChosen(index + at)) continue;
        if (isFirst && columns === undefined) sayOnce(adviceOn(source, row, options.check));
        const line = convert(source, row, index + at);
        if (options.check ?? true) requireReadable(source, row, line);
        isFirst = false;
        lines.push({line, row: index + at});
      }
      yield lines;
      index += rows.length;
      progress.rows = Math.min(index, end);
      if (index >= end) return;
    }
  }
}

/**
 * Advice about the first record of a source, where a run may take another field than the user means. Throws `CliError` where a run takes
 * none.
 */
function adviceOn(source: RowSource, row: Row, isChecked = true): string | undefined {
  const cells = cellsOf(source, row);
  const [taken, other] = knownFieldsOf(cells);
  if (taken === undefined && isChecked)
    throw new CliError(
      `The first record of ${source.name} has ${cells.size === 0 ? 'no field' : `the fields ${listText([...cells.keys()], 10)}`}, and none that a run reads by itself: give --column or --template, or --no-check for a run with record.field or record.template`,
    );
  if (other === undefined) return undefined;
  return `The first record has ${taken} and ${other}, and a run takes ${taken}: to take another field, give --column, or set record.field in run.json`;
}

function reportOf(
  status: 'created' | 'complete',
  folder: string,
  {samples, streams}: Checksums,
  left_out: string[] | null = null,
): Omit<CreateReport, 'seconds'> {
  const bytes = streams.reduce((sum, stream) => sum + stream.bytes, 0);
  const files = streams.map(({file, samples}) => ({file, samples}));
  return {status, folder, samples, bytes, streams: files, left_out};
}

function withoutSpace(error: NodeJS.ErrnoException, folder: string): Error {
  if (error.code !== 'ENOSPC') return error;
  return new CliError(
    `Failed to write into ${folder}: the disk is full; free some space, or choose a folder on another disk with --output-dir. No incomplete stream was left`,
    {cause: error},
  );
}

/** `gleaner streams create`: splits a dataset into streams. */
export async function create(
  sources: string[],
  {json, quiet: _, ...options}: CreateOptions & {json?: boolean; quiet?: boolean},
): Promise<void> {
  const stopped = abortedAtStop();
  const column = options.column ?? (options.as === 'arc' ? 'examples' : undefined);
  const report = await createStreams(sources, {...options, column}, {say, stopped});
  print<'streams create'>(json, report, reportLines(report, options.output_dir));
}

function reportLines(report: CreateReport, folder: string): string[] {
  const {samples, streams, bytes, seconds} = report;
  const sizes = streams.map(stream => stream.samples);
  const [least, most] = [Math.min(...sizes), Math.max(...sizes)];
  const each =
    least === most ? counted(least, 'sample') : `${numberText(least)} to ${counted(most, 'sample')}`;
  const what = `${counted(streams.length, 'stream')} of ${each}, ${counted(samples, 'sample')} in total`;
  if (report.status === 'planned') return [`Would write ${what} into ${folder}`];
  const done =
    report.status === 'complete'
      ? `${folder} is complete: ${what}; nothing was changed`
      : `Wrote ${what}, ${bytesText(bytes)}, into ${folder} in ${durationText(seconds)}`;
  return [done, `Try next: gleaner run start my-run --streams ${quoted(folder)}`];
}
