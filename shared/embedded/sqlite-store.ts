/**
 * The Store in one SQLite file that several processes may open at once.
 *
 * Transactions are optimistic: a transaction records the version of every document it reads, and buffers its writes.
 * The commit is one synchronous step that first compares the versions. No lock outlives that step,
 * so a process that is killed or stopped between two awaits delays no other process.
 *
 * WAL with `synchronous = NORMAL`: the operating system has a commit when the call returns, so `kill -9` loses no commit.
 * A power cut may lose the last commits, each as a whole. `FULL` would prevent that with an fsync per commit.
 * `NORMAL` is enough, because the bucket can restore the store.
 */
import {mkdirSync} from 'node:fs';
import {dirname} from 'node:path';
import {DatabaseSync, type SQLInputValue, type StatementSync} from 'node:sqlite';
import {setTimeout as sleep} from 'node:timers/promises';
import {AlreadyExists, Contention, ServiceError} from '../contracts/errors.ts';
import {Attempt} from '../ports/checked-transaction.ts';
import {splitDocumentPath} from '../ports/document-limits.ts';
import type {Document, DocumentPath, Filter, Query, Store, Stored, Transaction} from '../ports/ports.ts';
import {checkQuery, checkSum} from '../ports/query-limits.ts';
import {indexOn, selectDocuments, sumFields} from './sqlite-query.ts';

const SCHEMA = 1;
const ATTEMPTS = 16;
/** How long one statement waits inside SQLite for another process. The wait blocks our event loop. */
const BUSY_MS = 50;
/** A file that stays locked for this long is an error for the caller. */
const LOCKED_MS = 30_000;
/** Documents to keep parsed. */
const MOST_KNOWN = 1000;

/** The version is the row id and never repeats, so a document that was deleted and created again counts as changed. */
const TABLE = `create table if not exists documents (
  version integer primary key autoincrement,
  collection text not null,
  id text not null,
  data text not null,
  unique (collection, id)
)`;

/** Fields on which filters select a few of very many documents, so they have an index, as in Firestore. */
const INDEXED = ['status', 'phase', 'held', 'blocked_until_at', 'completed_at'];

const INDEXES = INDEXED.map(
  field => `create index if not exists by_${field} on documents (${indexOn(field)})`,
).join('; ');

/** Opens or creates the store. Each ':memory:' is a separate store that ends with `close`. */
export function openSqliteStore(file: string, random: () => number = Math.random): SqliteStore {
  return new SqliteStore(file, openDatabase(file), random);
}

function openDatabase(file: string): DatabaseSync {
  try {
    if (file !== ':memory:') mkdirSync(dirname(file), {recursive: true});
    const database = new DatabaseSync(file, {timeout: BUSY_MS});
    const deadline = Date.now() + LOCKED_MS;
    for (;;)
      try {
        layOut(database);
        return database;
      } catch (error) {
        // Processes that create one file at the same moment briefly lock each other out.
        if (!isBusy(error) || Date.now() > deadline) {
          database.close();
          throw error;
        }
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10);
      }
  } catch (error) {
    throw failureOf('open', file, error as Error);
  }
}

function layOut(database: DatabaseSync): void {
  const mode = database.prepare('pragma journal_mode = wal').get()?.journal_mode;
  if (mode !== 'wal' && mode !== 'memory') throw new Error('this disk cannot hold a WAL; use a local one');
  database.exec('pragma synchronous = normal');
  const version = database.prepare('pragma user_version').get()?.user_version;
  if (version !== 0 && version !== SCHEMA)
    throw new Error(`its layout is ${version} and this release reads ${SCHEMA}; use another file`);
  if (version === 0)
    database.exec(`begin immediate; ${TABLE}; ${INDEXES}; pragma user_version = ${SCHEMA}; commit`);
}

type Row = {version: number; data: string};
type Changes = {
  reads: Map<DocumentPath, Row | undefined>;
  writes: {path: DocumentPath; kind: 'create' | 'set' | 'delete'; data: string}[];
};

