/** A bucket that makes the stream objects of a scene on demand, and counts operations as Cloud Storage bills them. */
import {setTimeout as sleep} from 'node:timers/promises';
import {iso} from '../../shared/domain/time.ts';
import type {ObjectInfo, Objects} from '../../shared/ports.ts';

/** Class A: pages of a listing, a thousand objects each, and writes. Class B: looks and reads. */
export type BucketUsage = {class_a: number; class_b: number};

const PAGE = 1000;

export class SceneBucket implements Objects {
  readonly bucket = 'bench';
  readonly usage: BucketUsage = {class_a: 0, class_b: 0};
  readonly #stored = new Map<string, ObjectInfo>();
  /** The names of the streams in order. */
  readonly #streams: readonly string[];
  readonly #latency_ms: number;
  readonly #textOf: (name: string) => string | undefined;
  /** Called at every read. */
  onRead = () => {};
  /** Result in the manifest that was written last. */
  result: {streams: number} | undefined;

  /** `textOf`: the text of an object that is read. */
  constructor(
    streams: readonly string[],
    latency_ms: number,
    textOf: (name: string) => string | undefined = () => undefined,
  ) {
    this.#streams = streams;
    this.#latency_ms = latency_ms;
    this.#textOf = textOf;
  }

  put(name: string, size_bytes: number, metadata: Record<string, string>): void {
    this.#stored.set(name, {...contentOf(name), size_bytes, metadata});
  }

  async list(prefix: string, {start = '', limit}: {start?: string; limit?: number} = {}) {
    const isThere = (name: string) => name.startsWith(prefix) && name >= start;
    const found = prefix.startsWith('datasets/')
      ? this.#streams.filter(isThere).slice(0, limit).map(contentOf)
      : [...this.#stored.values()].filter(({name}) => isThere(name)).slice(0, limit);
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    this.usage.class_a += pages;
    await this.#wait(pages);
    return found;
  }

  async head(name: string) {
    this.usage.class_b += 1;
    await this.#wait(1);
    return this.#stored.get(name) ?? (/^datasets.*jsonl$/.test(name) ? contentOf(name) : undefined);
  }

  /** A look and a download. */
  async read(name: string) {
    this.usage.class_b += 2;
    this.onRead();
    await this.#wait(2);
    const text = this.#textOf(name);
    return text === undefined ? undefined : Buffer.from(text);
  }

  async create(name: string, bytes: Uint8Array) {
    this.usage.class_a += 1;
    if (name.endsWith('manifest.json')) this.result = JSON.parse(Buffer.from(bytes).toString()).result;
    return 'created' as const;
  }

  async replace() {
    this.usage.class_a += 1;
    return 'replaced' as const;
  }

  async delete() {}

  async #wait(round_trips: number): Promise<void> {
    if (this.#latency_ms > 0) await sleep(round_trips * this.#latency_ms);
  }
}

/** Facts of a stream object of a scene. */
export function contentOf(name: string): ObjectInfo {
  return {
    name,
    generation: '1700000000000001',
    size_bytes: 100_000_000,
    crc32c: 'AAAAAA==',
    created_at: iso(0),
    metadata: {},
  };
}
