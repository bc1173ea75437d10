import {createHash} from 'node:crypto';
import {join} from 'node:path';
import {Crc32c} from '../../emulator/storage/crc32c.ts';
import {streamId} from '../../shared/domain/names.ts';
import {AppendedFile} from './appended-file.ts';
import type {StreamChecksum} from './checksums.ts';

const BUFFER_BYTES = 1 << 20;
const NEWLINE = Buffer.from('\n');

export function streamFile(index: number): string {
  return `stream_${streamId(index)}.jsonl`;
}

/** A stream that is being written, with the digests of its bytes so far. */
type OpenStream = {
  name: string;
  file: AppendedFile;
  sha256: ReturnType<typeof createHash>;
  crc32c: Crc32c;
  bytes: number;
  samples: number;
};

/** Writes `stream_000.jsonl` and so on, one after the other, with the given numbers of lines. */
export class StreamWriter {
  readonly #folder: string;
  readonly #sizes: readonly number[];
  readonly #done: StreamChecksum[] = [];
  #open: OpenStream | undefined;

  constructor(folder: string, sizes: readonly number[]) {
    this.#folder = folder;
    this.#sizes = sizes;
  }

  get done(): readonly StreamChecksum[] {
    return this.#done;
  }

  /** Adds a line without its newline. A line must follow until every stream is full. */
  async write(line: Buffer): Promise<void> {
    this.#open ??= await this.#next();
    this.#open.samples++;
    await this.#open.file.add(line, NEWLINE);
    if (this.#open.samples < (this.#sizes[this.#done.length] ?? 0)) return;
    const {name, file, sha256, crc32c, samples} = this.#open;
    await file.close({durable: true});
    const {bytes} = this.#open;
    this.#open = undefined;
    this.#done.push({file: name, sha256: sha256.digest('hex'), crc32c: crc32c.digest(), bytes, samples});
  }

  async #next(): Promise<OpenStream> {
    const name = streamFile(this.#done.length);
    const digests = {sha256: createHash('sha256'), crc32c: new Crc32c(), bytes: 0};
    const file = await AppendedFile.open(join(this.#folder, name), BUFFER_BYTES, bytes => {
      digests.sha256.update(bytes);
      digests.crc32c.update(bytes);
      digests.bytes += bytes.length;
    });
    return Object.assign(digests, {name, file, samples: 0});
  }

  /** Closes an incomplete stream. */
  async abandon(): Promise<void> {
    await this.#open?.file.abandon();
  }
}
