/**
 * Folders of the local clouds that this user created on this machine. Each has a random mark, which the user's state folder also stores under
 * the folder's path. So a folder that came from elsewhere, for example with a repository, cannot pass for one of them.
 */
import {createHash, randomBytes} from 'node:crypto';
import {existsSync, mkdirSync, readdirSync, realpathSync, rmSync, statSync} from 'node:fs';
import {homedir} from 'node:os';
import {join, resolve} from 'node:path';
import {readPrivate, writePrivate} from '../http/private-file.ts';
import type {CloudAddress} from './cloud-address.ts';

/** File in the folder of a running cloud. */
const ADDRESS_FILE = 'address.json';
const MARK_FILE = 'mark';

type Record = {dir: string; mark: string};

function recordsFolder(): string {
  const state = process.env.XDG_STATE_HOME || join(homedir(), '.local', 'state');
  return resolve(state, 'gleaner', 'local-clouds');
}

function recordFile(dir: string): string {
  return join(recordsFolder(), `${createHash('sha256').update(realpathSync(dir)).digest('hex')}.json`);
}

/** The object in a private file of this user; undefined without one. */
function readObject<T>(file: () => string): T | undefined {
  try {
    return JSON.parse(readPrivate(file()) ?? '');
  } catch {
    return undefined;
  }
}

/** Marks a folder as one of this user. */
export function markFolder(dir: string): void {
  const record: Record = {dir: realpathSync(dir), mark: randomBytes(32).toString('hex')};
  mkdirSync(recordsFolder(), {recursive: true, mode: 0o700});
  writePrivate(recordFile(dir), JSON.stringify(record));
  writePrivate(join(dir, MARK_FILE), record.mark);
}

export function isOwnFolder(dir: string): boolean {
  const record = readObject<Record>(() => recordFile(dir));
  return record !== undefined && record.mark === readPrivate(join(dir, MARK_FILE));
}

/** Why a cloud of this user must not use a folder, and what to do; undefined for a folder of this user, or an empty one. */
export function notOwn(dir: string, adopt: boolean): string | undefined {
  const {uid, mode} = statSync(dir);
  if (uid !== process.getuid?.()) return 'it belongs to another user; choose another folder with --dir';
  // A person may put secrets into the folder of a cloud before its first start.
  const isEmpty = readdirSync(dir).every(name => name === 'secrets');
  if (!(isEmpty || adopt || isOwnFolder(dir)))
    return `no local cloud of yours wrote the files there on this machine, and a local cloud would run programs from them; move or delete the folder, or choose another with --dir. If you trust the files, such as those of a folder that you moved, take them over with \`gleaner local up --adopt --dir ${dir}\``;
  if ((mode & 0o077) !== 0) return `other users may enter it; run \`chmod 700 ${dir}\``;
  return undefined;
}

export function writeAddress(address: CloudAddress): void {
  writePrivate(join(address.dir, ADDRESS_FILE), JSON.stringify(address));
}

export function forgetAddress(dir: string): void {
  rmSync(join(dir, ADDRESS_FILE), {force: true});
}

/** Address of the cloud that runs in a folder of this user, or that ran there until it was killed. */
export function addressIn(dir: string): CloudAddress | undefined {
  return isOwnFolder(dir) ? readObject(() => join(dir, ADDRESS_FILE)) : undefined;
}

/** Addresses that the folders of this user have. */
export function ownAddresses(): CloudAddress[] {
  return ownFolders().flatMap(dir => addressIn(dir) ?? []);
}

/** Folders of the local clouds of this user that still exist. */
export function ownFolders(): string[] {
  let names: string[];
  try {
    names = readdirSync(recordsFolder());
  } catch {
    return [];
  }
  return names.flatMap(name => {
    const record = readObject<Record>(() => join(recordsFolder(), name));
    return record && existsSync(record.dir) && isOwnFolder(record.dir) ? record.dir : [];
  });
}
