/** Reads of the timeline, the documents `events/{id}`, in the order of `at`. */
import type {Store} from '../../shared/ports/ports.ts';
import {newestFirst} from '../cloud/newest-first.ts';
import {type Entry, entriesOf} from './entry.ts';
import type {EventFilter} from './filter.ts';
import {inOrder} from './order.ts';

/** Functions have clocks of their own, so a new event may be a little older than the newest known. */
const OVERLAP_MS = 60_000;

/** Reads the events that a filter means, each once. */
export class EventReader {
  readonly #store: Store;
  readonly #filter: EventFilter;
  /** Time of the newest event of the first read. */
  #floor = '';
  #newest = '';
  /** Ids of the events since `#newest` minus the overlap. */
  #seen = new Set<string>();

  constructor(store: Store, filter: EventFilter) {
    this.#store = store;
    this.#filter = filter;
  }

  /** The newest events, the oldest first, among the newest `most_read` of all. */
  async newest(most: number, most_read?: number): Promise<Entry[]> {
    const found: Entry[] = [];
    for await (const page of newestFirst(this.#store, 'events', 'at', most_read)) {
      const entries = entriesOf(page);
      this.#advance(entries);
      this.#filter.learn(entries);
      found.push(...entries.filter(entry => this.#filter.isMeant(entry)));
      const oldest = entries.at(-1)?.at ?? '';
      if (found.length >= most || (this.#filter.since !== undefined && oldest < this.#filter.since)) break;
    }
    this.#floor = this.#newest;
    return inOrder(found.slice(0, most).reverse());
  }

  /** The events since the last read, the oldest first. */
  async next(): Promise<Entry[]> {
    const since = Date.parse(this.#newest || new Date().toISOString()) - OVERLAP_MS;
    const stored = await this.#store.query('events', {
      where: [{field: 'at', op: '>=', value: new Date(since).toISOString()}],
      order_by: {field: 'at'},
    });
    const fresh = entriesOf(stored.filter(({id}) => !this.#seen.has(id)));
    this.#seen = new Set(stored.map(({id}) => id));
    this.#advance(fresh);
    this.#filter.learn(fresh);
    return inOrder(fresh.filter(entry => entry.at > this.#floor && this.#filter.isMeant(entry)));
  }

  #advance(entries: readonly Entry[]): void {
    for (const {at} of entries) if (at > this.#newest) this.#newest = at;
  }
}

const NEWEST_EVENTS = 200;

/** Latest events about rejected objects, for run names that `isMeant` accepts. The name is null for an object of no run. */
export async function listRejected(store: Store, isMeant: (run: string | null) => boolean): Promise<Entry[]> {
  const newest = {order_by: {field: 'at', direction: 'desc'}, limit: NEWEST_EVENTS} as const;
  const entries = entriesOf(await store.query('events', newest)).reverse();
  return entries.filter(({kind, run}) => kind === 'rejected' && isMeant(run));
}
