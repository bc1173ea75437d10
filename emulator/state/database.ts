import {existsSync, mkdirSync, readFileSync, statSync, writeFileSync} from 'node:fs';
import {dirname, join} from 'node:path';
import {DatabaseSync, type SQLInputValue, type StatementSync} from 'node:sqlite';
import {isDamage} from '../../shared/embedded/sqlite-store.ts';
import {LocalCloudError} from '../http/errors.ts';
import {isOwnFolder, markFolder, notOwn} from './own-folder.ts';

/**
 * WAL with synchronous=NORMAL leaves a committed transaction in the page cache of the kernel, so a commit survives
 * `kill -9` of this process. A power cut may undo the newest commits, each as a whole; FULL would prevent this with one
 * fsync per event. Object bytes are fsynced before the row that names them, so an object is never truncated.
 */
const pragmas = `
  PRAGMA journal_mode = WAL;
  PRAGMA synchronous = NORMAL;
  PRAGMA foreign_keys = ON;
  PRAGMA busy_timeout = 5000;
`;

/** Version of the layout of a folder: of these tables, and of the documents in its stores. Folders of earlier releases have none. */
const FORM = 1;

const schema = `
  CREATE TABLE IF NOT EXISTS settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
  CREATE TABLE IF NOT EXISTS buckets (name TEXT PRIMARY KEY, created_at TEXT NOT NULL) STRICT;
  CREATE TABLE IF NOT EXISTS objects (
    bucket TEXT NOT NULL, name TEXT NOT NULL, generation INTEGER NOT NULL UNIQUE, metageneration INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL, crc32c TEXT NOT NULL, md5 TEXT, component_count INTEGER, fields TEXT NOT NULL,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL, PRIMARY KEY (bucket, name)) STRICT, WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS uploads (
    id TEXT PRIMARY KEY, bucket TEXT NOT NULL, name TEXT NOT NULL, fields TEXT NOT NULL, conditions TEXT NOT NULL,
    checksums TEXT NOT NULL, total_bytes INTEGER, created_at TEXT NOT NULL, finished TEXT) STRICT;
  CREATE TABLE IF NOT EXISTS topics (name TEXT PRIMARY KEY) STRICT;
  CREATE TABLE IF NOT EXISTS dropped_events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, function TEXT NOT NULL, target TEXT NOT NULL, event TEXT NOT NULL,
    dropped_at TEXT NOT NULL) STRICT;
  CREATE TABLE IF NOT EXISTS resources (
    kind TEXT NOT NULL, zone TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (kind, zone, name)) STRICT;
  CREATE TABLE IF NOT EXISTS operations (
    api TEXT NOT NULL, request_id TEXT NOT NULL, name TEXT PRIMARY KEY, zone TEXT NOT NULL, target TEXT NOT NULL,
    target_id TEXT NOT NULL, verb TEXT NOT NULL, created_at TEXT NOT NULL, ended_at TEXT, error TEXT) STRICT;
  CREATE TABLE IF NOT EXISTS boots (node TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT;
  CREATE TABLE IF NOT EXISTS faults (
    kind TEXT NOT NULL, target TEXT NOT NULL, amount REAL, PRIMARY KEY (kind, target)) STRICT;
  PRAGMA user_version = ${FORM};
`;

/** Database of a local cloud. Every call is synchronous, so transactions never interleave. */
export class CloudDatabase {
  readonly connection: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();

  constructor(file: string) {
    requireWhole(
      file,
      `move it, ${file}-wal and ${file}-shm away, and run \`gleaner local up\`, which finds the objects again`,
    );
    this.connection = new DatabaseSync(file);
    try {
      this.connection.exec(pragmas);
      this.#requireForm(dirname(file));
      this.transaction(() => this.connection.exec(schema));
    } catch (error) {
      this.connection.close();
      throw error instanceof LocalCloudError ? error : unusable(file, error);
    }
  }

