/** The Store in memory, with optimistic transactions over versions. Each read and each commit is one event. */
import {AlreadyExists, Contention} from '../../shared/contracts/errors.ts';
import type {Document, Store, Stored, Transaction} from '../../shared/ports/ports.ts';
import type {Call} from './call.ts';
import type {Clockwork} from './clock.ts';
import {compareText, fieldOf, select} from './memory-query.ts';

type Entry = {data: Document; version: number};
type Lock = {owner: object; until: number; waiting: (() => void)[]};
type Write = {kind: 'create' | 'set'; path: string; data: Document} | {kind: 'delete'; path: string};

const ATTEMPTS = 5;
/** The longest wait of a transaction for a lock. */
const LONGEST_WAIT_MS = 1200;
/** The time after which a transaction of a dead process loses its locks. */
const LOCK_MS = 20_000;

/** The longest duration of a transaction in Firestore. */
const TRANSACTION_MS = 270_000;

export class SimStore {
  readonly #clockwork: Clockwork;
  readonly #entries = new Map<string, Entry>();
  /** The documents of each collection in the order of their ids. `stored` is undefined after a commit. */
  readonly #collections = new Map<string, {paths: Set<string>; stored: Stored[] | undefined}>();
  #versions = 0;
  /** True if a transaction locks each document that it reads, as in Firestore. Other transactions wait for the lock. */
  isPessimistic = false;
  readonly #locks = new Map<string, Lock>();
  /** Called for each document of a commit. */
  onCommit: (path: string, before: Document | undefined, after: Document | undefined) => void = () => {};
  /** Called with the paths of a commit after all its documents are written. */
  onCommitted: (paths: readonly string[]) => void = () => {};

  constructor(clockwork: Clockwork) {
    this.#clockwork = clockwork;
  }

  peek(path: string): Document | undefined {
    return this.#entries.get(path)?.data;
  }

  collection(name: string): Stored[] {
    const collection = this.#collections.get(name);
    if (!collection) return [];
    collection.stored ??= [...collection.paths].sort(compareText).map(path => {
      const {data} = this.#entries.get(path) as Entry;
      return {path, id: path.slice(name.length + 1), data};
    });
    return collection.stored;
  }

  wipe(): void {
    this.#entries.clear();
    this.#collections.clear();
  }

  /** The Store as one caller sees it. */
  through(call: Call): Store {
    return {
      get: path => call('get', () => this.peek(path)),
      query: (collection, query) => call('query', () => select(this.collection(collection), query ?? {})),
      count: (collection, where) =>
        call('count', () => select(this.collection(collection), where ? {where} : {}).length),
      sum: (collection, fields) => call('sum', () => this.#sum(collection, fields)),
      transaction: work => this.#transaction(call, work),
      close: async () => {},
    };
  }

  /** Changes documents as a person does: at once, and without faults. */
  edit(work: (tx: Transaction) => unknown): Promise<unknown> {
    return this.through(async (_, effect) => effect()).transaction(async tx => work(tx));
  }

  #sum<Field extends string>(collection: string, fields: readonly Field[]): Record<Field, number> {
    const documents = this.collection(collection).map(({data}) => data);
    const sum = (field: Field) =>
      documents.reduce((total, data) => {
        const value = fieldOf(data, field);
        return typeof value === 'number' ? total + value : total;
      }, 0);
    return Object.fromEntries(fields.map(field => [field, sum(field)])) as Record<Field, number>;
  }

  async #transaction<T>(call: Call, work: (tx: Transaction) => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      const seen = new Map<string, number>();
      const writes: Write[] = [];
      const started = this.#clockwork.now;
      const isBeforeDeadline = () => this.#clockwork.now - started <= TRANSACTION_MS;
      const owner = {};
      const tx: Transaction = {
        get: async path => {
          await this.#lock(call, path, owner);
          return call('tx.get', () => {
            if (!seen.has(path)) seen.set(path, this.#entries.get(path)?.version ?? 0);
            return this.peek(path);
          });
        },
        create: (path, data) => void writes.push({kind: 'create', path, data}),
        set: (path, data) => void writes.push({kind: 'set', path, data}),
        delete: path => void writes.push({kind: 'delete', path}),
      };
      try {
        const result = await work(tx);
        if (await call('commit', () => isBeforeDeadline() && this.#commit(seen, writes))) return result;
      } catch (error) {
        if (!(error instanceof Contention) || attempt === ATTEMPTS) throw error;
      } finally {
        this.#unlock(owner);
      }
      if (attempt === ATTEMPTS)
        throw new Contention(
          `a transaction failed ${ATTEMPTS} times because other transactions committed first`,
        );
    }
  }

  /** Waits until no other transaction locks the document. Two transactions in a deadlock both fail. */
  async #lock(call: Call, path: string, owner: object): Promise<void> {
    if (!this.isPessimistic) return;
    const until = this.#clockwork.now + LONGEST_WAIT_MS;
    for (;;) {
      const lock = this.#locks.get(path);
      if (!lock || lock.owner === owner || lock.until < this.#clockwork.now) break;
      const left_ms = until - this.#clockwork.now;
      if (left_ms <= 0) throw new Contention(`${path} is locked by another transaction`);
      await new Promise<void>(resolve => {
        lock.waiting.push(resolve);
        this.#clockwork.after(left_ms, resolve);
      });
      await call('wait for a lock', () => {});
    }
    const waiting = this.#locks.get(path)?.waiting ?? [];
    this.#locks.set(path, {owner, until: this.#clockwork.now + LOCK_MS, waiting});
  }

  #unlock(owner: object): void {
    for (const [path, lock] of this.#locks) {
      if (lock.owner !== owner) continue;
      this.#locks.delete(path);
      for (const go of lock.waiting) go();
    }
  }

  #commit(seen: ReadonlyMap<string, number>, writes: Write[]): boolean {
    for (const [path, version] of seen) if ((this.#entries.get(path)?.version ?? 0) !== version) return false;
    for (const [index, {kind, path}] of writes.entries()) {
      if (kind !== 'create') continue;
      const earlier = writes.slice(0, index).findLast(write => write.path === path);
      const isThere = earlier ? earlier.kind !== 'delete' : this.#entries.has(path);
      if (isThere) throw new AlreadyExists(`${path} already exists`);
    }
    for (const write of writes) {
      const {path} = write;
      const before = this.#entries.get(path)?.data;
      const name = path.slice(0, path.lastIndexOf('/'));
      const collection = this.#collections.get(name) ?? {paths: new Set<string>(), stored: undefined};
      this.#collections.set(name, {paths: collection.paths, stored: undefined});
      if (write.kind === 'delete') {
        this.#entries.delete(path);
        collection.paths.delete(path);
      } else {
        this.#entries.set(path, {data: write.data, version: ++this.#versions});
        collection.paths.add(path);
      }
      this.onCommit(path, before, write.kind === 'delete' ? undefined : write.data);
    }
    this.onCommitted(writes.map(({path}) => path));
    return true;
  }
}
