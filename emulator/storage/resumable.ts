import {randomBytes} from 'node:crypto';
import {open} from 'node:fs/promises';
import type {CloudDatabase} from '../database.ts';
import {ApiError} from '../errors.ts';
import type {Reply, Request} from '../http.ts';
import type {JsonObject} from '../json.ts';
import {chunksOf} from '../request-body.ts';
import {type Blobs, Summer, sizeOf, sumFile, writeAll} from './blobs.ts';
import {type Claims, claimsInHeaders, requireSums} from './checksum-headers.ts';
import type {Conditions} from './conditions.ts';
import type {ObjectTable} from './objects.ts';
import {type Fields, resourceOf} from './resource.ts';

type Session = {
  bucket: string;
  name: string;
  fields: Fields;
  conditions: Conditions;
  claims: Claims;
  total_bytes: number | null;
};
type Row = {
  id: string;
  bucket: string;
  name: string;
  fields: string;
  conditions: string;
  checksums: string;
  total_bytes: number | null;
  created_at: string;
  finished: string | null;
};

/** `bytes 0-9/20`, `bytes 0-*\/*`, `bytes *\/20`: where the bytes of a request belong and how many there will be. */
type Range = {start: number | null; end: number | null; total: number | null};

const week_ms = 7 * 24 * 3600 * 1000;

/** Uploads in several requests. The session is a row and its bytes a file, so both outlive a crash of this process. */
export class ResumableUploads {
  readonly #database: CloudDatabase;
  readonly #blobs: Blobs;
  readonly #objects: ObjectTable;
  /** Sums so far; lost with the process, and then taken again from the file. */
  readonly #summers = new Map<string, Summer>();
  /** One request at a time per upload: a client that retries may overtake its own broken request. */
  readonly #turns = new Map<string, Promise<unknown>>();

  constructor(database: CloudDatabase, blobs: Blobs, objects: ObjectTable) {
    this.#database = database;
    this.#blobs = blobs;
    this.#objects = objects;
  }

