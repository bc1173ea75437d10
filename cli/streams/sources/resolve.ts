/** Sources of a command line: files, folders, globs, and data sets of Hugging Face. */
import {glob, readdir, stat} from 'node:fs/promises';
import {join} from 'node:path';
import {CliError} from '../../terminal/errors.ts';
import {listText} from '../../terminal/format.ts';
import {CsvFile} from './csv-source.ts';
import {type Format, formatOf, KNOWN_NAMES, type SourceOptions} from './formats.ts';
import {JsonFile} from './json-source.ts';
import {JsonLines, TextLines} from './line-source.ts';
import type {RowSource} from './row.ts';

const DATASET_ID = /^(?:hf:\/\/datasets\/)?([A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*)$/;

/** Opens the sources in the order of the command line; the files of a folder or glob are in the order of their names. */
export async function openSources(
  given: readonly string[],
  options: SourceOptions,
  say: (line: string) => void,
): Promise<RowSource[]> {
  const sources: RowSource[] = [];
  for (const source of given) sources.push(...(await openSource(source, options, say)));
  return sources;
}

async function openSource(
  source: string,
  options: SourceOptions,
  say: (line: string) => void,
): Promise<RowSource[]> {
  if (source.startsWith('gs://'))
    throw new CliError(
      `${source} is an object in a bucket: copy it first with \`gcloud storage cp\`, and name the copy`,
    );
  const info = await stat(source).catch(() => undefined);
  if (info?.isDirectory()) return openFolder(source, options.format);
  if (info) return [await openFile(source, options.format)];
  if (/[*?[]/.test(source)) return openGlob(source, options.format);
  const id = DATASET_ID.exec(source)?.[1];
  if (id && formatOf(source) === undefined) {
    const {openDataset} = await import('./hub-source.ts');
    return openDataset(id, options, say);
  }
  throw new CliError(
    `There is no file ${source}: name a file, a folder, or a data set of Hugging Face as ORG/NAME`,
  );
}

async function openFile(file: string, given: Format | undefined): Promise<RowSource> {
  const format = given ?? formatOf(file);
  if (format === undefined)
    throw new CliError(`${file} has an unknown extension: give --format, or a name with ${KNOWN_NAMES}`);
  switch (format) {
    case 'jsonl':
      return new JsonLines(file);
    case 'text':
      return new TextLines(file);
    case 'json':
      return new JsonFile(file);
    case 'csv':
      return new CsvFile(file);
    case 'parquet':
      return new (await import('./parquet.ts')).ParquetFileSource(file);
    default:
      return format satisfies never;
  }
}

async function openFolder(folder: string, format: Format | undefined): Promise<RowSource[]> {
  const entries = await readdir(folder, {withFileTypes: true});
  const files = entries
    .filter(entry => !entry.isDirectory() && !entry.name.startsWith('.'))
    .map(({name}) => name)
    .filter(name => name !== 'checksums.json' && name !== 'run.json')
    .filter(name => format !== undefined || formatOf(name) !== undefined);
  if (files.length === 0)
    throw new CliError(`There is no file of rows in ${folder}: put in files with ${KNOWN_NAMES}`);
  return openFiles(
    folder,
    files.sort().map(name => join(folder, name)),
    format,
  );
}

async function openGlob(pattern: string, format: Format | undefined): Promise<RowSource[]> {
  const files: string[] = [];
  for await (const file of glob(pattern)) {
    // A link that leads nowhere is named when it is opened.
    const found = await stat(file).catch(() => undefined);
    if (!found || found.isFile()) files.push(file);
  }
  if (files.length === 0) throw new CliError(`There is no file that matches ${pattern}: correct the pattern`);
  return openFiles(pattern, files.sort(), format);
}

async function openFiles(where: string, files: string[], format: Format | undefined): Promise<RowSource[]> {
  const formats = new Set(files.map(file => format ?? formatOf(file)));
  if (formats.size > 1)
    throw new CliError(
      `${where} mixes files of different formats (${listText(files, 5)}): name the files, or a pattern such as '*.jsonl'`,
    );
  return Promise.all(files.map(file => openFile(file, format)));
}
