import {createReadStream} from 'node:fs';
import {stat} from 'node:fs/promises';
import {createGunzip} from 'node:zlib';
import {CliError} from '../../terminal/errors.ts';
import {sha256Of} from '../hash-file.ts';
import {isGzip} from './formats.ts';
import type {Row, RowSource, SourceIdentity, Watch} from './row.ts';

/** Local file of rows. */
export abstract class FileSource implements RowSource {
  readonly name: string;
  abstract readonly unit: 'line' | 'row';

  constructor(name: string) {
    this.name = name;
  }

  abstract rows(watch: Watch, columns: readonly string[] | undefined): AsyncIterable<Row[]>;

  async identity(watch: Watch): Promise<SourceIdentity> {
    const found = await stat(this.name).catch((cause: Error) => {
      throw new CliError(`Failed to read ${this.name}: ${cause.message}`, {cause});
    });
    if (!found.isFile()) throw new CliError(`${this.name} is no regular file: copy its rows into a file`);
    const bytes = found.size;
    return {source: this.name, bytes, sha256: await sha256Of(this.name, watch.stop)};
  }

  async count(watch: Watch, most: number): Promise<number> {
    let found = 0;
    for await (const rows of this.rows(watch, [])) {
      found += rows.length;
      if (found >= most) return most;
    }
    return found;
  }
}

const CHUNK_BYTES = 1 << 20;

const BYTE_ORDER_MARK = Buffer.from('\ufeff');

/** Bytes of a file without a byte-order mark, of a `.gz` file the unpacked ones. */
export async function* bytesOf(file: string, {stop, moved}: Watch): AsyncGenerator<Buffer> {
  const raw = createReadStream(file, {highWaterMark: CHUNK_BYTES});
  raw.on('data', chunk => moved(chunk.length));
  const gunzip = isGzip(file) ? raw.pipe(createGunzip({chunkSize: CHUNK_BYTES})) : undefined;
  // An error of the file does not pass through a pipe by itself.
  raw.on('error', error => gunzip?.destroy(error));
  let isFirst = true;
  try {
    for await (const chunk of (gunzip ?? raw) as AsyncIterable<Buffer>) {
      stop.throwIfAborted();
      yield isFirst && chunk.subarray(0, 3).equals(BYTE_ORDER_MARK) ? chunk.subarray(3) : chunk;
      isFirst = false;
    }
  } catch (error) {
    stop.throwIfAborted();
    throw new CliError(`Failed to read ${file}: ${(error as Error).message}`, {cause: error});
  } finally {
    raw.destroy();
    gunzip?.destroy();
  }
}
