import {type FileHandle, open} from 'node:fs/promises';
import {ApiError} from '../http/errors.ts';
import type {CloudDatabase} from '../state/database.ts';
import type {Blobs} from './blobs.ts';
import {type Conditions, requireConditions} from './conditions.ts';
import {checkObjectName, type Fields, type StoredObject} from './resource.ts';
import type {BucketView} from './view.ts';

type Row = Omit<StoredObject, 'fields'> & {fields: string};

/** Stored bytes for a new object, with their checksums. */
export type ObjectContent = {
  file: string;
  size_bytes: number;
  crc32c: string;
  md5: string | null;
  component_count?: number;
};

/** Called for each new object, inside its transaction. */
export type OnFinalized = (object: StoredObject) => void;

/** Buckets and objects as rows of the database. `Blobs` holds the bytes, which a caller stores and fsyncs first. */
export class ObjectTable {
  readonly #database: CloudDatabase;
  readonly #blobs: Blobs;
  readonly #view: BucketView;
  readonly #onFinalized: OnFinalized;

  constructor(database: CloudDatabase, blobs: Blobs, view: BucketView, onFinalized: OnFinalized) {
    this.#database = database;
    this.#blobs = blobs;
    this.#view = view;
    this.#onFinalized = onFinalized;
  }

  buckets(): {name: string; created_at: string}[] {
    return this.#database.all('SELECT * FROM buckets ORDER BY name');
  }

