/**
 * The Store of the pages: reads a collection once, and from then on the documents that have changed. Every view model reads through it, so
 * the pages of a process read a document once. A document is the same object until it changes, so it is parsed once too.
 */
import type {
  CollectionPath,
  Document,
  DocumentPath,
  Filter,
  Query,
  Store,
  Stored,
} from '../shared/ports/ports.ts';

/** Time for which an answer is given again: the readers of one poll ask several times. */
const FRESH_MS = 900;
/** Clocks of functions differ, so a change may be a little older than the newest known. */
const OVERLAP_MS = 10_000;
/** A collection with so many documents is read as a whole each time. */
const FEW = 20;

/** Collections that are mirrored, and their fields that grow: each change that a page shows changes one. Heartbeats change none. */
const MIRRORED: [collection: RegExp, changed: string[]][] = [
  [/^runs$/, ['updated_at']],
  [/^workers$/, ['updated_at', 'phase_since_at']],
  [/^zones$/, ['updated_at']],
  [/^runs\/[^/]+\/streams$/, ['updated_at']],
  [/^events$/, ['at']],
];
/** Documents that change seldom, or that no page has to show at once. */
const SELDOM = /^(execs|prices|system|tasks)(\/|$)/;
/** Time for which a page of the past is given again. */
const PAST_MS = 300_000;

/** The answer to a query, kept up to date. `applied`: changes of its collection that it has. */
type Mirror = {
  documents: Map<string, Stored>;
  sorted: Stored[];
  read_ms: number;
  whole_ms: number;
  applied: number;
};
/** Changes of a collection since it is mirrored, the oldest first. `dropped`: those that are too old to keep. */
type Changes = {clocks: CloudClock[]; news: Stored[]; dropped: number};
type Answer = {until_ms: number; value: Promise<unknown>};

/** Changes of a collection that are kept: a mirror that lacks older ones is read as a whole. */
const MOST_NEWS = 5000;

/**
 * Time of the cloud by the newest value of a field, whatever the clock of this machine says: that value, and the time since it was seen
 * first. Later changes have later values, but for the overlap.
 */
class CloudClock {
  readonly field: string;
  #newest_ms = OVERLAP_MS;
  #seen_ms = 0;
  #now_ms = 0;

  constructor(field: string) {
    this.field = field;
  }

  see(found: readonly Stored[], now_ms: number): void {
    this.#now_ms = now_ms;
    for (const {data} of found) {
      const value = data[this.field];
      const ms = typeof value === 'string' ? Date.parse(value) : Number.NaN;
      if (ms > this.#newest_ms) [this.#newest_ms, this.#seen_ms] = [ms, now_ms];
    }
  }

  /** The least value of a change since the last read. */
  get since(): string {
    const elapsed_ms = this.#seen_ms === 0 ? 0 : this.#now_ms - this.#seen_ms;
    return new Date(this.#newest_ms + elapsed_ms - OVERLAP_MS).toISOString();
  }
}

export type MirrorOptions = {
  now: () => number;
  spend: (documents: number) => void;
  /** Collection of the jobs, which is mirrored too. */
  jobs: CollectionPath;
  /** Milliseconds for which documents that change seldom are not read again. */
  seldom_ms: number;
  /** Least time between two reads of a whole collection, in milliseconds for each of its documents. */
  whole_ms_each: number;
};

/** Answers that are kept: more belong to pages that are closed. */
const MOST_ANSWERS = 500;

export class MirrorStore implements Store {
  readonly #store: Store;
  readonly #options: MirrorOptions;
  readonly #mirrors = new Map<string, Mirror>();
  readonly #changes = new Map<CollectionPath, Changes>();
  readonly #answers = new Map<string, Answer>();

  constructor(store: Store, options: MirrorOptions) {
    this.#store = store;
    this.#options = options;
  }

  get(path: DocumentPath): Promise<Document | undefined> {
    return this.#once(path, async () => {
      const mirror = this.#mirrors.get(`${path.slice(0, path.lastIndexOf('/'))} {}`);
      if (mirror && this.#isFresh(mirror.read_ms))
        return mirror.documents.get(path.slice(path.lastIndexOf('/') + 1))?.data;
      this.#options.spend(1);
      return this.#store.get(path);
    });
  }

  query(collection: CollectionPath, query: Query = {}): Promise<Stored[]> {
    const {where = [], after, order_by} = query;
    const changed = this.#changedFields(collection);
    const isOrdered = order_by === undefined || order_by.direction === 'desc';
    const isMirrored = after === undefined && isOrdered && where.every(({op}) => op === '==' || op === 'in');
    const key = `${collection} ${JSON.stringify(query)}`;
    if (changed && isMirrored) return this.#once(key, () => this.#mirrored(key, collection, query, changed));
    const isPast = where.some(({op}) => op === '<=');
    return this.#once(key, () => this.#read(collection, query), isPast ? PAST_MS : undefined);
  }

  count(collection: CollectionPath, where: Filter[] = []): Promise<number> {
    const ask = async () => {
      const count = await this.#store.count(collection, where);
      this.#options.spend(Math.max(1, Math.ceil(count / 1000)));
      return count;
    };
    return this.#once(`${collection} count ${JSON.stringify(where)}`, ask, this.#options.seldom_ms);
  }

  sum<Field extends string>(
    collection: CollectionPath,
    fields: readonly Field[],
  ): Promise<Record<Field, number>> {
    return this.#store.sum(collection, fields);
  }

  /** A page changes nothing. */
  transaction<T>(): Promise<T> {
    return Promise.reject(new Error('A page reads documents and writes none'));
  }

  close(): Promise<void> {
    return this.#store.close();
  }

  async #read(collection: CollectionPath, query: Query): Promise<Stored[]> {
    const found = await this.#store.query(collection, query);
    this.#options.spend(Math.max(1, found.length));
    return found;
  }

