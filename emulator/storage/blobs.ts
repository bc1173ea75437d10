import {createHash, randomUUID} from 'node:crypto';
import {
  chmodSync,
  createReadStream,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import {type FileHandle, link, open, rm} from 'node:fs/promises';
import {join} from 'node:path';
import type {Readable} from 'node:stream';
import {Crc32c} from './crc32c.ts';

export type Checksums = {size_bytes: number; crc32c: string; md5: string};

/** Size, CRC-32C and MD5 of bytes that arrive in chunks. */
export class ChecksumStream {
  readonly #crc32c = new Crc32c();
  readonly #md5 = createHash('md5');
  size_bytes = 0;

  update(chunk: Uint8Array): void {
    this.#crc32c.update(chunk);
    this.#md5.update(chunk);
    this.size_bytes += chunk.length;
  }

  /** Call once, after the last chunk: a finished MD5 accepts no further bytes. */
  finish(): Checksums {
    return {size_bytes: this.size_bytes, crc32c: this.#crc32c.digest(), md5: this.#md5.digest('base64')};
  }
}

/** Stored bytes that do not belong to an object yet. */
export type Draft = {file: string} & Checksums;

/**
 * Object bytes: drafts in `uploads/`, finished blobs in `blobs/{generation}`. A draft is fsynced and renamed before its row is committed, so
 * the blob of every row is complete. `index/{generation}` has a copy of the row, in case the database is lost. At a start, blobs and copies
 * without a row are removed.
 */
export class Blobs {
  readonly #blobs: string;
  readonly #uploads: string;
  readonly #index: string;

  constructor(dir: string) {
    this.#blobs = join(dir, 'blobs');
    this.#uploads = join(dir, 'uploads');
    this.#index = join(dir, 'index');
    mkdirSync(this.#index, {recursive: true});
    mkdirSync(this.#blobs, {recursive: true});
    mkdirSync(this.#uploads, {recursive: true});
  }

  file(generation: number): string {
    return join(this.#blobs, String(generation));
  }

  uploadFile(upload_id: string): string {
    return join(this.#uploads, upload_id);
  }

  /** Stores `body` completely, or nothing if `body` fails. */
  async draft(body: AsyncIterable<Uint8Array>): Promise<Draft> {
    const file = this.uploadFile(`draft-${randomUUID()}`);
    const checksums = new ChecksumStream();
    const handle = await open(file, 'wx');
    try {
      for await (const chunk of body) {
        await writeAll(handle, chunk);
        checksums.update(chunk);
      }
      await handle.sync();
    } catch (error) {
      await handle.close();
      await this.discard(file);
      throw error;
    }
    await handle.close();
    return {file, ...checksums.finish()};
  }

  /** Adds a hard link to a blob, which makes a copy without copying bytes. */
  async draftOf(generation: number): Promise<string> {
    const file = this.uploadFile(`draft-${randomUUID()}`);
    await link(this.file(generation), file);
    return file;
  }

  /** Turns a draft into the blob of a generation. Synchronous, because the transaction that assigns the generation calls it. */
  seal(draft_file: string, generation: number): void {
    chmodSync(draft_file, 0o444);
    renameSync(draft_file, this.file(generation));
  }

  /** Keeps a copy of the row of an object. */
  note(generation: number, row: object): void {
    writeFileSync(join(this.#index, String(generation)), `${JSON.stringify(row)}\n`);
  }

  /** The copies of rows whose blob is complete, the oldest first. A crash may have truncated a copy before its row was committed. */
  noted<Row extends {generation: number; size_bytes: number}>(): Row[] {
    const texts = readdirSync(this.#index).map(name => readFileSync(join(this.#index, name), 'utf8'));
    const rows: Row[] = texts.filter(text => text.endsWith('}\n')).map(text => JSON.parse(text));
    const isWhole = ({generation, size_bytes}: Row) => sizeOf(this.file(generation)) === size_bytes;
    return rows.filter(isWhole).sort((one, other) => one.generation - other.generation);
  }

  async discard(file: string): Promise<void> {
    await rm(file, {force: true});
  }

  async drop(generation: number): Promise<void> {
    await rm(this.file(generation), {force: true});
    await rm(join(this.#index, String(generation)), {force: true});
  }

  /** Opens a blob. An open blob stays readable after an overwrite or a delete of its object. */
  async open(generation: number): Promise<FileHandle> {
    return open(this.file(generation), 'r');
  }

  /** Removes blobs without an object and drafts without an upload, which a crash leaves behind. Returns their count. */
  sweep(isObject: (generation: number) => boolean, isUpload: (id: string) => boolean): number {
    let swept = 0;
    for (const [folder, isKept] of [
      [this.#blobs, (name: string) => isObject(Number(name))],
      [this.#index, (name: string) => isObject(Number(name))],
      [this.#uploads, isUpload],
    ] as const) {
      for (const name of readdirSync(folder)) {
        if (isKept(name)) continue;
        rmSync(join(folder, name), {force: true, recursive: true});
        swept += 1;
      }
    }
    return swept;
  }
}

export async function writeAll(handle: FileHandle, chunk: Uint8Array): Promise<void> {
  for (let written = 0; written < chunk.length; ) {
    written += (await handle.write(chunk, written)).bytesWritten;
  }
}

export function readFrom(handle: FileHandle, start: number, end: number): Readable {
  return handle.createReadStream({start, end, autoClose: true, highWaterMark: 1 << 18});
}

/** Checksums of a file from its first byte, for an upload that began in an earlier process. */
export async function checksumsOfFile(file: string): Promise<ChecksumStream> {
  const checksums = new ChecksumStream();
  for await (const chunk of createReadStream(file, {highWaterMark: 1 << 18}))
    checksums.update(chunk as Buffer);
  return checksums;
}

export function sizeOf(file: string): number {
  return statSync(file, {throwIfNoEntry: false})?.size ?? 0;
}