  bucket(name: string): {name: string; created_at: string} {
    const found = this.#database.get<{name: string; created_at: string}>(
      'SELECT * FROM buckets WHERE name = ?',
      name,
    );
    if (!found) throw new ApiError(404, `The specified bucket does not exist: ${name}`);
    return found;
  }

  makeBucket(name: string): {name: string; created_at: string} {
    if (!/^[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]$/.test(name)) {
      throw new ApiError(400, `Invalid bucket name: '${name}'; use 3 to 63 of a-z, 0-9, "-", "_" and "."`);
    }
    const made = this.#database.run(
      'INSERT INTO buckets VALUES (?, ?) ON CONFLICT DO NOTHING',
      name,
      new Date().toISOString(),
    );
    if (made === 0) throw new ApiError(409, `The bucket ${name} already exists; you own it`);
    return this.bucket(name);
  }

  find(bucket: string, name: string): StoredObject | undefined {
    const row = this.#database.get<Row>('SELECT * FROM objects WHERE bucket = ? AND name = ?', bucket, name);
    return row && !this.#isRemoved(row) ? fromRow(row) : undefined;
  }

  /** Opens the bytes of an object as the view of the buckets shows them. Open bytes stay readable after an overwrite or a delete. */
  async open({bucket, name, generation}: StoredObject): Promise<FileHandle> {
    const blob = this.#blobs.file(generation);
    return open(this.#view.fileOf(bucket, name, blob), 'r');
  }

  /** True if a person removed the object from the view of the buckets, which deletes it. */
  #isRemoved({bucket, name, generation}: Pick<Row, 'bucket' | 'name' | 'generation'>): boolean {
    if (!this.#view.isRemoved(bucket, name)) return false;
    this.#database.run('DELETE FROM objects WHERE generation = ?', generation);
    void this.#blobs.drop(generation);
    return true;
  }

  /** Object of a name and, if given, of a generation. Only the newest generation exists. */
  get(bucket: string, name: string, generation?: number): StoredObject {
    this.bucket(bucket);
    const object = this.find(bucket, name);
    if (!object || (generation !== undefined && generation !== object.generation)) {
      const version = generation === undefined ? '' : `#${generation}`;
      throw new ApiError(404, `No such object: ${bucket}/${name}${version}`);
    }
    return object;
  }

  /** Makes stored bytes the newest generation of a name. The draft is gone afterwards, even after an error. */
  async create(
    bucket: string,
    name: string,
    bytes: ObjectContent,
    fields: Fields,
    conditions: Conditions,
    also: (object: StoredObject) => void = () => {},
  ): Promise<StoredObject> {
    let before: StoredObject | undefined;
    let generation: number | undefined;
    let object: StoredObject;
    try {
      checkObjectName(name);
      object = this.#database.transaction(() => {
        this.bucket(bucket);
        before = this.find(bucket, name);
        requireConditions(conditions, before);
        generation = this.#nextGeneration();
        this.#blobs.seal(bytes.file, generation);
        const now = new Date().toISOString();
        const {size_bytes, crc32c, md5, component_count = null} = bytes;
        const made = {
          ...{bucket, name, generation, metageneration: 1, size_bytes, crc32c, md5, component_count, fields},
          ...{created_at: now, updated_at: now},
        };
        this.#insert(made);
        this.#blobs.note(generation, made);
        this.#onFinalized(made);
        also(made);
        return made;
      });
    } catch (error) {
      await this.#blobs.discard(bytes.file);
      if (generation !== undefined) await this.#blobs.drop(generation);
      throw error;
    }
    this.#view.show(bucket, name, this.#blobs.file(object.generation));
    if (before) await this.#blobs.drop(before.generation);
    return object;
  }

  /** Changes the fields of an object. Bytes and generation stay. */
  update(
    bucket: string,
    name: string,
    change: (fields: Fields) => Fields,
    conditions: Conditions,
    generation?: number,
  ): StoredObject {
    return this.#database.transaction(() => {
      const object = this.get(bucket, name, generation);
      requireConditions(conditions, object);
      const fields = change(object.fields);
      const updated_at = new Date().toISOString();
      const metageneration = object.metageneration + 1;
      this.#database.run(
        'UPDATE objects SET fields = ?, metageneration = ?, updated_at = ? WHERE generation = ?',
        JSON.stringify(fields),
        metageneration,
        updated_at,
        object.generation,
      );
      const changed = {...object, fields, metageneration, updated_at};
      this.#blobs.note(object.generation, changed);
      return changed;
    });
  }

  async delete(bucket: string, name: string, conditions: Conditions, generation?: number): Promise<void> {
    const object = this.#database.transaction(() => {
      const found = this.get(bucket, name, generation);
      requireConditions(conditions, found);
      this.#database.run('DELETE FROM objects WHERE generation = ?', found.generation);
      return found;
    });
    this.#view.hide(bucket, name);
    await this.#blobs.drop(object.generation);
  }

  /** Repairs files and view after a crash or the loss of the database. Returns how many files were removed or moved, and objects recovered. */
  recover(isUpload: (id: string) => boolean): {swept: number; found: number; moved: number} {
    const found = this.#findAgain();
    const rows = this.#database.all<Pick<Row, 'bucket' | 'name' | 'generation'>>(
      'SELECT bucket, name, generation FROM objects',
    );
    const generations = new Set(rows.map(row => row.generation));
    const swept = this.#blobs.sweep(generation => generations.has(generation), isUpload);
    const moved = this.#view.repair(rows.map(row => ({...row, blob: this.#blobs.file(row.generation)})));
    return {swept, found, moved};
  }

  /** Restores the rows of a lost database from their copies beside the blobs. */
  #findAgain(): number {
    if (this.#database.get('SELECT 1 FROM objects')) return 0;
    const rows = this.#blobs.noted<StoredObject>();
    this.#database.transaction(() => {
      for (const row of rows) {
        const values = [row.bucket, row.created_at];
        this.#database.run('INSERT INTO buckets VALUES (?, ?) ON CONFLICT DO NOTHING', ...values);
        this.#insert(row);
        this.#database.set('last_generation', String(row.generation));
      }
    });
    return rows.length;
  }

  /** At most `limit` objects of a bucket after the name `after` and within the bounds, in the order of UTF-8 bytes. */
  page(
    bucket: string,
    bounds: {after: string; prefix: string; start: string; end: string},
    limit: number,
  ): StoredObject[] {
    const {after, prefix, start, end} = bounds;
    const read = () =>
      this.#database.all<Row>(
        `SELECT * FROM objects WHERE bucket = ? AND name > ? AND name >= ? AND name <= ? AND name >= ? AND name < ?
         ORDER BY name LIMIT ?`,
        ...[bucket, after, prefix, lastWith(prefix), start, end === '' ? lastWith('') : end, limit],
      );
    let rows = read();
    while (rows.filter(row => this.#isRemoved(row)).length > 0) rows = read();
    return rows.map(fromRow);
  }

  #insert(object: StoredObject): void {
    const {bucket, name, generation, metageneration, size_bytes, crc32c, md5, component_count} = object;
    this.#database.run(
      'INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
      ...[bucket, name, generation, metageneration, size_bytes, crc32c, md5, component_count],
      ...[JSON.stringify(object.fields), object.created_at, object.updated_at],
    );
  }

  /** Microseconds since 1970, as at Google. Each generation is higher than the last, even after the clock was set back. */
  #nextGeneration(): number {
    const last = Number(this.#database.setting('last_generation') ?? 0);
    const generation = Math.max(Date.now() * 1000, last + 1);
    this.#database.set('last_generation', String(generation));
    return generation;
  }
}

/** Upper bound of the names with a prefix: a name has at most 1024 bytes, so 256 times the highest character of four bytes. */
export function lastWith(prefix: string): string {
  return prefix + '\u{10ffff}'.repeat(256);
}

function fromRow(row: Row): StoredObject {
  return {...row, fields: JSON.parse(row.fields) as Fields};
}
