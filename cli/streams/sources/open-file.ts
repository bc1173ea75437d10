import {createHash} from 'node:crypto';
import {createReadStream} from 'node:fs';
import {createGunzip} from 'node:zlib';
import {CliError} from '../../terminal/errors.ts';
import {isGzip} from './formats.ts';
import type {Watch} from './row.ts';

const CHUNK_BYTES = 1 << 20;

/** Bytes of a file, of a `.gz` file the unpacked ones. */
export async function* bytesOf(file: string, {stop, moved}: Watch): AsyncGenerator<Buffer> {
  const raw = createReadStream(file, {highWaterMark: CHUNK_BYTES});
  raw.on('data', chunk => moved(chunk.length));
  const gunzip = isGzip(file) ? raw.pipe(createGunzip({chunkSize: CHUNK_BYTES})) : undefined;
  // An error of the file does not pass through a pipe by itself.
  raw.on('error', error => gunzip?.destroy(error));
  try {
    for await (const chunk of (gunzip ?? raw) as AsyncIterable<Buffer>) {
      stop.throwIfAborted();
      yield chunk;
    }
  } catch (error) {
    stop.throwIfAborted();
    throw new CliError(`Failed to read ${file}: ${(error as Error).message}`, {cause: error});
  } finally {
    raw.destroy();
    gunzip?.destroy();
  }
}

/** SHA-256 of the bytes of a file as they are on the disk. */
export async function sha256Of(file: string, {stop}: Watch): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(file, {highWaterMark: CHUNK_BYTES})) {
    stop.throwIfAborted();
    hash.update(chunk);
  }
  return hash.digest('hex');
}
