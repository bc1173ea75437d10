/** Folder of streams: `stream_000.jsonl` and so on, perhaps `run.json` and `checksums.json`. */
import {readdir, readFile, stat} from 'node:fs/promises';
import {join} from 'node:path';
import {CliError} from '../../client/text/errors.ts';
import {counted, listText} from '../../client/text/format.ts';
import {parseRunSpec} from '../../shared/contracts/spec/spec.ts';
import {parseDatasetObject} from '../../shared/domain/names.ts';
import {CHECKSUMS_FILE, readChecksums, type StreamChecksum, WORK_FOLDER} from './checksums.ts';

const SPEC_FILE = 'run.json';

/** File of a stream. `known`: its content as `checksums.json` says. */
export type StreamFile = {
  stream: string;
  file: string;
  path: string;
  bytes: number;
  gzip: boolean;
  known: StreamChecksum | undefined;
};

export type StreamFolder = {folder: string; spec: Buffer | undefined; streams: StreamFile[]};

/** Reads the names and sizes of a folder. Throws `CliError` for names that are no streams and for files that have changed. */
export async function readStreamFolder(folder: string): Promise<StreamFolder> {
  const names = await namesIn(folder);
  if (names.includes(WORK_FOLDER))
    throw new CliError(
      `${folder} is incomplete: wait for the end of \`gleaner streams create\`, or give that command again`,
    );
  const known = new Map((await readChecksums(folder))?.streams.map(stream => [stream.file, stream]));
  const streams: StreamFile[] = [];
  const foreign: string[] = [];
  for (const name of names) {
    if (name.startsWith('.') || name === CHECKSUMS_FILE || name === SPEC_FILE) continue;
    const parsed = parseDatasetObject(`datasets/${name}`);
    if (parsed.kind !== 'stream') foreign.push(name);
    else {
      const path = join(folder, name);
      const {stream, gzip} = parsed;
      streams.push({stream, gzip, path, file: name, bytes: await sizeOf(path), known: known.get(name)});
    }
  }
  if (foreign.length > 0) throw new CliError(foreignText(folder, foreign));
  if (streams.length === 0)
    throw new CliError(
      `There is no stream in ${folder}: create streams with \`gleaner streams create\`, or name files stream_000.jsonl`,
    );
  requireOneFileEach(folder, streams);
  const empty = streams.find(({bytes}) => bytes === 0);
  if (empty) throw new CliError(`${empty.path} is empty: a stream has at least one record`);
  if (known.size > 0) requireKnown(folder, streams, [...known.keys()]);
  const spec = names.includes(SPEC_FILE) ? await readSpec(join(folder, SPEC_FILE)) : undefined;
  return {folder, spec, streams: streams.sort((a, b) => Number(a.stream) - Number(b.stream))};
}

/** Error for a stream whose content is not the content in `checksums.json`. */
export function changedError({path}: StreamFile): CliError {
  return new CliError(
    `${path} has changed since ${CHECKSUMS_FILE} was written: create the streams again with --force, or delete ${CHECKSUMS_FILE} to upload the file as it is`,
  );
}

async function namesIn(folder: string): Promise<string[]> {
  try {
    return (await readdir(folder)).sort();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOTDIR')
      throw new CliError(
        `${folder} is a file, and streams lie in a folder: \`gleaner streams create ${folder}\` makes it`,
      );
    throw new CliError(`Failed to read the folder ${folder}: ${(error as Error).message}`, {cause: error});
  }
}

async function sizeOf(path: string): Promise<number> {
  const info = await stat(path).catch((cause: Error) => {
    throw new CliError(`Failed to read ${path}: ${cause.message}`, {cause});
  });
  if (!info.isFile()) throw new CliError(`${path} is not a file: a stream is a file of JSON lines`);
  return info.size;
}

async function readSpec(file: string): Promise<Buffer> {
  const bytes = await readFile(file);
  try {
    parseRunSpec(bytes.toString('utf8'), file);
  } catch (error) {
    throw new CliError((error as Error).message, {cause: error});
  }
  return bytes;
}

function foreignText(folder: string, names: string[]): string {
  return `${folder} has ${counted(names.length, 'file')} that no run reads: ${listText(names, 5)}; name streams stream_000.jsonl or stream_000.jsonl.gz, and move other files away`;
}

function requireOneFileEach(folder: string, streams: StreamFile[]): void {
  const seen = new Map<string, string>();
  for (const {stream, file} of streams) {
    const other = seen.get(stream);
    if (other !== undefined)
      throw new CliError(`${folder} has stream ${stream} twice: keep one of ${other} and ${file}`);
    seen.set(stream, file);
  }
}

function requireKnown(folder: string, streams: StreamFile[], known: string[]): void {
  const present = new Set(streams.map(({file}) => file));
  const missing = known.filter(file => !present.has(file));
  if (missing.length > 0)
    throw new CliError(
      `${missing[0]} is missing in ${folder}, though ${CHECKSUMS_FILE} names it: create the streams again with --force`,
    );
  for (const stream of streams) {
    if (stream.known === undefined)
      throw new CliError(
        `${stream.path} is not in ${CHECKSUMS_FILE}: move the file away, or delete ${CHECKSUMS_FILE} to upload every stream of the folder`,
      );
    if (stream.known.bytes !== stream.bytes) throw changedError(stream);
  }
}
