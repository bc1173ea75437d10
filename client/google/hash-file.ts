/** Digests of the bytes of a file as they are on the disk. */
import {createHash} from 'node:crypto';
import {createReadStream} from 'node:fs';
import {Crc32c} from '../../emulator/storage/crc32c.ts';

const CHUNK_BYTES = 1 << 20;

/** CRC-32C in the format of Cloud Storage. */
export async function crc32cOf(path: string, stop?: AbortSignal): Promise<string> {
  const crc = new Crc32c();
  await readAll(path, chunk => crc.update(chunk), stop);
  return crc.digest();
}

export async function sha256Of(path: string, stop?: AbortSignal): Promise<string> {
  const hash = createHash('sha256');
  await readAll(path, chunk => hash.update(chunk), stop);
  return hash.digest('hex');
}

async function readAll(path: string, add: (chunk: Buffer) => void, stop?: AbortSignal): Promise<void> {
  for await (const chunk of createReadStream(path, {highWaterMark: CHUNK_BYTES})) {
    stop?.throwIfAborted();
    add(chunk as Buffer);
  }
}