  begin(session: Session): string {
    const id = randomBytes(24).toString('base64url');
    const {bucket, name, fields, conditions, claims, total_bytes} = session;
    this.#database.run(
      'INSERT INTO uploads VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)',
      ...[id, bucket, name, JSON.stringify(fields), JSON.stringify(conditions), JSON.stringify(claims)],
      ...[total_bytes, new Date().toISOString()],
    );
    return id;
  }

  /** Forgets what nobody came back for, as Google does after a week. */
  prune(): void {
    const before = new Date(Date.now() - week_ms).toISOString();
    this.#database.run('DELETE FROM uploads WHERE created_at < ?', before);
  }

  /** Whether a file in the uploads folder belongs to an upload that goes on. */
  isOpen(id: string): boolean {
    return this.#database.get('SELECT 1 FROM uploads WHERE id = ? AND finished IS NULL', id) !== undefined;
  }

  async put(request: Request): Promise<Reply> {
    const id = request.query.get('upload_id') ?? '';
    return this.#inTurn(id, () => this.#put(id, request));
  }

  async cancel(request: Request): Promise<Reply> {
    const id = request.query.get('upload_id') ?? '';
    return this.#inTurn(id, async () => {
      this.#row(id);
      await this.#forget(id);
      this.#database.run('DELETE FROM uploads WHERE id = ?', id);
      return {status: 499, json: new ApiError(499, 'The upload is cancelled').body()};
    });
  }

  async #inTurn<T>(id: string, work: () => Promise<T>): Promise<T> {
    const turn = (this.#turns.get(id) ?? Promise.resolve()).then(work, work);
    this.#turns.set(id, turn);
    try {
      return await turn;
    } finally {
      if (this.#turns.get(id) === turn) this.#turns.delete(id);
    }
  }

  #row(id: string): Row {
    const row = this.#database.get<Row>('SELECT * FROM uploads WHERE id = ?', id);
    if (!row) throw new ApiError(404, `No such upload: ${id}; begin it again`);
    return row;
  }

  async #put(id: string, request: Request): Promise<Reply> {
    const row = this.#row(id);
    if (row.finished !== null) return {json: JSON.parse(row.finished) as JsonObject};
    const range = rangeOf(request);
    const file = this.#blobs.uploadFile(id);
    const total = range.total ?? row.total_bytes;
    if (range.start !== null) {
      const isWhole = await this.#append(id, file, request, range);
      if (!isWhole) throw new ApiError(400, 'The request ended before its Content-Range did');
    }
    const size = sizeOf(file);
    const isLast =
      range.start === null ? range.total === size : range.end === null ? range.total === null : false;
    if (isLast || total === size) {
      if (total !== null && total !== size) {
        throw new ApiError(400, `The upload was announced as ${total} bytes and ended after ${size}`);
      }
      return {json: await this.#finish(row, file, request)};
    }
    return {status: 308, headers: size > 0 ? {range: `bytes=0-${size - 1}`} : {}, body: ''};
  }

  /** False when the body was shorter than it said. What arrived is kept all the same: the client asks how much it was. */
  async #append(id: string, file: string, request: Request, range: Range): Promise<boolean> {
    const size = sizeOf(file);
    const start = range.start ?? 0;
    if (start > size) {
      throw new ApiError(
        400,
        `The upload has ${size} bytes, so no bytes can be put at ${start}; ask where to go on`,
      );
    }
    const summer = await this.#summer(id, file, size);
    const handle = await open(file, 'a');
    let at = start;
    try {
      for await (const chunk of chunksOf(request.body)) {
        // A client that did not hear our answer sends some bytes again.
        const fresh = chunk.subarray(Math.max(0, summer.size_bytes - at));
        at += chunk.length;
        if (range.end !== null && at > range.end + 1) {
          throw new ApiError(400, 'The request holds more bytes than its Content-Range says');
        }
        if (fresh.length === 0) continue;
        await writeAll(handle, fresh);
        summer.update(fresh);
      }
    } catch (error) {
      // The file may hold part of a chunk that was not summed.
      this.#summers.delete(id);
      throw error;
    } finally {
      await handle.close();
    }
    return range.end === null || at === range.end + 1;
  }

  async #summer(id: string, file: string, size: number): Promise<Summer> {
    let summer = this.#summers.get(id);
    if (summer?.size_bytes !== size) {
      summer = size === 0 ? new Summer() : await sumFile(file);
      this.#summers.set(id, summer);
    }
    return summer;
  }

  async #finish(row: Row, file: string, request: Request): Promise<JsonObject> {
    const handle = await open(file, 'a');
    await handle.sync();
    await handle.close();
    const summer = await this.#summer(row.id, file, sizeOf(file));
    const sums = summer.finish();
    this.#summers.delete(row.id);
    const url = `http://${request.headers.host}`;
    let json: JsonObject = {};
    try {
      requireSums(sums, {...(JSON.parse(row.checksums) as Claims), ...claimsInHeaders(request)});
      const fields = JSON.parse(row.fields) as Fields;
      const conditions = JSON.parse(row.conditions) as Conditions;
      await this.#objects.create(row.bucket, row.name, {file, ...sums}, fields, conditions, object => {
        // In the object's own transaction: a client that asks again after a crash is told how it ended.
        json = resourceOf(object, url);
        this.#database.run('UPDATE uploads SET finished = ? WHERE id = ?', JSON.stringify(json), row.id);
      });
    } catch (error) {
      await this.#forget(row.id);
      this.#database.run('DELETE FROM uploads WHERE id = ?', row.id);
      throw error;
    }
    return json;
  }

  async #forget(id: string): Promise<void> {
    this.#summers.delete(id);
    await this.#blobs.discard(this.#blobs.uploadFile(id));
  }
}

function rangeOf(request: Request): Range {
  const header = request.headers['content-range'];
  if (header === undefined) {
    const length = request.headers['content-length'];
    if (length === undefined) return {start: 0, end: null, total: null};
    const total = Number(length);
    return total === 0 ? {start: null, end: null, total} : {start: 0, end: total - 1, total};
  }
  const match = /^bytes (?:\*|(\d+)-(\d+|\*))\/(\d+|\*)$/.exec(header);
  if (!match) throw new ApiError(400, `Invalid Content-Range: "${header}"`);
  const [, start, end, total] = match;
  const number = (text: string | undefined) => (text === undefined || text === '*' ? null : Number(text));
  return {start: number(start), end: number(end), total: number(total)};
}
