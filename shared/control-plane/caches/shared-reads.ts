import type {Now} from '../../ports/ports.ts';

const MOST_KNOWN = 1000;

/** Reads by key; requests at about the same time share one. */
export class SharedReads<Value> {
  readonly #reads = new Map<string, {at_ms: number; value: Promise<Value>}>();

  /** Returns the value as it was at `since_ms` or later. A failed read is never shared, nor is one from before the clock was set back. */
  readSince(key: string, since_ms: number, now: Now, read: () => Promise<Value>): Promise<Value> {
    const known = this.#reads.get(key);
    if (known && known.at_ms >= since_ms && known.at_ms <= now()) return known.value;
    if (this.#reads.size >= MOST_KNOWN) this.#reads.clear();
    const next = {at_ms: now(), value: read()};
    this.#reads.set(key, next);
    next.value.catch(() => {
      if (this.#reads.get(key) === next) this.#reads.delete(key);
    });
    return next.value;
  }
}
