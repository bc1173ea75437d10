/** The bucket of a scene: it makes stream objects on demand and counts operations as Cloud Storage bills them. */
import {setTimeout as sleep} from 'node:timers/promises';
import {iso} from '../../shared/domain/time.ts';
import type {ObjectInfo, Objects} from '../../shared/ports/ports.ts';
import {FakeBucket} from '../../test/world/bucket.ts';

/** Class A: pages of a listing, a thousand objects each, and writes. Class B: looks and reads. */
export type BucketUsage = {class_a: number; class_b: number};

const PAGE = 1000;
/** A read is a look and a download. */
const CLASS_B: Record<string, number> = {head: 1, read: 2};

export class SceneBucket extends FakeBucket {
  readonly usage: BucketUsage = {class_a: 0, class_b: 0};
  /** The names of the streams in order. */
  readonly #streams: readonly string[];
  readonly #textOf: (name: string) => string | undefined;

  /** `textOf`: the text of an object that is read. */
  constructor(streams: readonly string[], textOf: (name: string) => string | undefined = () => undefined) {
    super(() => 0);
    this.#streams = streams;
    this.#textOf = textOf;
  }

  override info(name: string): ObjectInfo | undefined {
    return super.info(name) ?? (/^datasets.*jsonl$/.test(name) ? contentOf(name) : undefined);
  }

  override names(prefix: string, start = ''): string[] {
    if (!prefix.startsWith('datasets/')) return super.names(prefix, start);
    return this.#streams.filter(name => name.startsWith(prefix) && name >= start);
  }

  override read(name: string, options: {max_bytes: number}): Uint8Array | undefined {
    const text = this.#textOf(name);
    return text === undefined ? super.read(name, options) : Buffer.from(text);
  }

  /** The bucket with a pause for each round trip. */
  counted(latency_ms: number): Objects {
    return this.through(async (verb, effect) => {
      const answer = effect();
      const pages = Array.isArray(answer) ? Math.max(1, Math.ceil(answer.length / PAGE)) : 1;
      const class_b = CLASS_B[verb];
      if (class_b !== undefined) this.usage.class_b += class_b;
      else if (verb !== 'delete') this.usage.class_a += pages;
      if (latency_ms > 0) await sleep((class_b ?? pages) * latency_ms);
      return answer;
    });
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
