/** Virtual time: everything that happens is an event with an instant, and one seed decides the order of all of them. */

/** Numbers from 0 to 1 that a seed repeats, and what is drawn with them. */
export class Chance {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  happens(probability: number): boolean {
    return probability > 0 && this.next() < probability;
  }

  between(low: number, high: number): number {
    return low + this.next() * (high - low);
  }

  integer(low: number, high: number): number {
    return Math.floor(this.between(low, high + 1));
  }

  pick<T>(items: readonly T[]): T {
    const item = items[Math.floor(this.next() * items.length)];
    if (item === undefined) throw new Error('Nothing to pick from');
    return item;
  }
}

type Event = {at: number; order: number; run: () => void};

/** Events by their instant, and by the order in which they were asked for when the instants are equal. */
export class Clockwork {
  now: number;
  events = 0;
  readonly #heap: Event[] = [];
  #order = 0;

  constructor(now: number) {
    this.now = now;
  }

  after(delay_ms: number, run: () => void): void {
    const event = {at: this.now + Math.max(0, delay_ms), order: this.#order++, run};
    const heap = this.#heap;
    let place = heap.length;
    heap.push(event);
    while (place > 0) {
      const parent = (place - 1) >> 1;
      const above = heap[parent] as Event;
      if (isBefore(above, event)) break;
      heap[place] = above;
      place = parent;
    }
    heap[place] = event;
  }

  /** Lets everything up to `until` happen; what an event sets going has come to rest before the next one. */
  async run(until: number, isOver: () => boolean = () => false): Promise<void> {
    for (let next = this.#heap[0]; next && next.at <= until && !isOver(); next = this.#heap[0]) {
      this.#takeFirst();
      this.now = next.at;
      this.events += 1;
      next.run();
      // A tick comes after every microtask that the event set going, and needs no turn of the event loop.
      await new Promise<void>(resolve => process.nextTick(resolve));
    }
    if (!isOver()) this.now = Math.max(this.now, until);
  }

  #takeFirst(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (!last || heap.length === 0) return;
    let place = 0;
    for (;;) {
      let child = 2 * place + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && isBefore(heap[child + 1] as Event, heap[child] as Event)) child += 1;
      if (isBefore(last, heap[child] as Event)) break;
      heap[place] = heap[child] as Event;
      place = child;
    }
    heap[place] = last;
  }
}

function isBefore(a: Event, b: Event): boolean {
  return a.at < b.at || (a.at === b.at && a.order < b.order);
}