/** Collections whose documents expire, by the last name of their path, as in terraform/firestore.tf. Collections of jobs have any name. */
const EXPIRING = ['attempts', 'control', 'events', 'execs', 'hosts', 'notices', 'tasks'];

export class SqliteStore implements Store {
  readonly #file: string;
  readonly #database: DatabaseSync;
  readonly #random: () => number;
  readonly #statements = new Map<string, StatementSync>();
  /** By version. Readers share a document, which is frozen, so those that know the object parse it once too. */
  readonly #documents = new Map<number, Document>();
  #swept = 0;

  constructor(file: string, database: DatabaseSync, random: () => number) {
    this.#file = file;
    this.#database = database;
    this.#random = random;
  }

  async get(path: DocumentPath): Promise<Document | undefined> {
    const row = await this.#unlocked(() => this.#read(path));
    return row && this.#parse(row);
  }

  async query(collection: string, query: Query = {}): Promise<Stored[]> {
    checkQuery(collection, query);
    const {sql, values} = selectDocuments('version, id, data', collection, query);
    const rows = await this.#unlocked(() => this.#statement(sql).all(...values) as (Row & {id: string})[]);
    return rows.map(row => ({path: `${collection}/${row.id}`, id: row.id, data: this.#parse(row)}));
  }

  async count(collection: string, where: Filter[] = []): Promise<number> {
    checkQuery(collection, {where});
    const {sql, values} = selectDocuments('count(*) as documents', collection, {where});
    return Number((await this.#unlocked(() => this.#statement(sql).get(...values)))?.documents);
  }

  async sum<Field extends string>(
    collection: string,
    fields: readonly Field[],
  ): Promise<Record<Field, number>> {
    checkSum(collection, fields);
    const {sql, values} = sumFields(collection, fields);
    const row = await this.#unlocked(() => this.#statement(sql).get(...values));
    return Object.fromEntries(
      fields.map((field, index) => [field, Number(row?.[`sum_${index}`] ?? 0)]),
    ) as Record<Field, number>;
  }

  async transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
      const changes: Changes = {reads: new Map(), writes: []};
      try {
        const result = await this.#attempt(changes).run(work);
        if (await this.#unlocked(() => this.#commit(changes))) return result;
      } catch (error) {
        // An error after outdated reads proves nothing, because documents from before and after another commit may contradict each other.
        if (await this.#unlocked(() => this.#unchanged(changes))) throw error;
      }
      await sleep(this.#random() * Math.min(1000, 2 ** (attempt + 1)));
    }
    throw new Contention(
      `Failed to commit to ${this.#file}: other writers won ${ATTEMPTS} times; try again later`,
    );
  }

  /**
   * Deletes the expired documents among the next `most`, as a TTL of Firestore does. After the last document a sweep starts again with the
   * first. Returns the number of deleted documents.
   */
  async sweepExpired(jobs_collection: string, now_at: string, most: number): Promise<number> {
    const next = 'select version, collection, data from documents where version > ? order by version limit ?';
    const rows = await this.#unlocked(() => this.#statement(next).all(this.#swept, most));
    this.#swept = rows.length < most ? 0 : Number(rows.at(-1)?.version);
    const expired = rows.filter(({collection, data}) => {
      const kind = String(collection).split('/').at(-1) ?? '';
      const {expire_at} = JSON.parse(String(data));
      const expires = kind === jobs_collection || EXPIRING.includes(kind);
      return expires && typeof expire_at === 'string' && expire_at <= now_at;
    });
    // A document that has changed since has another version and stays.
    const remove = this.#statement('delete from documents where version = ?');
    for (const {version} of expired) await this.#unlocked(() => remove.run(Number(version)));
    return expired.length;
  }

  async close(): Promise<void> {
    if (this.#database.isOpen) this.#database.close();
  }

  #attempt({reads, writes}: Changes): Attempt {
    const read = async (path: DocumentPath): Promise<Document | undefined> => {
      const row = await this.#unlocked(() => this.#read(path));
      const first = reads.has(path) ? reads.get(path) : row;
      reads.set(path, first);
      return first && this.#parse(first);
    };
    return new Attempt(read, write =>
      writes.push({...write, data: write.kind === 'delete' ? '' : JSON.stringify(write.data)}),
    );
  }

  #parse({version, data}: Row): Document {
    const known = this.#documents.get(version);
    if (known) return known;
    const document: Document = JSON.parse(data, (_key, value) => Object.freeze(value));
    if (this.#documents.size >= MOST_KNOWN) this.#documents.clear();
    this.#documents.set(version, document);
    return document;
  }

  #read(path: DocumentPath): Row | undefined {
    const {collection, id} = splitDocumentPath(path);
    return this.#statement('select version, data from documents where collection = ? and id = ?').get(
      collection,
      id,
    ) as Row | undefined;
  }

  /** False if a document that was read has changed since. There is no await, so no other step can interleave. */
  #commit(changes: Changes): boolean {
    if (changes.writes.length === 0 && changes.reads.size < 2) return true;
    this.#database.exec(changes.writes.length > 0 ? 'begin immediate' : 'begin');
    try {
      const unchanged = this.#unchanged(changes);
      if (unchanged) for (const write of changes.writes) this.#apply(write);
      this.#database.exec(unchanged ? 'commit' : 'rollback');
      return unchanged;
    } finally {
      if (this.#database.isTransaction) this.#database.exec('rollback');
    }
  }

  #unchanged({reads}: Changes): boolean {
    for (const [path, row] of reads) if (this.#read(path)?.version !== row?.version) return false;
    return true;
  }

  #apply({path, kind, data}: Changes['writes'][number]): void {
    const {collection, id} = splitDocumentPath(path);
    const key: SQLInputValue[] = [collection, id];
    if (kind === 'delete') {
      this.#statement('delete from documents where collection = ? and id = ?').run(...key);
      return;
    }
    const verb = kind === 'create' ? 'insert or ignore' : 'insert or replace';
    const {changes} = this.#statement(`${verb} into documents (collection, id, data) values (?, ?, ?)`).run(
      ...key,
      data,
    );
    if (changes === 0) throw new AlreadyExists(`Failed to create ${path}: it is already there`);
  }

  #statement(sql: string): StatementSync {
    const statement = this.#statements.get(sql) ?? this.#database.prepare(sql);
    this.#statements.set(sql, statement);
    return statement;
  }

  /** Repeats `step` while another process locks the file, without blocking the event loop. */
  async #unlocked<T>(step: () => T): Promise<T> {
    const deadline = Date.now() + LOCKED_MS;
    for (;;)
      try {
        return step();
      } catch (error) {
        if (!isBusy(error))
          throw sqliteCode(error) === undefined ? error : failureOf('use', this.#file, error as Error);
        if (Date.now() > deadline)
          throw new Contention(
            `Failed to use ${this.#file}: another process has kept it locked for ${LOCKED_MS / 1000} s; end that process`,
          );
        await sleep(5 + this.#random() * 45);
      }
  }
}

/** What to do if the file of a store is damaged. */
export const storeCure = (file: string) =>
  `end the local cloud, move ${file}, ${file}-wal and ${file}-shm away, start the cloud again with \`gleaner local up\`, and run \`gleaner rebuild\`: the bucket has what the runs have stored; jobs and costs are lost`;

function failureOf(verb: string, file: string, cause: Error): Error {
  const text = `Failed to ${verb} the store ${file}: ${cause.message}`;
  return isDamage(cause)
    ? new ServiceError(`${text}; ${storeCure(file)}`, {cause})
    : new Error(text, {cause});
}

function sqliteCode(error: unknown): number | undefined {
  const code = (error as {errcode?: unknown}).errcode;
  return typeof code === 'number' ? code & 0xff : undefined;
}

/** True if SQLite finds a file damaged, or finds that it is no database. */
export const isDamage = (error: unknown) => [11, 26].includes(sqliteCode(error) ?? 0);

function isBusy(error: unknown): boolean {
  return sqliteCode(error) === 5;
}
