import {createHash} from 'node:crypto';
import {type FileHandle, open} from 'node:fs/promises';
import {join} from 'node:path';
import {Crc32c} from '../../shared/contracts/crc32c.ts';
import {streamId} from '../../shared/domain/names.ts';
import type {StreamChecksum} from './checksums.ts';

const BUFFER_BYTES = 1 << 20;
const NEWLINE = Buffer.from('\n');

/** `stream_007.jsonl`. */
export function streamFile(index: number): string {
  return `stream_${streamId(index)}.jsonl`;
}

/** Writes lines into one file, with its checksums. */
class StreamFile {
  readonly #file: string;
  readonly #handle: FileHandle;
  readonly #sha256 = createHash('sha256');
  readonly #crc32c = new Crc32c();
  #pending: Buffer[] = [];
  #pending_bytes = 0;
  #bytes = 0;
  #samples = 0;

  constructor(file: string, handle: FileHandle) {
    this.#file = file;
    this.#handle = handle;
  }

  async write(line: Buffer): Promise<void> {
    this.#pending.push(line, NEWLINE);
    this.#pending_bytes += line.length + 1;
    this.#samples++;
    if (this.#pending_bytes >= BUFFER_BYTES) await this.#flush();
  }

  async close(): Promise<StreamChecksum> {
    await this.#flush();
    await this.#handle.sync();
    await this.#handle.close();
    return {
      file: this.#file,
      sha256: this.#sha256.digest('hex'),
      crc32c: this.#crc32c.digest(),
      bytes: this.#bytes,
      samples: this.#samples,
    };
  }

  async abandon(): Promise<void> {
    await this.#handle.close().catch(() => {});
  }

  async #flush(): Promise<void> {
    const bytes = Buffer.concat(this.#pending, this.#pending_bytes);
    this.#pending = [];
    this.#pending_bytes = 0;
    this.#sha256.update(bytes);
    this.#crc32c.update(bytes);
    this.#bytes += bytes.length;
    for (let at = 0; at < bytes.length; ) at += (await this.#handle.write(bytes, at)).bytesWritten;
  }
}

/** Writes `stream_000.jsonl` and so on, one after the other, with the given numbers of lines. */
export class StreamWriter {
  readonly #folder: string;
  readonly #sizes: readonly number[];
  readonly #done: StreamChecksum[] = [];
  #open: StreamFile | undefined;
  #lines = 0;

  constructor(folder: string, sizes: readonly number[]) {
    this.#folder = folder;
    this.#sizes = sizes;
  }

  /** Complete streams. */
  get done(): readonly StreamChecksum[] {
    return this.#done;
  }

  /** Adds a line without its newline. A line must follow until every stream is full. */
  async write(line: Buffer): Promise<void> {
    const file = streamFile(this.#done.length);
    this.#open ??= new StreamFile(file, await open(join(this.#folder, file), 'w'));
    await this.#open.write(line);
    this.#lines++;
    if (this.#lines < (this.#sizes[this.#done.length] ?? 0)) return;
    this.#done.push(await this.#open.close());
    this.#open = undefined;
    this.#lines = 0;
  }

  /** Closes an incomplete stream. */
  async abandon(): Promise<void> {
    await this.#open?.abandon();
  }
}
