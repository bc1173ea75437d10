import {createReadStream, type ReadStream} from 'node:fs';
import {stat} from 'node:fs/promises';
import {createGunzip} from 'node:zlib';
import {sha256Of} from '../../../client/google/hash-file.ts';
import {CliError} from '../../../client/text/errors.ts';
import {LIMITS, MOST_ROW_MIB} from './limits.ts';
import {isGzip} from './lines.ts';
import type {Columns, Row, RowSource, SourceIdentity, Watch} from './row.ts';

export abstract class FileSource implements RowSource {
  readonly name: string;
  abstract readonly unit: 'line' | 'row';

  /** The most bytes of one row. */
  protected readonly most_row_bytes: number;

  constructor(name: string, most_row_bytes: number = LIMITS.row_bytes) {
    this.name = name;
    this.most_row_bytes = most_row_bytes;
  }

  abstract rows(watch: Watch, columns: Columns | undefined): AsyncIterable<Row[]>;

  async identity(watch: Watch): Promise<SourceIdentity> {
    const found = await stat(this.name).catch((cause: Error) => {
      throw new CliError(`Failed to read ${this.name}: ${cause.message}`, {cause});
    });
    if (!found.isFile()) throw new CliError(`${this.name} is not a regular file: copy its rows into a file`);
    const bytes = found.size;
    return {source: this.name, bytes, sha256: await sha256Of(this.name, watch.stop)};
  }

  async count(watch: Watch, most: number): Promise<number> {
    let found = 0;
    for await (const rows of this.rows(watch, {of: [], also: []})) {
      found += rows.length;
      if (found >= most) return most;
    }
    return found;
  }
}

export function tooLong(file: string, unit: 'line' | 'row', after: number, most_row_bytes: number): CliError {
  return new CliError(
    `${file}, ${unit} ${after + 1}: it has more than ${most_row_bytes >> 20} MiB, the most of one row; correct the file, or raise --max-row-mib (up to ${MOST_ROW_MIB})`,
  );
}

const CHUNK_BYTES = 1 << 20;
const HEAD_BYTES = 1 << 20;

const BYTE_ORDER_MARK = Buffer.from('\ufeff');

/** Bytes of a file without a byte-order mark; of a gzip file, whatever its name is, the unpacked ones. */
export async function* bytesOf(file: string, {stop, moved}: Watch): AsyncGenerator<Buffer> {
  let raw: ReadStream | undefined;
  try {
    const isPacked = await isGzip(file);
    raw = createReadStream(file, {highWaterMark: CHUNK_BYTES});
    raw.on('data', chunk => moved(chunk.length));
    yield* withoutMark(isPacked ? unpacked(raw) : raw, stop);
  } catch (error) {
    stop.throwIfAborted();
    const {code, message} = error as NodeJS.ErrnoException;
    const problem = code?.startsWith('Z_')
      ? `its gzip is damaged or cut off (${message}); copy it again`
      : message;
    throw new CliError(`Failed to read ${file}: ${problem}`, {cause: error});
  } finally {
    raw?.destroy();
  }
}

async function* unpacked(raw: ReadStream): AsyncGenerator<Buffer> {
  const gunzip = raw.pipe(createGunzip({chunkSize: CHUNK_BYTES}));
  // An error of the file does not pass through a pipe by itself.
  raw.on('error', error => gunzip.destroy(error));
  try {
    yield* gunzip as AsyncIterable<Buffer>;
  } finally {
    gunzip.destroy();
  }
}

async function* withoutMark(chunks: AsyncIterable<Buffer>, stop: AbortSignal): AsyncGenerator<Buffer> {
  let first: Buffer | undefined = Buffer.alloc(0);
  for await (const chunk of chunks) {
    stop.throwIfAborted();
    const bytes: Buffer = first?.length ? Buffer.concat([first, chunk]) : chunk;
    if (first && bytes.length < BYTE_ORDER_MARK.length) {
      first = bytes;
      continue;
    }
    yield first && bytes.subarray(0, 3).equals(BYTE_ORDER_MARK) ? bytes.subarray(3) : bytes;
    first = undefined;
  }
  if (first?.length) yield first;
}

export async function headOf(file: string, most = HEAD_BYTES): Promise<{text: string; isWhole: boolean}> {
  const watch: Watch = {stop: new AbortController().signal, moved: () => {}};
  const parts: Buffer[] = [];
  let length = 0;
  for await (const chunk of bytesOf(file, watch)) {
    parts.push(chunk);
    length += chunk.length;
    if (length >= most) break;
  }
  return {text: Buffer.concat(parts).toString('utf8'), isWhole: length < most};
}
