import {type FileHandle, mkdir, open, readFile, rm} from 'node:fs/promises';
import {join} from 'node:path';

/** Each bucket is read as a whole, so its size bounds the memory. */
const BUCKET_BYTES = 64 << 20;
/** Each bucket has an open file. */
const MOST_BUCKETS = 256;
const BUFFER_BYTES = 128 << 10;
/** Place and length of a line. */
const HEADER_BYTES = 8;

/** Lines that are written in one order and read in another. Reads and writes are sequential. */
export class Spool {
  readonly #folder: string;
  readonly #lines: number;
  readonly #buckets: Bucket[];

  /** `bytes`: about the size of all lines. */
  static async open(folder: string, lines: number, bytes: number): Promise<Spool> {
    await mkdir(folder, {recursive: true});
    const count = Math.max(1, Math.min(MOST_BUCKETS, Math.ceil(bytes / BUCKET_BYTES), lines));
    const buckets: Bucket[] = [];
    for (let index = 0; index < count; index++) {
      const file = join(folder, String(index));
      buckets.push(new Bucket(file, await open(file, 'w')));
    }
    return new Spool(folder, lines, buckets);
  }

  private constructor(folder: string, lines: number, buckets: Bucket[]) {
    this.#folder = folder;
    this.#lines = lines;
    this.#buckets = buckets;
  }

  async write(line: Buffer, place: number): Promise<void> {
    await this.#buckets[Math.floor((place * this.#buckets.length) / this.#lines)]?.write(line, place);
  }

  /** Lines in the order of their places. */
  async *read(): AsyncGenerator<Buffer[]> {
    for (const bucket of this.#buckets) yield await bucket.read();
  }

  async remove(): Promise<void> {
    for (const bucket of this.#buckets) await bucket.close();
    await rm(this.#folder, {recursive: true, force: true});
  }
}

/** Lines of a range of places, in a file of headers and lines. */
class Bucket {
  readonly #file: string;
  readonly #handle: FileHandle;
  #pending: Buffer[] = [];
  #pending_bytes = 0;

  constructor(file: string, handle: FileHandle) {
    this.#file = file;
    this.#handle = handle;
  }

  async write(line: Buffer, place: number): Promise<void> {
    const header = Buffer.allocUnsafe(HEADER_BYTES);
    header.writeUInt32LE(place, 0);
    header.writeUInt32LE(line.length, 4);
    // A copy, because the line may be a part of a much larger buffer.
    this.#pending.push(header, Buffer.from(line));
    this.#pending_bytes += HEADER_BYTES + line.length;
    if (this.#pending_bytes >= BUFFER_BYTES) await this.#flush();
  }

  async read(): Promise<Buffer[]> {
    await this.#flush();
    await this.close();
    const bytes = await readFile(this.#file);
    await rm(this.#file);
    const lines: {place: number; line: Buffer}[] = [];
    for (let at = 0; at < bytes.length; ) {
      const start = at + HEADER_BYTES;
      const end = start + bytes.readUInt32LE(at + 4);
      lines.push({place: bytes.readUInt32LE(at), line: bytes.subarray(start, end)});
      at = end;
    }
    return lines.sort((a, b) => a.place - b.place).map(({line}) => line);
  }

  async close(): Promise<void> {
    await this.#handle.close().catch(() => {});
  }

  async #flush(): Promise<void> {
    const bytes = Buffer.concat(this.#pending, this.#pending_bytes);
    this.#pending = [];
    this.#pending_bytes = 0;
    for (let at = 0; at < bytes.length; ) at += (await this.#handle.write(bytes, at)).bytesWritten;
  }
}