  #requireForm(dir: string): void {
    const sql =
      'SELECT user_version AS form, (SELECT count(*) FROM sqlite_schema) AS tables FROM pragma_user_version';
    const found = this.get<{form: number; tables: number}>(sql);
    if (found?.form === 0 && found.tables > 0)
      throw new LocalCloudError(
        'dir-unusable',
        `Failed to use ${dir}: an earlier version of Gleaner wrote it; start anew in another folder with --dir, or move this one away`,
      );
  }

  #prepare(sql: string): StatementSync {
    let statement = this.#statements.get(sql);
    if (!statement) {
      statement = this.connection.prepare(sql);
      this.#statements.set(sql, statement);
    }
    return statement;
  }

  all<Row>(sql: string, ...values: SQLInputValue[]): Row[] {
    return this.#prepare(sql).all(...values) as Row[];
  }

  get<Row>(sql: string, ...values: SQLInputValue[]): Row | undefined {
    return this.#prepare(sql).get(...values) as Row | undefined;
  }

  /** Runs a statement and returns the number of changed rows. */
  run(sql: string, ...values: SQLInputValue[]): number {
    return Number(this.#prepare(sql).run(...values).changes);
  }

  transaction<T>(work: () => T): T {
    this.connection.exec('BEGIN IMMEDIATE');
    try {
      const result = work();
      this.connection.exec('COMMIT');
      return result;
    } catch (error) {
      // SQLite itself rolls back when the disk is full.
      if (this.connection.isTransaction) this.connection.exec('ROLLBACK');
      throw error;
    }
  }

  setting(key: string): string | undefined {
    return this.get<{value: string}>('SELECT value FROM settings WHERE key = ?', key)?.value;
  }

  set(key: string, value: string): void {
    this.run(
      'INSERT INTO settings VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value',
      key,
      value,
    );
  }

  close(): void {
    this.connection.close();
  }
}

/** Throws if SQLite finds the file damaged. `cure`: what to do then. */
export function requireWhole(file: string, cure: string): void {
  if (!existsSync(file)) return;
  let found: string;
  const connection = new DatabaseSync(file);
  try {
    found = String(connection.prepare('PRAGMA quick_check(1)').get()?.quick_check).replaceAll('\n', ' ');
  } catch (error) {
    // Other errors are reported when the file is used.
    found = isDamage(error) ? (error as Error).message : 'ok';
  } finally {
    connection.close();
  }
  if (found !== 'ok')
    throw new LocalCloudError('dir-unusable', `Failed to use ${file}: it is damaged (${found}); ${cure}`);
}

export type FolderLock = {
  /** Records the owner in a line, which the error of the next process quotes. */
  note(text: string): void;
  release(): void;
};

/**
 * Locks a folder for one running cloud. The lock is a SQLite lock on an empty database, because the kernel releases it however the process
 * ends; a pid file could name a dead process. Throws for files that no local cloud of this user wrote on this machine, unless `adopt` accepts
 * them: a cloud runs programs from its folder.
 */
export function lockFolder(dir: string, adopt = false): FolderLock {
  if (statSync(dir, {throwIfNoEntry: false})?.isFile())
    throw new LocalCloudError(
      'dir-unusable',
      `Failed to use ${dir}: it is a file; choose a folder with --dir`,
    );
  let connection: DatabaseSync;
  try {
    makeFolder(dir);
    const problem = notOwn(dir, adopt);
    if (problem !== undefined) throw new LocalCloudError('dir-foreign', `Refused to use ${dir}: ${problem}`);
    connection = new DatabaseSync(join(dir, 'lock.db'));
  } catch (error) {
    throw error instanceof LocalCloudError ? error : unusable(dir, error);
  }
  const noteFile = join(dir, 'owner.txt');
  try {
    connection.exec('PRAGMA busy_timeout = 0; BEGIN EXCLUSIVE');
  } catch (error) {
    connection.close();
    if (!/locked|busy/i.test((error as Error).message)) throw unusable(dir, error);
    throw new LocalCloudError(
      'dir-in-use',
      `Failed to use ${dir}: another local cloud (${ownerOf(noteFile)}) runs there; use that cloud, end it, or choose another folder with --dir`,
      {cause: error},
    );
  }
  if (!isOwnFolder(dir)) markFolder(dir);
  return {
    note: text => writeFileSync(noteFile, `${text}\n`),
    release: () => {
      connection.exec('ROLLBACK');
      connection.close();
    },
  };
}

/** Creates a folder and its parents. Node's recursive mkdir never returns on /proc, which answers ENOENT to a mkdir. */
function makeFolder(dir: string): void {
  if (existsSync(dir)) return;
  makeFolder(dirname(dir));
  mkdirSync(dir, {mode: 0o700});
}

function ownerOf(noteFile: string): string {
  try {
    return readFileSync(noteFile, 'utf8').trim();
  } catch {
    return 'unknown process';
  }
}

function unusable(path: string, cause: unknown): LocalCloudError {
  return new LocalCloudError(
    'dir-unusable',
    `Failed to use ${path}: ${(cause as Error).message}; make it writable or choose another folder with --dir`,
    {cause},
  );
}
