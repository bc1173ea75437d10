import {setTimeout as sleep} from 'node:timers/promises';
import type {
  Bucket,
  File,
  FileMetadata,
  GetFilesOptions,
  GetFilesResponse,
  StorageOptions,
} from '@google-cloud/storage';
import {ObjectTooLarge, ServiceError} from '../contracts/errors.ts';
import type {ObjectInfo, Objects, Written} from '../ports/ports.ts';
import {isBucketMissing, isForbidden, isNotFound, isPreconditionFailed, storageReason} from './errors.ts';
import {memoizeAsync} from './memoize-async.ts';
import {piecesFrom, readContent} from './read-content.ts';
import {BrokenAnswer, type RetryPolicy, STORAGE_RETRIES, waitAfter, within, withRetries} from './retry.ts';

/** An upload slower than this has failed. */
const LEAST_BYTES_PER_MS = 1000;

const FOREIGN_ANSWER =
  'the answer is not from Cloud Storage; check GLEANER_STORAGE_ENDPOINT and the proxy of the network';

/** How often a read may find another generation than its metadata. */
const READ_ROUNDS = 5;

/** `endpoint` replaces Google's address, and `token` authorises calls to it. */
export type StorageBucketOptions = {
  project: string;
  bucket: string;
  endpoint?: string | undefined;
  token?: string | undefined;
  retries?: RetryPolicy;
};

export function openObjects(options: StorageBucketOptions): Objects {
  return new StorageObjects(options);
}

export function openBucket(
  {project, bucket, endpoint, token}: StorageBucketOptions,
  interceptors: Interceptor[] = [],
): () => Promise<Bucket> {
  return memoizeAsync(async () => {
    const {Storage} = await import('@google-cloud/storage');
    const storage = new Storage({
      projectId: project,
      ...(endpoint ? {apiEndpoint: endpoint} : {}),
      interceptors_: [...interceptors, ...(token ? [withToken(token)] : [])],
      // With its own retries the client throws a 503 of a read outside of any promise, on Node 24.
      retryOptions: {autoRetry: false},
    });
    return storage.bucket(bucket);
  });
}

type Interceptor = NonNullable<StorageOptions['interceptors_']>[number];

class StorageObjects implements Objects {
  readonly bucket: string;
  readonly #open: () => Promise<Bucket>;
  readonly #retries: RetryPolicy;

  constructor(options: StorageBucketOptions) {
    this.bucket = options.bucket;
    this.#retries = options.retries ?? STORAGE_RETRIES;
    this.#open = openBucket(options, [apartFromOthers]);
  }

  async list(prefix: string, {start, limit}: {start?: string; limit?: number} = {}): Promise<ObjectInfo[]> {
    const from = start && start > prefix ? {startOffset: start} : {};
    const most = limit === undefined ? {} : {maxResults: limit};
    const objects: ObjectInfo[] = [];
    try {
      const bucket = await this.#open();
      // A page has at most 1,000 names, and given a limit the client fetches only one page.
      let page: GetFilesOptions | null = {prefix, ...from, ...most, autoPaginate: false};
      while (page && objects.length < (limit ?? Number.POSITIVE_INFINITY)) {
        const query: GetFilesOptions = page;
        const [files, next, answer]: GetFilesResponse = await this.#repeat(() => bucket.getFiles(query));
        // The client would read a web page as an empty list.
        if (typeof answer !== 'object') throw new Error(FOREIGN_ANSWER);
        for (const {metadata} of files) objects.push(infoOf(metadata));
        page = next && {...next, autoPaginate: false};
      }
      return objects.slice(0, limit);
    } catch (error) {
      throw this.#failure('list', prefix, error);
    }
  }

  async head(name: string): Promise<ObjectInfo | undefined> {
    try {
      const file = await this.#file(name);
      const [metadata] = await this.#repeat(() => file.getMetadata());
      return infoOf(metadata);
    } catch (error) {
      if (isNotFound(error) && !isBucketMissing(error)) return undefined;
      throw this.#failure('read the metadata of', name, error);
    }
  }

