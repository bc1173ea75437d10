import {createHash} from 'node:crypto';
import {readdir} from 'node:fs/promises';
import {join, relative} from 'node:path';
import {create} from 'tar';
import {WORKER_FOLDER} from './python.ts';

/** The modules of both packages, the lock files, and the script that makes the environment. */
const PACKED = /^(gleaner_worker|gleaner_reader)\/.*\.py$|\.lock$|^python-environment\.sh$/;

/** Packs the worker bundle for a TPU VM. The same files give the same bytes. */
export async function packWorker(): Promise<{bytes: Buffer; sha256: string}> {
  const files = (await readdir(WORKER_FOLDER, {recursive: true, withFileTypes: true}))
    .filter(entry => entry.isFile())
    .map(entry => relative(WORKER_FOLDER, join(entry.parentPath, entry.name)))
    .filter(name => PACKED.test(name))
    .sort();
  const stream = create({cwd: WORKER_FOLDER, gzip: true, portable: true, noMtime: true}, files);
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(Buffer.from(chunk));
  const bytes = Buffer.concat(chunks);
  return {bytes, sha256: createHash('sha256').update(bytes).digest('hex')};
}
