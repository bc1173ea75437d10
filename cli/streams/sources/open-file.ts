import {createReadStream} from 'node:fs';
import {createGunzip} from 'node:zlib';
import {CliError} from '../../terminal/errors.ts';
import {isGzip} from './formats.ts';
import type {Watch} from './row.ts';

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
