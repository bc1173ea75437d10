/** Lines of text. */

import {createReadStream} from 'node:fs';
import {open} from 'node:fs/promises';
import {pipeline} from 'node:stream';
import {createGunzip} from 'node:zlib';
import {LIMITS} from './limits.ts';

const NEWLINE = 10;

/** A line with more bytes than the limit, after this number of lines. */
export class LongLine extends Error {
  readonly after: number;

  constructor(after: number) {
    super(`line ${after + 1} is too long`);
    this.after = after;
  }
}

/** Lines without their newline, in batches. No other byte changes. Throws `LongLine`. */
export async function* lineBatches(
  chunks: AsyncIterable<Buffer>,
  most_bytes: number = LIMITS.row_bytes,
): AsyncGenerator<Buffer[]> {
  let pending: Buffer[] = [];
  let pending_bytes = 0;
  let count = 0;
  const take = (last: Buffer) => {
    const line = pending.length === 0 ? last : Buffer.concat([...pending, last]);
    pending = [];
    pending_bytes = 0;
    count++;
    return line;
  };
  for await (const chunk of chunks) {
    const lines: Buffer[] = [];
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      lines.push(take(chunk.subarray(start, end)));
      start = end + 1;
    }
    if (lines.length > 0) yield lines;
    if (start < chunk.length) pending.push(chunk.subarray(start));
    pending_bytes += chunk.length - start;
    if (pending_bytes > most_bytes) throw new LongLine(count);
  }
  if (pending.length > 0) yield [take(Buffer.alloc(0))];
}

/** Bytes of a file in which its first lines lie. */
const FIRST_BYTES = 1 << 20;

/** The first lines of a file, gzip or not, that are no longer than a MiB together and not blank. */
export async function firstLines(path: string, most: number): Promise<string[]> {
  const file = createReadStream(path, {end: FIRST_BYTES - 1});
  // The file is cut, so the end of its gzip is missing.
  const text = (await isGzip(path)) ? pipeline(file, createGunzip({finishFlush: 2}), () => {}) : file;
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of text as AsyncIterable<Buffer>) {
    parts.push(part);
    bytes += part.length;
    if (bytes >= FIRST_BYTES) break;
  }
  const lines = Buffer.concat(parts).toString('utf8').split('\n');
  if (bytes >= FIRST_BYTES) lines.pop();
  return lines.filter(line => line.trim() !== '').slice(0, most);
}

/** True for a line of spaces, tabs and carriage returns. */
export function isBlank(line: Buffer): boolean {
  for (const byte of line) if (byte !== 32 && byte !== 9 && byte !== 13) return false;
  return true;
}

/** True for a file that begins as gzip does. The name says nothing: no line of JSON and no text begins so. */
export async function isGzip(path: string): Promise<boolean> {
  const file = await open(path);
  try {
    const {buffer, bytesRead} = await file.read(Buffer.alloc(2), 0, 2, 0);
    return bytesRead === 2 && buffer[0] === 0x1f && buffer[1] === 0x8b;
  } finally {
    await file.close();
  }
}
