/** Reads of the timeline, the documents `events/{id}`, in the order of `at`. */
import type {Filter, Store} from '../../shared/ports.ts';
import {type Entry, entriesOf} from './entry.ts';
import type {EventFilter} from './filter.ts';
import {inOrder} from './order.ts';

const PAGE = 300;
/** Events that a search for the newest of a run reads, at most. */
const MOST_READ = 30_000;
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

  /** The newest events, the oldest first. */
  async newest(most: number): Promise<Entry[]> {
    const seen = new Set<string>();
    const found: Entry[] = [];
    let where: Filter[] = [];
    do {
      const order_by = {field: 'at', direction: 'desc'} as const;
      const page = await this.#store.query('events', {where, order_by, limit: PAGE});
      const fresh = page.filter(({id}) => !seen.has(id));
      for (const {id} of fresh) seen.add(id);
      const entries = entriesOf(fresh);
      this.#advance(entries);
      found.push(...entries.filter(entry => this.#filter.isMeant(entry)));
      const last = page.at(-1)?.data.at;
      if (page.length < PAGE || fresh.length === 0 || typeof last !== 'string') break;
      if (this.#filter.since !== undefined && last < this.#filter.since) break;
      where = [{field: 'at', op: '<=', value: last}];
    } while (found.length < most && seen.size < MOST_READ);
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
    return inOrder(fresh.filter(entry => entry.at > this.#floor && this.#filter.isMeant(entry)));
  }

  #advance(entries: readonly Entry[]): void {
    for (const {at} of entries) if (at > this.#newest) this.#newest = at;
  }
}
