/** Downloads from Cloud Storage into files. Another process can continue a download by its part file. */
import {hash} from 'node:crypto';
import {constants} from 'node:fs';
import {type FileHandle, mkdir, open, rename, rm, stat} from 'node:fs/promises';
import {basename, dirname, join} from 'node:path';
import type {Bucket} from '@google-cloud/storage';
import {ServiceError} from '../../shared/contracts/errors.ts';
import {storageReason} from '../../shared/google/errors.ts';
import {apartFromOthers, openBucket, type StorageBucketOptions} from '../../shared/google/objects.ts';
import {piecesFrom} from '../../shared/google/read-content.ts';
import {BrokenAnswer, type RetryPolicy, STORAGE_RETRIES, withRetries} from '../../shared/google/retry.ts';
import type {ObjectInfo} from '../../shared/ports/ports.ts';
import {CliError} from '../text/errors.ts';
import {crc32cOf} from './hash-file.ts';

/** Downloads of one bucket. */
export class Downloads {
  readonly #bucket: string;
  readonly #open: () => Promise<Bucket>;
  readonly #retries: RetryPolicy;

  constructor(options: StorageBucketOptions) {
    this.#bucket = options.bucket;
    this.#retries = options.retries ?? STORAGE_RETRIES;
    this.#open = openBucket(options, [apartFromOthers]);
  }

  /**
   * Writes the object to a new file, and makes the folders above it. `exists`: the file is there with the same bytes. Throws for another
   * file. `moved`: called with the bytes that are in the file.
   */
  async write(
    info: ObjectInfo,
    path: string,
    moved: (bytes: number) => void = () => {},
    stop: AbortSignal = new AbortController().signal,
  ): Promise<'written' | 'exists'> {
    const what = `Failed to download gs://${this.#bucket}/${info.name}`;
    await mkdir(dirname(path), {recursive: true});
    const there = await stat(path).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
    });
    if (there) {
      if (!there.isFile() || there.size !== info.size_bytes || (await crc32cOf(path)) !== info.crc32c)
        throw new CliError(`${what}: ${path} is something else; move it away, or name another folder`);
      moved(info.size_bytes);
      return 'exists';
    }
    const part = partOf(path, info.generation);
    const file = await open(part, constants.O_WRONLY | constants.O_CREAT);
    try {
      await this.#receive(info, part, file, moved, stop);
    } catch (cause) {
      if (stop.aborted) throw cause;
      throw new ServiceError(`${what}: ${storageReason(cause, this.#bucket)}`, {cause});
    } finally {
      await file.close();
    }
    await rename(part, path).catch(async error => {
      await rm(part, {force: true});
      throw error;
    });
    return 'written';
  }

  /** Continues after the bytes that the part file has. */
  async #receive(
    {name, generation, size_bytes, crc32c}: ObjectInfo,
    part: string,
    file: FileHandle,
    moved: (bytes: number) => void,
    stop: AbortSignal,
  ): Promise<void> {
    const object = (await this.#open()).file(name, {generation});
    let stored = (await file.stat()).size;
    moved(Math.min(stored, size_bytes));
    const attempt = async () => {
      if (stored < size_bytes)
        for await (const {chunk, offset} of piecesFrom(object, stored, this.#retries, stop)) {
          await writeAt(file, chunk, offset);
          moved(chunk.length);
          stored = offset + chunk.length;
        }
      if (stored < size_bytes) throw new BrokenAnswer(`${stored} of its ${size_bytes} bytes came`);
      if (stored === size_bytes && (await crc32cOf(part)) === crc32c) return;
      await file.truncate(0);
      stored = 0;
      throw new BrokenAnswer('its bytes differ from its checksum');
    };
    await withRetries(this.#retries, attempt, () => stored);
  }
}

/** Beside the file, with a name that is short, however long that of the file is. */
export function partOf(path: string, generation: string): string {
  return join(dirname(path), `.${hash('sha256', `${basename(path)} ${generation}`).slice(0, 32)}.part`);
}

async function writeAt(file: FileHandle, chunk: Buffer, offset: number): Promise<void> {
  for (let done = 0; done < chunk.length; )
    done += (await file.write(chunk, done, chunk.length - done, offset + done)).bytesWritten;
}
