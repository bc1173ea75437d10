/** Virtual time and the numbers of a seed. Whatever happens is an event at an instant, and the seed decides the order of all events. */

/** Draws that a seed repeats. */
export class Chance {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** A number from 0 to 1. */
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

/** Numbers from 0 to 1 that a seed repeats. */
export function seeded(seed: number): () => number {
  const chance = new Chance(seed);
  return () => chance.next();
}

type Event = {at: number; order: number; run: () => void};

/** Events in the order of their instants. Events of the same instant run in the order in which they were asked for. */
export class Clockwork {
  now: number;
  events = 0;
  readonly #heap: Event[] = [];
  #order = 0;

  constructor(now: number) {
    this.now = now;
  }

  after(delay_ms: number, run: () => void): void {
    this.#add({at: this.now + Math.max(0, delay_ms), order: this.#order++, run});
  }

  #add(event: Event): void {
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

  /** Runs every event up to `until`. All work of an event is at rest before the next event. */
  async run(until: number, isOver: () => boolean = () => false): Promise<void> {
    for (let next = this.#heap[0]; next && next.at <= until && !isOver(); next = this.#heap[0]) {
      this.#takeFirst();
      this.now = next.at;
      this.events += 1;
      next.run();
      await this.rest();
    }
    if (!isOver()) this.now = Math.max(this.now, until);
  }

  /** Waits for the work of an event: a tick comes after all its microtasks, and needs no turn of the event loop. */
  rest(): Promise<void> {
    return new Promise(resolve => process.nextTick(resolve));
  }

  /** Runs the events that are due, without the events that they ask for. */
  runDue(): void {
    const due: Event[] = [];
    for (let next = this.#heap[0]; next && next.at <= this.now; next = this.#heap[0]) {
      this.#takeFirst();
      due.push(next);
    }
    for (const event of due) event.run();
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
