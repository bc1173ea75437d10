/** Sessions of unfinished uploads, in files beside the streams: an upload that was killed goes on where it was. */
import {lstat, mkdir, readFile, rename, rm, rmdir, writeFile} from 'node:fs/promises';
import {join} from 'node:path';
import {z} from 'zod';
import type {Content} from '../../client/google/resumable.ts';
import {CliError} from '../../client/text/errors.ts';
import {isRunning} from '../terminal/is-running.ts';

const FOLDER = '.upload';

const record = z.strictObject({
  bucket: z.string(),
  name: z.string(),
  size_bytes: z.number(),
  crc32c: z.string(),
  session: z.string(),
  /** Process that uploads. Another upload takes a session over after the end of its process. */
  pid: z.number().int().positive(),
});

export class Sessions {
  readonly #folder: string;
  readonly #bucket: string;

  constructor(folder: string, bucket: string) {
    this.#folder = join(folder, FOLDER);
    this.#bucket = bucket;
  }

  /** Session of an earlier upload of the same content to the same object. */
  async find(file: string, {name, size_bytes, crc32c}: Content): Promise<string | undefined> {
    await this.#refuseForeign();
    try {
      const found = record.parse(JSON.parse(await readFile(this.#fileOf(file), 'utf8')));
      const isSame =
        found.bucket === this.#bucket &&
        found.name === name &&
        found.size_bytes === size_bytes &&
        found.crc32c === crc32c;
      return isSame && !isOfAnother(found.pid) ? found.session : undefined;
    } catch {
      return undefined;
    }
  }

  /**
   * Writes a session. Only this user can read the file, because a session is a credential. In a read-only folder an interrupted upload
   * begins anew.
   */
  async keep(file: string, {name, size_bytes, crc32c}: Content, session: string): Promise<void> {
    const [path, pid] = [this.#fileOf(file), process.pid];
    const text = JSON.stringify({bucket: this.#bucket, name, size_bytes, crc32c, session, pid});
    try {
      await mkdir(this.#folder, {recursive: true, mode: 0o700});
      await writeFile(`${path}.${pid}`, text, {mode: 0o600});
      await rename(`${path}.${pid}`, path);
    } catch (error) {
      const {code} = error as NodeJS.ErrnoException;
      if (code !== 'EROFS' && code !== 'EACCES' && code !== 'EPERM') throw error;
    }
  }

  /** A folder of another user, or elsewhere, may name the sessions of others. */
  async #refuseForeign(): Promise<void> {
    const found = await lstat(this.#folder).catch(() => undefined);
    if (!found) return;
    const isOwn = found.isDirectory() && (process.getuid === undefined || found.uid === process.getuid());
    if (!isOwn)
      throw new CliError(
        `${this.#folder} is not a folder of this user: delete it, and run the command again`,
      );
  }

  async forget(file: string): Promise<void> {
    await rm(this.#fileOf(file), {force: true}).catch(() => {});
  }

  async end(): Promise<void> {
    await rmdir(this.#folder).catch(() => {});
  }

  #fileOf(file: string): string {
    return join(this.#folder, `${file}.json`);
  }
}

export function isOfAnother(pid: number): boolean {
  return pid !== process.pid && isRunning(pid);
}