  async read(name: string, {max_bytes}: {max_bytes: number}): Promise<Uint8Array | undefined> {
    const end = new AbortController();
    const content = this.#read(name, max_bytes, end.signal);
    try {
      return await within(this.#retries.read_ms, content, 'its content did not arrive');
    } catch (error) {
      end.abort();
      throw error instanceof BrokenAnswer ? this.#failure('read', name, error) : error;
    }
  }

  async #read(name: string, max_bytes: number, signal: AbortSignal): Promise<Uint8Array | undefined> {
    for (let round = 1; ; round++) {
      signal.throwIfAborted();
      const info = await this.head(name);
      if (!info) return undefined;
      if (info.size_bytes > max_bytes)
        throw new ObjectTooLarge(
          `Failed to read gs://${this.bucket}/${name}: it has ${info.size_bytes} bytes and the most is ${max_bytes}`,
        );
      try {
        return await readContent(await this.#file(name, info.generation), info, this.#retries, signal);
      } catch (error) {
        if (!isNotFound(error)) throw this.#failure('read', name, error);
        if (round === READ_ROUNDS)
          throw new ServiceError(
            `Failed to read gs://${this.bucket}/${name}: its metadata was found and its content was not, ${round} times; stop other writers of this object, or try again later`,
            {cause: error},
          );
      }
      // The object was replaced or deleted after `head`.
      await sleep(waitAfter(round, this.#retries, Math.random()));
    }
  }

  /** A call whose answer was lost is repeated, so 'exists' may mean the object of this very call. */
  async create(name: string, bytes: Uint8Array, options: Written = {}): Promise<'created' | 'exists'> {
    try {
      return (await this.#save('create', name, '0', bytes, options)) ? 'created' : 'exists';
    } catch (error) {
      // An account without the right to delete may get 403 for an existing object instead of 412.
      const isDenied = isForbidden((error as Error).cause);
      if (isDenied && (await this.head(name).catch(() => undefined))) return 'exists';
      throw error;
    }
  }

  /** A call whose answer was lost is repeated, so 'changed' may mean the bytes of this very call. */
  async replace(
    name: string,
    generation: string,
    bytes: Uint8Array,
    options: Written = {},
  ): Promise<'replaced' | 'changed'> {
    return (await this.#save('replace', name, generation, bytes, options)) ? 'replaced' : 'changed';
  }

  /** False if the object has another generation. Generation 0 means that there is no object. */
  async #save(
    verb: string,
    name: string,
    generation: string,
    bytes: Uint8Array,
    {content_type, metadata}: Written,
  ): Promise<boolean> {
    const data = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    try {
      const file = await this.#file(name);
      const save = () =>
        file.save(data, {
          resumable: false,
          validation: 'crc32c',
          preconditionOpts: {ifGenerationMatch: generation},
          contentType: content_type ?? 'application/octet-stream',
          ...(metadata ? {metadata: {metadata}} : {}),
        });
      await this.#repeat(save, data.length / LEAST_BYTES_PER_MS);
      return true;
    } catch (error) {
      if (isPreconditionFailed(error)) return false;
      throw this.#failure(verb, name, error);
    }
  }

  /** Only one attempt, because a repeated delete could delete an object that was created after the first attempt. */
  async delete(name: string): Promise<void> {
    try {
      const file = await this.#file(name);
      await within(this.#retries.silence_ms, file.delete());
    } catch (error) {
      if (!isNotFound(error) || isBucketMissing(error)) throw this.#failure('delete', name, error);
    }
  }

  async readRange(
    name: string,
    generation: string,
    begin: number,
    end: number,
  ): Promise<Uint8Array | undefined> {
    const file = await this.#file(name, generation);
    const read = async () => {
      const bytes = Buffer.alloc(end - begin);
      let read_bytes = 0;
      const stop = new AbortController();
      for await (const {chunk, offset} of piecesFrom(file, begin, this.#retries, stop.signal)) {
        read_bytes += chunk.copy(bytes, Math.max(0, offset - begin), Math.max(0, begin - offset));
        if (read_bytes >= bytes.length) break;
      }
      if (read_bytes < bytes.length) throw new BrokenAnswer(`${read_bytes} of ${bytes.length} bytes arrived`);
      return bytes;
    };
    try {
      return end > begin ? await withRetries(this.#retries, read) : new Uint8Array();
    } catch (error) {
      if (isNotFound(error) && !isBucketMissing(error)) return undefined;
      throw this.#failure('read', name, error);
    }
  }

  /** A repeated copy finds its target, and a repeated delete finds no source: both have been done already. */
  async move(name: string, generation: string, to: string): Promise<void> {
    try {
      const source = await this.#file(name, generation);
      const target = await this.#file(to);
      await this.#repeat(() => source.copy(target, {preconditionOpts: {ifGenerationMatch: 0}})).catch(
        error => {
          if (!isPreconditionFailed(error)) throw error;
        },
      );
      await this.#repeat(() => source.delete());
    } catch (error) {
      if (!isNotFound(error) || isBucketMissing(error)) throw this.#failure('move', name, error);
    }
  }

  #repeat<T>(call: () => Promise<T>, more_ms = 0): Promise<T> {
    return withRetries(this.#retries, () => within(this.#retries.silence_ms + more_ms, call()));
  }

  async #file(name: string, generation?: string): Promise<File> {
    return (await this.#open()).file(name, generation === undefined ? {} : {generation});
  }

  #failure(verb: string, name: string, cause: unknown): Error {
    const reason = storageReason(cause, this.bucket);
    return new ServiceError(`Failed to ${verb} gs://${this.bucket}/${name}: ${reason}`, {cause});
  }
}

/**
 * Sends downloads over Node's own connections. After a broken download the client closes all connections of its shared agent, and every other
 * request of the process would end with ECONNRESET.
 */
export const apartFromOthers: Interceptor = {
  request: options => {
    const {qs} = options as {qs?: {alt?: string}};
    const download = {...options, forever: false};
    return (qs?.alt === 'media' ? download : options) as ReturnType<Interceptor['request']>;
  },
};

/** Adds the token, because the client sends no credentials to an endpoint other than Google's. */
function withToken(token: string): Interceptor {
  const headersOf = ({headers}: {headers?: object}) => ({...headers, authorization: `Bearer ${token}`});
  return {
    request: options => ({...options, headers: headersOf(options)}) as ReturnType<Interceptor['request']>,
  };
}

function infoOf(metadata: FileMetadata): ObjectInfo {
  if (typeof metadata?.name !== 'string' || Number.isNaN(Date.parse(String(metadata.timeCreated))))
    throw new Error(FOREIGN_ANSWER);
  return {
    name: metadata.name,
    generation: String(metadata.generation),
    size_bytes: Number(metadata.size),
    crc32c: String(metadata.crc32c),
    created_at: new Date(String(metadata.timeCreated)).toISOString(),
    metadata: Object.fromEntries(
      Object.entries(metadata.metadata ?? {}).map(([key, value]) => [key, String(value)]),
    ),
  };
}
