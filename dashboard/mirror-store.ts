/**
 * The Store of the pages: reads a collection once, and from then on the documents that have changed. Every view model reads through it, so
 * the pages of a process read a document once. A document is the same object until it changes, so it is parsed once too.
 */
import type {CollectionPath, Document, DocumentPath, Filter, Query, Store, Stored} from '../shared/ports.ts';

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
];

/** `clocks`: the clock of the cloud by each field that grows. */
type Mirror = {
  documents: Map<string, Stored>;
  sorted: Stored[];
  read_ms: number;
  whole_ms: number;
  clocks: CloudClock[];
};
type Answer = {at_ms: number; value: Promise<unknown>};

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
  /** Called with the number of documents that a call has read. */
  spend: (documents: number) => void;
  /** Milliseconds for each document between two reads of a whole collection. */
  whole_ms_each: number;
};

/** Answers that are kept: more belong to pages that are closed. */
const MOST_ANSWERS = 500;

export class MirrorStore implements Store {
  readonly #store: Store;
  readonly #options: MirrorOptions;
  readonly #mirrors = new Map<CollectionPath, Mirror>();
  readonly #answers = new Map<string, Answer>();

  constructor(store: Store, options: MirrorOptions) {
    this.#store = store;
    this.#options = options;
  }

  get(path: DocumentPath): Promise<Document | undefined> {
    return this.#once(`get ${path}`, async () => {
      const mirror = this.#mirrors.get(path.slice(0, path.lastIndexOf('/')));
      if (mirror && this.#isFresh(mirror.read_ms))
        return mirror.documents.get(path.slice(path.lastIndexOf('/') + 1))?.data;
      this.#options.spend(1);
      return this.#store.get(path);
    });
  }

  query(collection: CollectionPath, query: Query = {}): Promise<Stored[]> {
    const {where = [], after, order_by, limit} = query;
    const changed = MIRRORED.find(([pattern]) => pattern.test(collection))?.[1];
    const isPlain = after === undefined && order_by === undefined && where.every(isSimple);
    if (!changed || !isPlain || (where.length > 0 && !this.#mirrors.has(collection)))
      return this.#once(`query ${collection} ${JSON.stringify(query)}`, () => this.#read(collection, query));
    return this.#once(`mirror ${collection}`, () => this.#mirrored(collection, changed)).then(documents =>
      where.length === 0 && limit === undefined
        ? documents
        : documents.filter(({data}) => where.every(filter => matches(filter, data))).slice(0, limit),
    );
  }

  count(collection: CollectionPath, where: Filter[] = []): Promise<number> {
    return this.#once(`count ${collection} ${JSON.stringify(where)}`, async () => {
      const count = await this.#store.count(collection, where);
      this.#options.spend(Math.max(1, Math.ceil(count / 1000)));
      return count;
    });
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

  async #mirrored(collection: CollectionPath, changed: readonly string[]): Promise<Stored[]> {
    const now = this.#options.now();
    const mirror = this.#mirrors.get(collection);
    const count = mirror?.documents.size ?? 0;
    const isDue = !mirror || now - mirror.whole_ms >= Math.max(0, count - FEW) * this.#options.whole_ms_each;
    if (isDue) {
      const sorted = reused(await this.#read(collection, {}), mirror?.documents);
      const documents = new Map(sorted.map(each => [each.id, each]));
      const clocks = mirror?.clocks ?? changed.map(field => new CloudClock(field));
      for (const clock of clocks) clock.see(sorted, now);
      this.#mirrors.set(collection, {documents, sorted, clocks, read_ms: now, whole_ms: now});
      return sorted;
    }
    const found: Stored[] = [];
    for (const clock of mirror.clocks) {
      const {field, since: value} = clock;
      const news = await this.#read(collection, {where: [{field, op: '>=', value}]});
      clock.see(news, now);
      found.push(...news);
    }
    const fresh = reused(found, mirror.documents).filter(each => mirror.documents.get(each.id) !== each);
    for (const each of fresh) mirror.documents.set(each.id, each);
    if (fresh.length > 0)
      mirror.sorted = [...mirror.documents.values()].sort((a, b) => (a.id < b.id ? -1 : 1));
    mirror.read_ms = now;
    return mirror.sorted;
  }

  /** Gives the answer of the last moment again, also while it is on its way. A failed call is made again. */
  #once<T>(key: string, ask: () => Promise<T>): Promise<T> {
    const known = this.#answers.get(key);
    if (known && this.#isFresh(known.at_ms)) return known.value as Promise<T>;
    const value = ask();
    this.#answers.delete(key);
    this.#answers.set(key, {at_ms: this.#options.now(), value});
    value.catch(() => {
      if (this.#answers.get(key)?.value === value) this.#answers.delete(key);
    });
    const [oldest] = this.#answers.keys();
    if (this.#answers.size > MOST_ANSWERS && oldest !== undefined) this.#answers.delete(oldest);
    return value;
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

function isSimple({op}: Filter): boolean {
  return op === '==' || op === 'in';
}

function matches({field, op, value}: Filter, data: Document): boolean {
  const found = data[field];
  if (op === 'in') return Array.isArray(value) && value.some(each => each === found);
  return found === value;
}
