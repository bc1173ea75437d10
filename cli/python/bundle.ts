import {createHash} from 'node:crypto';
import type {Stats} from 'node:fs';
import {readdir} from 'node:fs/promises';
import {join, relative} from 'node:path';
import {Header, Pack, ReadEntry} from 'tar';
import {LOCK, lockKey, WORKER_FOLDER} from '../../client/python/python.ts';
import {CliError} from '../../client/text/errors.ts';

/** The modules and tables of both packages, and the lock files. */
const PACKED = /^(gleaner_worker|gleaner_reader)\/.*\.(py|jsonl?)$|\.lock$/;

/** Archive of the Python environment that a boot fetches, and the key that names its folder on the host. */
type EnvironmentArchive = {key: string; sha256: string; size_bytes: number};

/** Packs the worker bundle for a TPU VM. The same files give the same bytes. VMs of a local cloud share an environment without an archive. */
export async function packWorker(archive?: EnvironmentArchive): Promise<{bytes: Buffer; sha256: string}> {
  const files = (await filesIn(WORKER_FOLDER)).filter(name => PACKED.test(name));
  const {key, sha256, size_bytes} = archive ?? {key: await lockKey(LOCK), sha256: '-', size_bytes: 0};
  return pack(WORKER_FOLDER, files, {environment: `${key} ${sha256} ${size_bytes}\n`});
}

/** Histories, environments and caches: no part of the code in a folder. */
const UNPACKED = /(^|\/)(\.git|__pycache__|node_modules|\.venv|\.gleaner)(\/|$)/;

/** Packs a folder of code. The same files give the same bytes. */
export async function packFolder(folder: string): Promise<{bytes: Buffer; sha256: string; files: number}> {
  const files = (await filesIn(folder)).filter(name => !UNPACKED.test(name));
  if (files.length === 0) throw new CliError(`there is no file in ${folder}: name a folder with code`);
  // A leading @ would name an archive to copy.
  return {
    ...(await pack(
      folder,
      files.map(name => `./${name}`),
    )),
    files: files.length,
  };
}

async function pack(
  cwd: string,
  files: string[],
  more: Record<string, string> = {},
): Promise<{bytes: Buffer; sha256: string}> {
  const chunks: Buffer[] = [];
  for await (const chunk of packedFiles(cwd, files, more)) chunks.push(Buffer.from(chunk));
  const bytes = Buffer.concat(chunks);
  return {bytes, sha256: createHash('sha256').update(bytes).digest('hex')};
}

/** The bytes of a tar.gz with files of a folder, and `more` files by their content. The same files give the same bytes. */
export function packedFiles(
  cwd: string,
  files: string[],
  more: Record<string, string> = {},
): AsyncIterable<Buffer> {
  // The user of jobs reads the files, also of a clone that a strict umask made.
  const openMode = ({stat}: {stat?: Stats}) => {
    if (stat) stat.mode = stat.mode & 0o100 ? 0o755 : 0o644;
  };
  const stream = new Pack({cwd, gzip: true, portable: true, noMtime: true, onWriteEntry: openMode});
  for (const file of files) stream.add(file);
  for (const [path, text] of Object.entries(more)) stream.add(entryOf(path, text));
  stream.end();
  return stream;
}

function entryOf(path: string, text: string): ReadEntry {
  const content = Buffer.from(text);
  const header = new Header({path, mode: 0o644, size: content.length, type: 'File'});
  header.encode();
  const entry = new ReadEntry(header);
  entry.end(content);
  return entry;
}

/** All files below a folder, sorted, each relative to the folder. */
export async function filesIn(folder: string): Promise<string[]> {
  const entries = await readdir(folder, {recursive: true, withFileTypes: true});
  return entries
    .filter(entry => entry.isFile())
    .map(entry => relative(folder, join(entry.parentPath, entry.name)))
    .sort();
}
