/** Sources of a command line: files, folders, globs, and data sets of Hugging Face. */
import {glob, stat} from 'node:fs/promises';
import {CliError} from '../../../client/text/errors.ts';
import {counted, listText} from '../../../client/text/format.ts';
import {CsvFile} from './csv-source.ts';
import {filesOf, refuseSaved} from './folder-files.ts';
import {formatOf, KNOWN_NAMES, type SourceOptions} from './formats.ts';
import {JsonFile} from './json-source.ts';
import {JsonLines, TextLines} from './line-source.ts';
import type {RowSource} from './row.ts';

/** `ORG/NAME`, or `hf://datasets/ORG/NAME` and perhaps the path of files in it. */
const DATASET = /^(hf:\/\/datasets\/)?([A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*)(?:\/(.+))?$/;

type Say = (line: string) => void;

/** Opens the sources in the order of the command line; the files of a folder or glob are in the order of their names. */
export async function openSources(
  given: readonly string[],
  options: SourceOptions,
  say: Say,
): Promise<RowSource[]> {
  const sources: RowSource[] = [];
  for (const source of given) sources.push(...(await openSource(source, options, say)));
  requireUsed(options, sources);
  const [text, ...more] = sources.filter(source => source instanceof TextLines);
  if (text)
    say(
      `${text.name}${more.length > 0 ? ` and ${counted(more.length, 'more file')}` : ''}: each line of text is a sample`,
    );
  return sources;
}

async function openSource(source: string, options: SourceOptions, say: Say): Promise<RowSource[]> {
  if (source.startsWith('gs://'))
    throw new CliError(
      `${source} is an object in a bucket: copy it first with \`gcloud storage cp\`, and name the copy`,
    );
  const [, scheme, id, path] = DATASET.exec(source) ?? [];
  const info = scheme ? undefined : await stat(source).catch(() => undefined);
  if (info?.isDirectory()) return openFiles(source, await filesOf(source, options, say), options);
  if (info) return openFiles(source, [source], options);
  if (!scheme && /[*?[]/.test(source)) return openGlob(source, options, say);
  if (id && (scheme || (path === undefined && formatOf(source) === undefined))) {
    const {openDataset} = await import('./hub-source.ts');
    return openDataset({id, path}, options, say);
  }
  throw new CliError(
    `There is no file ${source}: name a file, a folder, or a data set of Hugging Face as ORG/NAME`,
  );
}

async function openFile(
  file: string,
  {format: given, delimiter, field, max_row_mib}: SourceOptions,
): Promise<RowSource> {
  const format = given ?? formatOf(file);
  if (format === undefined)
    throw new CliError(`${file} has an unknown extension: give --format, or a name with ${KNOWN_NAMES}`);
  const most_row_bytes = max_row_mib === undefined ? undefined : max_row_mib << 20;
  switch (format) {
    case 'jsonl':
      return new JsonLines(file, most_row_bytes);
    case 'text':
      return new TextLines(file, most_row_bytes);
    case 'json':
      return new JsonFile(file, field, most_row_bytes);
    case 'csv':
      return new CsvFile(file, delimiter, most_row_bytes);
    case 'parquet':
      return new (await import('./parquet.ts')).ParquetFileSource(file);
    default:
      return format satisfies never;
  }
}

function requireUsed({delimiter, field}: SourceOptions, sources: RowSource[]): void {
  if (delimiter !== undefined && !sources.some(source => source instanceof CsvFile))
    throw new CliError('--delimiter is for CSV, and no source is CSV: leave it out, or give --format csv');
  if (field !== undefined && !sources.some(source => source instanceof JsonFile))
    throw new CliError('--field is for JSON, and no source is JSON: leave it out, or give --format json');
}

async function openGlob(pattern: string, options: SourceOptions, say: Say): Promise<RowSource[]> {
  const files: string[] = [];
  const folders: string[] = [];
  for await (const file of glob(pattern)) {
    // A link that leads nowhere is named when it is opened.
    const found = await stat(file).catch(() => undefined);
    (found?.isDirectory() ? folders : files).push(file);
  }
  if (files.length === 0) throw new CliError(`There is no file that matches ${pattern}: correct the pattern`);
  if (folders.length > 0)
    say(`${pattern}: skipped ${folders.length === 1 ? 'the folder' : 'the folders'} ${listText(folders)}`);
  return openFiles(pattern, files.sort(), options);
}

async function openFiles(where: string, files: string[], options: SourceOptions): Promise<RowSource[]> {
  await refuseSaved(files);
  const formats = new Set(files.map(file => options.format ?? formatOf(file)));
  if (formats.size > 1)
    throw new CliError(
      `${where} mixes files of different formats (${listText(files, 5)}): name the files, or a pattern such as '*.jsonl'`,
    );
  return Promise.all(files.map(file => openFile(file, options)));
}
