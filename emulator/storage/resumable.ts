import {randomBytes} from 'node:crypto';
import {open} from 'node:fs/promises';
import {ApiError} from '../http/errors.ts';
import type {Reply, Request} from '../http/http.ts';
import type {JsonObject} from '../http/json.ts';
import {chunksOf} from '../http/request-body.ts';
import type {CloudDatabase} from '../state/database.ts';
import {type Blobs, ChecksumStream, checksumsOfFile, sizeOf, writeAll} from './blobs.ts';
import {type ExpectedChecksums, expectedInHeaders, requireChecksums} from './checksum-headers.ts';
import type {Conditions} from './conditions.ts';
import type {ObjectTable} from './objects.ts';
import {type Fields, resourceOf} from './resource.ts';

type Session = {
  bucket: string;
  name: string;
  fields: Fields;
  conditions: Conditions;
  expected: ExpectedChecksums;
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

/** Content-Range of a request, such as `bytes 0-9/20`, `bytes 0-*\/*` or `bytes *\/20`. Null stands for `*`. */
type Range = {start: number | null; end: number | null; total: number | null};

const week_ms = 7 * 24 * 3600 * 1000;

/** Uploads in several requests. A session is a row and a file of bytes, so both survive a crash of this process. */
export class ResumableUploads {
  readonly #database: CloudDatabase;
  readonly #blobs: Blobs;
  readonly #objects: ObjectTable;
  /** Checksums of the stored bytes by upload id. A new process computes them again from the file. */
  readonly #checksums = new Map<string, ChecksumStream>();
  /** Last request of each upload. Requests of an upload run one after another: a retry may arrive while a broken request still runs. */
  readonly #turns = new Map<string, Promise<unknown>>();

  constructor(database: CloudDatabase, blobs: Blobs, objects: ObjectTable) {
    this.#database = database;
    this.#blobs = blobs;
    this.#objects = objects;
  }

  begin(session: Session): string {
    const id = randomBytes(24).toString('base64url');
    const {bucket, name, fields, conditions, expected, total_bytes} = session;
    this.#database.run(
      'INSERT INTO uploads VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)',
      ...[id, bucket, name, JSON.stringify(fields), JSON.stringify(conditions), JSON.stringify(expected)],
      ...[total_bytes, new Date().toISOString()],
    );
    return id;
  }

  /** Removes uploads that began over a week ago, as Google does. */
  prune(): void {
    const before = new Date(Date.now() - week_ms).toISOString();
    this.#database.run('DELETE FROM uploads WHERE created_at < ?', before);
  }

  /** True for the id of an unfinished upload. */
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

  /** Appends the body to the file. Returns false if the body is shorter than its Content-Range; the bytes that arrived are kept. */
  async #append(id: string, file: string, request: Request, range: Range): Promise<boolean> {
    const size = sizeOf(file);
    const start = range.start ?? 0;
    if (start > size) {
      throw new ApiError(
        400,
        `Failed to store bytes at ${start}: the upload has ${size} bytes; query its status and continue there`,
      );
    }
    const checksums = await this.#checksumsOf(id, file, size);
    const handle = await open(file, 'a');
    let at = start;
    try {
      for await (const chunk of chunksOf(request.body)) {
        // A client that missed the last answer sends bytes again that are stored already.
        const fresh = chunk.subarray(Math.max(0, checksums.size_bytes - at));
        at += chunk.length;
        if (range.end !== null && at > range.end + 1) {
          throw new ApiError(400, 'The request holds more bytes than its Content-Range says');
        }
        if (fresh.length === 0) continue;
        await writeAll(handle, fresh);
        checksums.update(fresh);
      }
    } catch (error) {
      // The file may contain a part of a chunk that is missing in the checksums.
      this.#checksums.delete(id);
      throw error;
    } finally {
      await handle.close();
    }
    return range.end === null || at === range.end + 1;
  }

  async #checksumsOf(id: string, file: string, size: number): Promise<ChecksumStream> {
    let checksums = this.#checksums.get(id);
    if (checksums?.size_bytes !== size) {
      checksums = size === 0 ? new ChecksumStream() : await checksumsOfFile(file);
      this.#checksums.set(id, checksums);
    }
    return checksums;
  }

  async #finish(row: Row, file: string, request: Request): Promise<JsonObject> {
    const handle = await open(file, 'a');
    await handle.sync();
    await handle.close();
    const checksums = await this.#checksumsOf(row.id, file, sizeOf(file));
    const finished = checksums.finish();
    this.#checksums.delete(row.id);
    const url = request.origin;
    let json: JsonObject = {};
    try {
      requireChecksums(finished, {
        ...(JSON.parse(row.checksums) as ExpectedChecksums),
        ...expectedInHeaders(request),
      });
      const fields = JSON.parse(row.fields) as Fields;
      const conditions = JSON.parse(row.conditions) as Conditions;
      await this.#objects.create(row.bucket, row.name, {file, ...finished}, fields, conditions, object => {
        // Inside the transaction of the object, so that a client that repeats its last request after a crash gets the resource.
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
    this.#checksums.delete(id);
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