  async #mirrored(
    key: string,
    collection: CollectionPath,
    query: Query,
    changed: readonly string[],
  ): Promise<Stored[]> {
    const now = this.#options.now();
    const mirror = this.#mirrors.get(key);
    const count = mirror?.documents.size ?? 0;
    const isDue = !mirror || now - mirror.whole_ms >= Math.max(0, count - FEW) * this.#options.whole_ms_each;
    const known = this.#changes.get(collection);
    // Changes are noted from before the first read on.
    const changes = isDue && known ? known : await this.#changesOf(collection, changed);
    const applied = changes.dropped + changes.news.length;
    if (isDue || mirror.applied < changes.dropped) {
      const sorted = reused(await this.#read(collection, query), mirror?.documents);
      const documents = new Map(sorted.map(each => [each.id, each]));
      this.#mirrors.set(key, {documents, sorted, applied, read_ms: now, whole_ms: now});
      return sorted;
    }
    const news = reused(changes.news.slice(mirror.applied - changes.dropped), mirror.documents);
    const {order_by, limit} = query;
    for (const each of news)
      if (isIn(query, each.data)) mirror.documents.set(each.id, each);
      else mirror.documents.delete(each.id);
    if (news.length > 0) {
      mirror.sorted = [...mirror.documents.values()].sort(orderOf(order_by?.field)).slice(0, limit);
      mirror.documents = new Map(mirror.sorted.map(each => [each.id, each]));
    }
    Object.assign(mirror, {applied, read_ms: now});
    return mirror.sorted;
  }

  #changesOf(collection: CollectionPath, changed: readonly string[]): Promise<Changes> {
    return this.#once(`${collection} changes`, () => this.#readChanges(collection, changed));
  }

  /** Reads the documents of a collection that have changed. The first read only finds the time of the cloud. */
  async #readChanges(collection: CollectionPath, changed: readonly string[]): Promise<Changes> {
    const now = this.#options.now();
    const known = this.#changes.get(collection);
    const changes = known ?? {clocks: changed.map(field => new CloudClock(field)), news: [], dropped: 0};
    for (const clock of changes.clocks) {
      const {field, since: value} = clock;
      const found = await this.#read(
        collection,
        known ? {where: [{field, op: '>=', value}]} : {order_by: {field, direction: 'desc'}, limit: 1},
      );
      clock.see(found, now);
      if (known) changes.news.push(...this.#unseen(found, changes.news));
    }
    const excess = Math.max(0, changes.news.length - MOST_NEWS);
    changes.news.splice(0, excess);
    changes.dropped += excess;
    this.#changes.set(collection, changes);
    return changes;
  }

  /** The documents without those that the last changes have in the same version. */
  #unseen(found: readonly Stored[], news: readonly Stored[]): Stored[] {
    const last = new Map(news.map(each => [each.id, each]));
    return reused(found, last).filter(each => last.get(each.id) !== each);
  }

  #changedFields(collection: CollectionPath): string[] | undefined {
    if (collection === this.#options.jobs) return ['updated_at'];
    return MIRRORED.find(([pattern]) => pattern.test(collection))?.[1];
  }

  /**
   * Gives the answer of the last moment again, also while it is on its way. A failed call is made again. `key` begins with the path of the
   * collection or document.
   */
  #once<T>(key: string, ask: () => Promise<T>, fresh_ms = this.#freshMs(key)): Promise<T> {
    const now = this.#options.now();
    const known = this.#answers.get(key);
    if (known && now < known.until_ms) return known.value as Promise<T>;
    const value = ask();
    this.#answers.delete(key);
    this.#answers.set(key, {until_ms: now + fresh_ms, value});
    value.catch(() => {
      if (this.#answers.get(key)?.value === value) this.#answers.delete(key);
    });
    const [oldest] = this.#answers.keys();
    if (this.#answers.size > MOST_ANSWERS && oldest !== undefined) this.#answers.delete(oldest);
    return value;
  }

  #freshMs(key: string): number {
    return SELDOM.test(key.split(' ')[0] ?? '') ? this.#options.seldom_ms : FRESH_MS;
  }

  #isFresh(at_ms: number): boolean {
    return this.#options.now() - at_ms < FRESH_MS;
  }
}

/** The documents, each as the known object where nothing has changed. */
function reused(found: readonly Stored[], known: ReadonlyMap<string, Stored> | undefined): Stored[] {
  return found.map(each => {
    const before = known?.get(each.id);
    return before && JSON.stringify(before.data) === JSON.stringify(each.data) ? before : each;
  });
}

function matches({field, op, value}: Filter, data: Document): boolean {
  const found = data[field];
  if (op === 'in') return Array.isArray(value) && value.some(each => each === found);
  return found === value;
}

/** By id, or by a field with the largest value first. */
function orderOf(field: string | undefined): (one: Stored, other: Stored) => number {
  if (field === undefined) return (one, other) => (one.id < other.id ? -1 : 1);
  const keyOf = ({data}: Stored) => String(data[field] ?? '');
  return (one, other) => (keyOf(one) > keyOf(other) ? -1 : 1);
}

/** A query never has a document that lacks the field that it orders by. */
function isIn({where = [], order_by}: Query, data: Document): boolean {
  if (order_by && data[order_by.field] === undefined) return false;
  return where.every(filter => matches(filter, data));
}
