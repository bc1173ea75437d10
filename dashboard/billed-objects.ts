/** The bucket as pages read it: an object is fetched again when it has changed, and each operation is counted. */
import {UNIT_PRICES} from '../shared/domain/billing/unit-prices.ts';
import type {ObjectInfo, Objects} from '../shared/ports/ports.ts';

const MOST_KEPT_BYTES = 64_000_000;

export function billedObjects(
  objects: Objects,
  spend: (operation: Operation, count: number) => void,
): Objects {
  const cache = new Map<string, {generation: string; bytes: Uint8Array}>();
  const head = (name: string): Promise<ObjectInfo | undefined> => {
    spend('class_b', 1);
    return objects.head(name);
  };
  const refuse = (): never => {
    throw new Error('A page reads objects and writes none');
  };
  return {
    bucket: objects.bucket,
    head,
    list: (prefix, options) => {
      spend('class_a', 1);
      return objects.list(prefix, options);
    },
    read: async (name, options) => {
      const info = await head(name);
      if (!info) return undefined;
      const known = cache.get(name);
      if (known?.generation === info.generation) return known.bytes;
      spend('class_b', 1);
      const bytes = await objects.read(name, options);
      cache.delete(name);
      if (bytes) cache.set(name, {generation: info.generation, bytes});
      let size = [...cache.values()].reduce((sum, each) => sum + each.bytes.length, 0);
      for (const [oldest, {bytes: old}] of cache) {
        if (size <= MOST_KEPT_BYTES) break;
        size -= old.length;
        cache.delete(oldest);
      }
      return bytes;
    },
    readRange: (...of) => {
      spend('class_b', 1);
      return objects.readRange(...of);
    },
    create: refuse,
    replace: refuse,
    move: refuse,
    delete: refuse,
  };
}

const MONTH_MS = 30 * 86_400_000;
const USD_A_MONTH = 1;
const MOST_USD = USD_A_MONTH / 30;

/** Operations that are billed: documents of Firestore, and operations of Cloud Storage of class A and B. */
export type Operation = 'firestore_read' | 'class_a' | 'class_b';

export class Allowance {
  #usd = MOST_USD;
  #at_ms: number;
  readonly #now: () => number;

  constructor(now: () => number) {
    this.#now = now;
    this.#at_ms = now();
  }

  spend(operation: Operation, count: number): void {
    this.#grow();
    this.#usd -= count * UNIT_PRICES[operation];
  }

  /** Milliseconds until the dollars that are spent have come in. 0: a poll may start. */
  waitMs(): number {
    this.#grow();
    return this.#usd >= 0 ? 0 : Math.ceil((-this.#usd / USD_A_MONTH) * MONTH_MS);
  }

  #grow(): void {
    const now = this.#now();
    this.#usd = Math.min(MOST_USD, this.#usd + ((now - this.#at_ms) / MONTH_MS) * USD_A_MONTH);
    this.#at_ms = now;
  }
}
