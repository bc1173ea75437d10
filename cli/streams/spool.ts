import {type FileHandle, open} from 'node:fs/promises';

const BUFFER_BYTES = 1 << 20;

/** File of lines that are read back in another order. Keeps 12 bytes a line in memory. */
export class Spool {
  readonly #handle: FileHandle;
  /** Start of each line in the order of its arrival. */
  readonly #starts: Float64Array;
  /** Number of arrival of the line at each place. */
  readonly #arrivals: Uint32Array;
  #pending: Buffer[] = [];
  #pending_bytes = 0;
  #written = 0;
  #lines = 0;

  static async open(path: string, lines: number): Promise<Spool> {
    return new Spool(await open(path, 'w+'), lines);
  }

  private constructor(handle: FileHandle, lines: number) {
    this.#handle = handle;
    this.#starts = new Float64Array(lines + 1);
    this.#arrivals = new Uint32Array(lines);
  }

  async write(line: Buffer, place: number): Promise<void> {
    this.#arrivals[place] = this.#lines++;
    this.#pending.push(line);
    this.#pending_bytes += line.length;
    this.#starts[this.#lines] = this.#written + this.#pending_bytes;
    if (this.#pending_bytes >= BUFFER_BYTES) await this.#flush();
  }

  /** Lines by place. */
  async *read(): AsyncGenerator<Buffer> {
    await this.#flush();
    for (const arrival of this.#arrivals) {
      const start = this.#starts[arrival] as number;
      const line = Buffer.alloc((this.#starts[arrival + 1] as number) - start);
      await this.#handle.read(line, 0, line.length, start);
      yield line;
    }
  }

  async close(): Promise<void> {
    await this.#handle.close().catch(() => {});
  }

  async #flush(): Promise<void> {
    const bytes = Buffer.concat(this.#pending, this.#pending_bytes);
    this.#pending = [];
    this.#pending_bytes = 0;
    for (let at = 0; at < bytes.length; ) at += (await this.#handle.write(bytes, at)).bytesWritten;
    this.#written += bytes.length;
  }
}
