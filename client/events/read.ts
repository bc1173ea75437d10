/** Reads of the timeline, the documents `events/{id}`, in the order of `at`. */
import type {Objects, Store} from '../../shared/ports/ports.ts';
import type {Cloud} from '../cloud/cloud.ts';
import {newestFirst} from '../cloud/newest-first.ts';
import {type Entry, entriesOf} from './entry.ts';
import type {EventFilter} from './filter.ts';
import {inOrder} from './timeline.ts';

/** Functions have clocks of their own, so a new event may be a little older than the newest known. */
const OVERLAP_MS = 60_000;

export function readerOf(store: Store, filter: EventFilter, overlap_ms = OVERLAP_MS) {
  /** Times of the newest event of the first read, and of all reads. */
  let [floor, latest] = ['', ''];
  /** Ids of the events since `latest` minus the overlap. */
  let seen = new Set<string>();
  const take = (entries: readonly Entry[]) => {
    for (const {at} of entries) if (at > latest) latest = at;
  };
  return {
    async newest(most: number, most_read?: number): Promise<Entry[]> {
      const found: Entry[] = [];
      for await (const page of newestFirst(store, 'events', 'at', most_read)) {
        const entries = entriesOf(page);
        take(entries);
        found.push(...entries.filter(filter.isMeant));
        const oldest = entries.at(-1)?.at ?? '';
        if (found.length >= most || (filter.since !== undefined && oldest < filter.since)) break;
      }
      floor = latest;
      return inOrder(found.slice(0, most).reverse());
    },
    /** The events since the last read, the oldest first. */
    async next(): Promise<Entry[]> {
      const since = Date.parse(latest || new Date().toISOString()) - overlap_ms;
      const where = [{field: 'at', op: '>=', value: new Date(since).toISOString()} as const];
      const stored = await store.query('events', {where, order_by: {field: 'at'}});
      const fresh = entriesOf(stored.filter(({id}) => !seen.has(id)));
      seen = new Set(stored.map(({id}) => id));
      take(fresh);
      return inOrder(fresh.filter(entry => entry.at > floor && filter.isMeant(entry)));
    },
  };
}

const NEWEST_EVENTS = 200;

/** Latest rejections of objects that are there as they were rejected. `isMeant`: by the name of the run; null for an object of no run. */
export async function listRejected(
  {store, objects, connection}: Pick<Cloud, 'store' | 'objects'> & Partial<Cloud>,
  isMeant: (run: string | null) => boolean,
): Promise<Entry[]> {
  const newest = {order_by: {field: 'at', direction: 'desc'}, limit: NEWEST_EVENTS} as const;
  const entries = entriesOf(await store.query('events', newest)).reverse();
  const rejected = entries.filter(({kind, run}) => kind === 'rejected' && isMeant(run));
  const byObject = new Map(rejected.map(entry => [entry.object ?? entry.id, entry]));
  if (await connection?.stopped()) return [...byObject.values()];
  const stands = await Promise.all([...byObject.values()].map(entry => isRejectedStill(objects, entry)));
  return [...byObject.values()].filter((_, index) => stands[index]);
}

async function isRejectedStill(objects: Objects, {object, at}: Entry): Promise<boolean> {
  if (object === null) return true;
  const found = await objects.head(object);
  return found !== undefined && found.created_at <= at;
}
