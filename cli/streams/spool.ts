import {mkdir, readFile, rm} from 'node:fs/promises';
import {join} from 'node:path';
import {type AppendedFile, openAppended} from './appended-file.ts';

/** Each bucket is read as a whole, so its size bounds the memory. */
const BUCKET_BYTES = 64 << 20;
const MOST_BUCKETS = 256;
const BUFFER_BYTES = 128 << 10;
/** Place and length of a line. */
const HEADER_BYTES = 8;

/** Lines of a range of places: a file of headers and lines. */
type Bucket = {path: string; file: AppendedFile};

/** Opens a spool: lines that are written in one order and read in another. Reads and writes are sequential. `bytes`: about the size of all lines. */
export async function openSpool(folder: string, lines: number, bytes: number) {
  await mkdir(folder, {recursive: true});
  const count = Math.max(1, Math.min(MOST_BUCKETS, Math.ceil(bytes / BUCKET_BYTES), lines));
  const buckets: Bucket[] = [];
  for (let index = 0; index < count; index++) {
    const path = join(folder, String(index));
    buckets.push({path, file: await openAppended(path, BUFFER_BYTES)});
  }
  return {
    async write(line: Buffer, place: number): Promise<void> {
      const header = Buffer.allocUnsafe(HEADER_BYTES);
      header.writeUInt32LE(place, 0);
      header.writeUInt32LE(line.length, 4);
      const bucket = buckets[Math.floor((place * count) / lines)];
      // A copy, because the line may be a part of a much larger buffer.
      await bucket?.file.add(header, Buffer.from(line));
    },
    /** Lines in the order of their places. */
    async *read(): AsyncGenerator<Buffer[]> {
      for (const {path, file} of buckets) {
        await file.close();
        const content = await readFile(path);
        await rm(path);
        yield linesOf(content);
      }
    },
    async remove(): Promise<void> {
      for (const {file} of buckets) await file.abandon();
      await rm(folder, {recursive: true, force: true});
    },
  };
}

function linesOf(bytes: Buffer): Buffer[] {
  const lines: {place: number; line: Buffer}[] = [];
  for (let at = 0; at < bytes.length; ) {
    const start = at + HEADER_BYTES;
    const end = start + bytes.readUInt32LE(at + 4);
    lines.push({place: bytes.readUInt32LE(at), line: bytes.subarray(start, end)});
    at = end;
  }
  return lines.sort((a, b) => a.place - b.place).map(({line}) => line);
}
