import {createHash} from 'node:crypto';
import type {Stats} from 'node:fs';
import {cp, mkdtemp, readdir, rm, writeFile} from 'node:fs/promises';
import {tmpdir} from 'node:os';
import {join, relative} from 'node:path';
import {create} from 'tar';
import {CliError} from '../terminal/errors.ts';
import {WORKER_FOLDER, type WorkerEnvironment} from './python.ts';

/** The modules of both packages, the lock files, and the script that makes the environment. */
const PACKED = /^(gleaner_worker|gleaner_reader)\/.*\.py$|\.lock$|^python-environment\.sh$/;

/** `KEY SHA256 SIZE` of the environment. */
const ENVIRONMENT_FILE = 'environment';

/** Packs the worker bundle for a TPU VM. Its file `environment` names the environment. The same inputs give the same bytes. */
export async function packWorker(environment?: WorkerEnvironment): Promise<{bytes: Buffer; sha256: string}> {
  const files = (await readdir(WORKER_FOLDER, {recursive: true, withFileTypes: true}))
    .filter(entry => entry.isFile())
    .map(entry => relative(WORKER_FOLDER, join(entry.parentPath, entry.name)))
    .filter(name => PACKED.test(name));
  if (!environment) return pack(WORKER_FOLDER, files.sort());
  const folder = await mkdtemp(join(tmpdir(), 'gleaner-bundle-'));
  try {
    for (const file of files) await cp(join(WORKER_FOLDER, file), join(folder, file));
    const {key, sha256, size_bytes} = environment;
    await writeFile(join(folder, ENVIRONMENT_FILE), `${key} ${sha256} ${size_bytes}\n`);
    return await pack(folder, [...files, ENVIRONMENT_FILE].sort());
  } finally {
    await rm(folder, {recursive: true});
  }
}

/** Histories, environments and caches: no part of the code in a folder. */
const UNPACKED = /(^|\/)(\.git|__pycache__|node_modules|\.venv|\.gleaner)(\/|$)/;

/** Packs a folder of code. The same files give the same bytes. */
export async function packFolder(folder: string): Promise<{bytes: Buffer; sha256: string; files: number}> {
  const files = (await readdir(folder, {recursive: true, withFileTypes: true}))
    .filter(entry => entry.isFile())
    .map(entry => relative(folder, join(entry.parentPath, entry.name)))
    .filter(name => !UNPACKED.test(name))
    .sort();
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

async function pack(cwd: string, files: string[]): Promise<{bytes: Buffer; sha256: string}> {
  const chunks: Buffer[] = [];
  for await (const chunk of packedFiles(cwd, files)) chunks.push(Buffer.from(chunk));
  const bytes = Buffer.concat(chunks);
  return {bytes, sha256: createHash('sha256').update(bytes).digest('hex')};
}

/** The bytes of a tar.gz with files of a folder. The same files give the same bytes. */
export function packedFiles(cwd: string, files: string[]): AsyncIterable<Buffer> {
  // The user of jobs reads the files, also of a clone that a strict umask made.
  const openMode = ({stat}: {stat?: Stats}) => {
    if (stat) stat.mode = stat.mode & 0o100 ? 0o755 : 0o644;
  };
  return create({cwd, gzip: true, portable: true, noMtime: true, onWriteEntry: openMode}, files);
}
