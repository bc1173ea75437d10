/** Uploads to Cloud Storage in pieces. Another process can continue an upload by its session. */
import type {Bucket} from '@google-cloud/storage';
import {ServiceError} from '../../shared/contracts/errors.ts';
import {isNotFound, isPreconditionFailed, storageReason} from '../../shared/google/errors.ts';
import {openBucket, type StorageBucketOptions} from '../../shared/google/objects.ts';
import {type RetryPolicy, STORAGE_RETRIES, withRetries} from '../../shared/google/retry.ts';
import {repeatedFetch} from './repeated-fetch.ts';

const GOOGLE = 'https://storage.googleapis.com';
/** A piece slower than this has failed. */
const LEAST_BYTES_PER_MS = 100;

/** Content to upload. Cloud Storage rejects bytes with another CRC-32C. */
export type Content = {name: string; size_bytes: number; crc32c: string; content_type: string};

/**
 * `stored`: bytes that Cloud Storage has. `done`: the object exists with all bytes. `exists`: another upload created the object
 * first. `gone`: Cloud Storage no longer knows the session.
 */
export type UploadState = {status: 'open'; stored: number} | {status: 'done' | 'exists' | 'gone'};

/** Create-only uploads of one bucket. */
export class ResumableUploads {
  readonly #place: {bucket: string; token: string | undefined};
  readonly #open: () => Promise<Bucket>;
  readonly #retries: RetryPolicy;
  readonly #origin: string;

  constructor(options: StorageBucketOptions) {
    const {bucket, endpoint, token, retries = STORAGE_RETRIES} = options;
    this.#place = {bucket, token};
    this.#origin = new URL(endpoint ?? GOOGLE).origin;
    this.#retries = retries;
    this.#open = openBucket(options);
  }

  /** Starts an upload and returns the address of its session. The address is a credential. Undefined: the object exists. */
  async begin({name, size_bytes, crc32c, content_type}: Content): Promise<string | undefined> {
    try {
      const bucket = await this.#open();
      const metadata = {contentType: content_type, contentLength: size_bytes, crc32c};
      const preconditionOpts = {ifGenerationMatch: 0};
      const [session] = await withRetries(this.#retries, () =>
        bucket.file(name).createResumableUpload({metadata, preconditionOpts}),
      );
      return session;
    } catch (error) {
      if (isPreconditionFailed(error)) return undefined;
      throw this.#failure(name, error);
    }
  }

  /** True for a session of this bucket. Bytes and token go to no other address. */
  isOwn(session: string): boolean {
    const url = URL.parse(session);
    const path = `/upload/storage/v1/b/${encodeURIComponent(this.#place.bucket)}/o`;
    return url?.origin === this.#origin && url.pathname.startsWith(path);
  }

  /** Asks how many bytes are stored. */
  ask(session: string, content: Content, stop?: AbortSignal): Promise<UploadState> {
    return this.#put(session, content, `bytes */${content.size_bytes}`, undefined, stop);
  }

  /** Sends bytes that start at `start`. */
  send(
    session: string,
    content: Content,
    start: number,
    bytes: Buffer<ArrayBuffer>,
    stop?: AbortSignal,
  ): Promise<UploadState> {
    const range = `bytes ${start}-${start + bytes.length - 1}/${content.size_bytes}`;
    return this.#put(session, content, range, bytes, stop);
  }

  async #put(
    session: string,
    content: Content,
    range: string,
    body: Buffer<ArrayBuffer> | undefined,
    stop: AbortSignal | undefined,
  ): Promise<UploadState> {
    const limit_ms = this.#retries.silence_ms + Math.ceil((body?.length ?? 0) / LEAST_BYTES_PER_MS);
    const {token} = this.#place;
    const headers = {'content-range': range, ...(token ? {authorization: `Bearer ${token}`} : {})};
    try {
      return await repeatedFetch(this.#retries, limit_ms, stop, async signal => {
        const request = {method: 'PUT', headers, body: body ?? null, signal, redirect: 'manual'} as const;
        const answer = await fetch(session, request);
        return progressOf(answer, await answer.text());
      });
    } catch (error) {
      stop?.throwIfAborted();
      if (isPreconditionFailed(error)) return {status: 'exists'};
      if (isNotFound(error) || isGone(error)) return {status: 'gone'};
      throw this.#failure(content.name, error);
    }
  }

  #failure(name: string, cause: unknown): Error {
    const {bucket} = this.#place;
    return new ServiceError(`Failed to upload gs://${bucket}/${name}: ${storageReason(cause, bucket)}`, {
      cause,
    });
  }
}

function progressOf(answer: Response, text: string): UploadState {
  if (answer.ok) return {status: 'done'};
  if (answer.status !== 308) throw Object.assign(new Error(text || answer.statusText), {code: answer.status});
  const last = /^bytes=0-(\d+)$/.exec(answer.headers.get('range') ?? '')?.[1];
  return {status: 'open', stored: last === undefined ? 0 : Number(last) + 1};
}

/** Cloud Storage answers 410 for a session that it ended. */
function isGone(error: unknown): boolean {
  return (error as {code?: unknown}).code === 410;
}
