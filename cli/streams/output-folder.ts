/** Folder of new streams. Files are written in a subfolder, and get their names when all of them are complete. */
import {existsSync} from 'node:fs';
import {link, mkdir, readdir, readFile, rename, rm, rmdir, writeFile} from 'node:fs/promises';
import {dirname, join, resolve} from 'node:path';
import {isDeepStrictEqual} from 'node:util';
import {crc32cOf} from '../../client/google/hash-file.ts';
import {CliError} from '../../client/text/errors.ts';
import {listText} from '../../client/text/format.ts';
import {parseDatasetObject} from '../../shared/domain/names.ts';
import {CHECKSUMS_FILE, type Checksums, readChecksums, WORK_FOLDER} from './checksums.ts';
import {isOfAnother} from './sessions.ts';

const OWNER_FILE = 'pid';

/** Sources and options: equal ones give equal streams. */
export type Wanted = Pick<Checksums, 'sources' | 'options'>;

export class OutputFolder {
  readonly folder: string;
  readonly work: string;
  /** The outermost folder that this process has made. */
  #made: string | undefined;

  constructor(folder: string) {
    this.folder = folder;
    this.work = join(folder, WORK_FOLDER);
  }

  /** Takes the folder for this process. Removes what an interrupted process left. Throws `CliError` where another process has it. */
  async take(): Promise<void> {
    try {
      while (!(await this.#lock())) await this.#unlockOfEnded();
    } catch (error) {
      throw error instanceof CliError ? error : notWritable(this.folder, error as NodeJS.ErrnoException);
    }
    const left = await readChecksums(this.work).catch(() => undefined);
    if (!left) await this.#empty();
  }

  /** True where this process has made the owner's file, which only one process can. */
  async #lock(): Promise<boolean> {
    const made = await mkdir(this.work, {recursive: true});
    if (made !== undefined) this.#made ??= resolve(made);
    // A link, because another process must never read the file before its content is there.
    const written = join(this.work, `${OWNER_FILE}.${process.pid}`);
    try {
      await writeFile(written, String(process.pid));
      await link(written, join(this.work, OWNER_FILE));
      await rm(written, {force: true});
      return true;
    } catch (error) {
      const {code} = error as NodeJS.ErrnoException;
      // ENOENT: the process that gave the folder back removed the subfolder at this moment.
      if (code === 'EEXIST' || (code === 'ENOENT' && existsSync(this.folder))) return false;
      throw error;
    }
  }

  /** Removes the owner's file of an ended process. Of several processes that try, the renaming succeeds for one. */
  async #unlockOfEnded(): Promise<void> {
    const file = join(this.work, OWNER_FILE);
    const owner = Number(await readFile(file, 'utf8').catch(() => ''));
    if (owner > 0 && isOfAnother(owner))
      throw new CliError(
        `process ${owner} is writing streams into ${this.folder}: wait for its end, or delete ${this.work} where that process is another program`,
      );
    const taken = `${file}.${process.pid}`;
    await rename(file, taken).then(
      () => rm(taken),
      () => {},
    );
  }

  /** Gives the folder back, without the incomplete files, and without folders that it has made and left empty. The owner's file goes last. */
  async leave(): Promise<void> {
    const owner = await readFile(join(this.work, OWNER_FILE), 'utf8').catch(() => '');
    if (owner !== String(process.pid)) return;
    await this.#empty();
    await rm(join(this.work, OWNER_FILE), {force: true});
    const isOwn = (folder: string) => this.#made !== undefined && `${folder}/`.startsWith(`${this.#made}/`);
    await rmdir(this.work).catch(() => {});
    for (let folder = resolve(this.folder); isOwn(folder); folder = dirname(folder))
      await rmdir(folder).catch(() => {});
  }

  async #empty(): Promise<void> {
    for (const name of await readdir(this.work))
      if (name !== OWNER_FILE) await rm(join(this.work, name), {recursive: true, force: true});
  }

  /** Checksums of the streams that the folder has, where they are the wanted ones. Finishes an interrupted renaming. */
  async complete(wanted: Wanted, force: boolean): Promise<Checksums | undefined> {
    const left = await readChecksums(this.work).catch(() => undefined);
    if (left && isWanted(left, wanted)) await this.#rename(left);
    // With `force` an unreadable file is replaced.
    const there = await readChecksums(this.folder).catch((error: Error) => {
      if (force) return undefined;
      throw error;
    });
    if (!there || !isWanted(there, wanted)) return undefined;
    for (const {file, crc32c} of there.streams)
      if ((await crc32cOf(join(this.folder, file)).catch(() => '')) !== crc32c) return undefined;
    return there;
  }

  /** Empties the folder of the incomplete files. Throws `CliError` where the folder has other streams, unless `force`. */
  async prepare(force: boolean): Promise<void> {
    const names = await this.#streamNames();
    if (names.length > 0 && !force)
      throw new CliError(
        `${this.folder} has other streams (${listText(names, 3)}): choose another --output-dir, or replace them with --force`,
      );
    await this.#empty();
  }

  /** Gives the complete files their names, in place of the earlier streams of the folder. */
  async publish(checksums: Checksums): Promise<void> {
    await writeFile(join(this.work, CHECKSUMS_FILE), `${JSON.stringify(checksums, null, 2)}\n`, {
      flush: true,
    });
    await this.#rename(checksums);
  }

  /** The checksums go first and come last: without them the folder is incomplete. */
  async #rename({streams}: Checksums): Promise<void> {
    await rm(join(this.folder, CHECKSUMS_FILE), {force: true});
    const files = streams.map(({file}) => file);
    for (const file of files)
      await rename(join(this.work, file), join(this.folder, file)).catch(error => {
        // An interrupted renaming has moved some files.
        if (error.code !== 'ENOENT') throw error;
      });
    for (const name of await this.#streamNames())
      if (!files.includes(name)) await rm(join(this.folder, name));
    await rename(join(this.work, CHECKSUMS_FILE), join(this.folder, CHECKSUMS_FILE));
  }

  async #streamNames(): Promise<string[]> {
    const names = await readdir(this.folder);
    return names.filter(name => parseDatasetObject(`datasets/${name}`).kind === 'stream').sort();
  }
}

function isWanted({sources, options}: Checksums, wanted: Wanted): boolean {
  return isDeepStrictEqual({sources, options}, wanted);
}

function notWritable(folder: string, error: NodeJS.ErrnoException): Error {
  if (error.code === 'ENOSPC') return error;
  return new CliError(`Failed to write into ${folder}: ${error.message}; choose another --output-dir`, {
    cause: error,
  });
}
