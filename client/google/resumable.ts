/** Uploads to Cloud Storage in pieces. Another process can continue an upload by its session. */
import {ServiceError} from '../../shared/contracts/errors.ts';
import {isNotFound, isPreconditionFailed, storageReason} from '../../shared/google/errors.ts';
import {openBucket, type StorageBucketOptions} from '../../shared/google/objects.ts';
import {STORAGE_RETRIES, withRetries} from '../../shared/google/retry.ts';
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
type UploadState = {status: 'open'; stored: number} | {status: 'done' | 'exists' | 'gone'};

export type ResumableUploads = ReturnType<typeof resumableUploads>;

/** Create-only uploads of one bucket. */
export function resumableUploads(options: StorageBucketOptions) {
  const {bucket, endpoint, token, retries = STORAGE_RETRIES} = options;
  const open = openBucket(options);
  const own = new URL(endpoint ?? GOOGLE).origin;
  const failure = (name: string, cause: unknown) =>
    new ServiceError(`Failed to upload gs://${bucket}/${name}: ${storageReason(cause, bucket)}`, {cause});
  const put = async (
    session: string,
    content: Content,
    range: string,
    body: Buffer<ArrayBuffer> | undefined,
    stop: AbortSignal | undefined,
  ): Promise<UploadState> => {
    const limit_ms = retries.silence_ms + Math.ceil((body?.length ?? 0) / LEAST_BYTES_PER_MS);
    const headers = {'content-range': range, ...(token ? {authorization: `Bearer ${token}`} : {})};
    try {
      return await repeatedFetch(retries, limit_ms, stop, async signal => {
        const request = {method: 'PUT', headers, body: body ?? null, signal, redirect: 'manual'} as const;
        const answer = await fetch(session, request);
        return progressOf(answer, await answer.text());
      });
    } catch (error) {
      stop?.throwIfAborted();
      if (isPreconditionFailed(error)) return {status: 'exists'};
      if (isNotFound(error) || (error as {code?: unknown}).code === 410) return {status: 'gone'};
      throw failure(content.name, error);
    }
  };
  return {
    /** Starts an upload and returns the address of its session. The address is a credential. Undefined: the object exists. */
    async begin({name, size_bytes, crc32c, content_type}: Content): Promise<string | undefined> {
      try {
        const file = (await open()).file(name);
        const metadata = {contentType: content_type, contentLength: size_bytes, crc32c};
        const request = {metadata, preconditionOpts: {ifGenerationMatch: 0}};
        const [session] = await withRetries(retries, () => file.createResumableUpload(request));
        return session;
      } catch (error) {
        if (isPreconditionFailed(error)) return undefined;
        throw failure(name, error);
      }
    },
    /** True for a session of this bucket. Bytes and token go to no other address. */
    isOwn(session: string): boolean {
      const url = URL.parse(session);
      const path = `/upload/storage/v1/b/${encodeURIComponent(bucket)}/o`;
      return url?.origin === own && url.pathname.startsWith(path);
    },
    /** Asks how many bytes are stored. */
    ask: (session: string, content: Content, stop?: AbortSignal) =>
      put(session, content, `bytes */${content.size_bytes}`, undefined, stop),
    send(session: string, content: Content, start: number, bytes: Buffer<ArrayBuffer>, stop?: AbortSignal) {
      const range = `bytes ${start}-${start + bytes.length - 1}/${content.size_bytes}`;
      return put(session, content, range, bytes, stop);
    },
  };
}

function progressOf(answer: Response, text: string): UploadState {
  if (answer.ok) return {status: 'done'};
  if (answer.status !== 308) throw Object.assign(new Error(text || answer.statusText), {code: answer.status});
  const last = /^bytes=0-(\d+)$/.exec(answer.headers.get('range') ?? '')?.[1];
  return {status: 'open', stored: last === undefined ? 0 : Number(last) + 1};
}
