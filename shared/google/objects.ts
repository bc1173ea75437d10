import type {
  Bucket,
  File,
  FileMetadata,
  GetFilesOptions,
  GetFilesResponse,
  StorageOptions,
} from '@google-cloud/storage';
import {ObjectTooLarge} from '../contracts/errors.ts';
import type {ObjectInfo, Objects} from '../ports.ts';
import {isBucketMissing, isNotFound, isPreconditionFailed, reasonOf} from './errors.ts';
import {memoizeAsync} from './memoize-async.ts';

/** Opens a bucket of Cloud Storage. `endpoint` replaces Google's address, and `token` authorises calls to it. */
export function openObjects(options: {
  project: string;
  bucket: string;
  endpoint?: string | undefined;
  token?: string | undefined;
}): Objects {
  return new StorageObjects(options);
}

type Interceptor = NonNullable<StorageOptions['interceptors_']>[number];
type Written = {content_type?: string; metadata?: Record<string, string>};

class StorageObjects implements Objects {
  readonly bucket: string;
  readonly #open: () => Promise<Bucket>;

  constructor({project, bucket, endpoint, token}: Parameters<typeof openObjects>[0]) {
    this.bucket = bucket;
    this.#open = memoizeAsync(async () => {
      const {Storage} = await import('@google-cloud/storage');
      const storage = new Storage({
        projectId: project,
        ...(endpoint ? {apiEndpoint: endpoint} : {}),
        ...(token ? {interceptors_: [withToken(token)]} : {}),
        retryOptions: {maxRetries: 3, totalTimeout: 60},
      });
      return storage.bucket(bucket);
    });
  }

  async list(prefix: string, {start, limit}: {start?: string; limit?: number} = {}): Promise<ObjectInfo[]> {
    const from = start && start > prefix ? {startOffset: start} : {};
    const most = limit === undefined ? {} : {maxResults: limit};
    const found: ObjectInfo[] = [];
    try {
      const bucket = await this.#open();
      // A page has at most 1,000 names, and the client fetches no further page once it knows a limit.
      let page: GetFilesOptions | null = {prefix, ...from, ...most, autoPaginate: false};
      while (page && found.length < (limit ?? Number.POSITIVE_INFINITY)) {
        const [files, next]: GetFilesResponse = await bucket.getFiles(page);
        for (const {metadata} of files) found.push(infoOf(metadata));
        page = next && {...next, autoPaginate: false};
      }
      return found.slice(0, limit);
    } catch (error) {
      throw this.#failure('list', prefix, error);
    }
  }

  async head(name: string): Promise<ObjectInfo | undefined> {
    try {
      const [metadata] = await (await this.#file(name)).getMetadata();
      return infoOf(metadata);
    } catch (error) {
      if (isNotFound(error) && !isBucketMissing(error)) return undefined;
      throw this.#failure('read the metadata of', name, error);
    }
  }

  async read(name: string, {max_bytes}: {max_bytes: number}): Promise<Uint8Array | undefined> {
    for (;;) {
      const info = await this.head(name);
      if (!info) return undefined;
      if (info.size_bytes > max_bytes)
        throw new ObjectTooLarge(
          `Failed to read gs://${this.bucket}/${name}: it has ${info.size_bytes} bytes and the most is ${max_bytes}`,
        );
      try {
        // Reads the generation with the checked size, and the stored bytes without decompression.
        const file = await this.#file(name, info.generation);
        const [bytes] = await file.download({decompress: false, validation: 'crc32c'});
        return bytes;
      } catch (error) {
        // The object was replaced or deleted after `head`: try again.
        if (!isNotFound(error)) throw this.#failure('read', name, error);
      }
    }
  }

  /** After a lost answer the client repeats the call, so 'exists' may mean the object of this very call. */
  async create(name: string, bytes: Uint8Array, options: Written = {}): Promise<'created' | 'exists'> {
    return (await this.#save('create', name, '0', bytes, options)) ? 'created' : 'exists';
  }

  /** After a lost answer the client repeats the call, so 'changed' may mean the bytes of this very call. */
  async replace(
    name: string,
    generation: string,
    bytes: Uint8Array,
    options: Written = {},
  ): Promise<'replaced' | 'changed'> {
    return (await this.#save('replace', name, generation, bytes, options)) ? 'replaced' : 'changed';
  }

  /** False if the object has another generation. Generation 0 means no object. */
  async #save(
    verb: string,
    name: string,
    generation: string,
    bytes: Uint8Array,
    {content_type, metadata}: Written,
  ): Promise<boolean> {
    try {
      await (await this.#file(name)).save(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength), {
        resumable: false,
        validation: 'crc32c',
        preconditionOpts: {ifGenerationMatch: generation},
        contentType: content_type ?? 'application/octet-stream',
        ...(metadata ? {metadata: {metadata}} : {}),
      });
      return true;
    } catch (error) {
      if (isPreconditionFailed(error)) return false;
      throw this.#failure(verb, name, error);
    }
  }

  async delete(name: string): Promise<void> {
    try {
      await (await this.#file(name)).delete();
    } catch (error) {
      if (!isNotFound(error) || isBucketMissing(error)) throw this.#failure('delete', name, error);
    }
  }

  async #file(name: string, generation?: string): Promise<File> {
    return (await this.#open()).file(name, generation === undefined ? {} : {generation});
  }

  #failure(verb: string, name: string, cause: unknown): Error {
    return new Error(`Failed to ${verb} gs://${this.bucket}/${name}: ${reasonOf(cause)}`, {cause});
  }
}

/** Adds the token: the client sends no credentials to an endpoint other than Google's. */
function withToken(token: string): Interceptor {
  const headersOf = ({headers}: {headers?: object}) => ({...headers, authorization: `Bearer ${token}`});
  return {
    request: options => ({...options, headers: headersOf(options)}) as ReturnType<Interceptor['request']>,
  };
}

function infoOf(metadata: FileMetadata): ObjectInfo {
  return {
    name: String(metadata.name),
    generation: String(metadata.generation),
    size_bytes: Number(metadata.size),
    crc32c: String(metadata.crc32c),
    created_at: new Date(String(metadata.timeCreated)).toISOString(),
    metadata: Object.fromEntries(
      Object.entries(metadata.metadata ?? {}).map(([key, value]) => [key, String(value)]),
    ),
  };
}
