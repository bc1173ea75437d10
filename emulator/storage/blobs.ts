import {createHash, randomUUID} from 'node:crypto';
import {chmodSync, createReadStream, mkdirSync, readdirSync, renameSync, rmSync, statSync} from 'node:fs';
import {type FileHandle, link, open, rm} from 'node:fs/promises';
import {join} from 'node:path';
import type {Readable} from 'node:stream';
import {Crc32c} from './crc32c.ts';

export type Checksums = {size_bytes: number; crc32c: string; md5: string};

/** Sums as bytes go by. */
export class Summer {
  readonly #crc32c = new Crc32c();
  readonly #md5 = createHash('md5');
  size_bytes = 0;

  update(chunk: Uint8Array): void {
    this.#crc32c.update(chunk);
    this.#md5.update(chunk);
    this.size_bytes += chunk.length;
  }

  /** Once only: an md5 cannot go on after it was read. */
  finish(): Checksums {
    return {size_bytes: this.size_bytes, crc32c: this.#crc32c.digest(), md5: this.#md5.digest('base64')};
  }
}

/** A file of bytes that no object names yet. */
export type Draft = {file: string} & Checksums;

/**
 * Object bytes: drafts in `uploads/`, finished ones in `blobs/{generation}`. A draft is fsynced and renamed before the row
 * that names it is committed, so a blob that a row names is whole; a blob that no row names is rubbish, swept at start.
 */
export class Blobs {
  readonly #blobs: string;
  readonly #uploads: string;

  constructor(dir: string) {
    this.#blobs = join(dir, 'blobs');
    this.#uploads = join(dir, 'uploads');
    mkdirSync(this.#blobs, {recursive: true});
    mkdirSync(this.#uploads, {recursive: true});
  }

  file(generation: number): string {
    return join(this.#blobs, String(generation));
  }

  uploadFile(upload_id: string): string {
    return join(this.#uploads, upload_id);
  }

  /** Stores all of `body`, or nothing when it breaks off. */
  async draft(body: AsyncIterable<Uint8Array>): Promise<Draft> {
    const file = this.uploadFile(`draft-${randomUUID()}`);
    const summer = new Summer();
    const handle = await open(file, 'wx');
    try {
      for await (const chunk of body) {
        await writeAll(handle, chunk);
        summer.update(chunk);
      }
      await handle.sync();
    } catch (error) {
      await handle.close();
      await this.discard(file);
      throw error;
    }
    await handle.close();
    return {file, ...summer.finish()};
  }

  /** A second name for the bytes of a blob: copies cost nothing. */
  async draftOf(generation: number): Promise<string> {
    const file = this.uploadFile(`draft-${randomUUID()}`);
    await link(this.file(generation), file);
    return file;
  }

  /** Synchronous, so that it can stand inside the transaction that gives out the generation. */
  seal(draft_file: string, generation: number): void {
    chmodSync(draft_file, 0o444);
    renameSync(draft_file, this.file(generation));
  }

  async discard(file: string): Promise<void> {
    await rm(file, {force: true});
  }

  async drop(generation: number): Promise<void> {
    await rm(this.file(generation), {force: true});
  }

  /** Opened before the answer begins, so a later overwrite or delete does not touch a reader. */
  async open(generation: number): Promise<FileHandle> {
    return open(this.file(generation), 'r');
  }

  /** Takes away what a crash left: blobs of no object, drafts of no upload. */
  sweep(isObject: (generation: number) => boolean, isUpload: (id: string) => boolean): number {
    let swept = 0;
    for (const [folder, isKept] of [
      [this.#blobs, (name: string) => isObject(Number(name))],
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

/** Sums a file from the start: for an upload that outlived the process that began it. */
export async function sumFile(file: string): Promise<Summer> {
  const summer = new Summer();
  for await (const chunk of createReadStream(file, {highWaterMark: 1 << 18})) summer.update(chunk as Buffer);
  return summer;
}

export function sizeOf(file: string): number {
  return statSync(file, {throwIfNoEntry: false})?.size ?? 0;
}
