import {type FileHandle, open} from 'node:fs/promises';

/** New file that grows by whole buffers. */
export class AppendedFile {
  readonly #handle: FileHandle;
  readonly #buffer_bytes: number;
  readonly #written: (bytes: Buffer) => void;
  #pending: Buffer[] = [];
  #pending_bytes = 0;

  static async open(path: string, buffer_bytes: number, written?: (bytes: Buffer) => void) {
    return new AppendedFile(await open(path, 'w'), buffer_bytes, written);
  }

  /** `written` gets the bytes in their order. */
  private constructor(handle: FileHandle, buffer_bytes: number, written: (bytes: Buffer) => void = () => {}) {
    this.#handle = handle;
    this.#buffer_bytes = buffer_bytes;
    this.#written = written;
  }

  async add(...parts: Buffer[]): Promise<void> {
    this.#pending.push(...parts);
    for (const {length} of parts) this.#pending_bytes += length;
    if (this.#pending_bytes >= this.#buffer_bytes) await this.#flush();
  }

  /** Writes the rest, and closes the file. `durable`: the bytes are on the disk afterwards. */
  async close({durable = false}: {durable?: boolean} = {}): Promise<void> {
    await this.#flush();
    if (durable) await this.#handle.sync();
    await this.#handle.close();
  }

  /** Closes a file that is not wanted any more. */
  async abandon(): Promise<void> {
    await this.#handle.close().catch(() => {});
  }

  async #flush(): Promise<void> {
    const bytes = Buffer.concat(this.#pending, this.#pending_bytes);
    this.#pending = [];
    this.#pending_bytes = 0;
    this.#written(bytes);
    for (let at = 0; at < bytes.length; ) at += (await this.#handle.write(bytes, at)).bytesWritten;
  }
}
