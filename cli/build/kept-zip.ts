/** The zip of the functions that an earlier build left in `dist/`. A build takes it while each file that it was made from is the same. */
import {createHash} from 'node:crypto';
import {readFileSync, statSync} from 'node:fs';
import {rename, writeFile} from 'node:fs/promises';
import {join} from 'node:path';
import {z} from 'zod';
import {parseJson} from '../../shared/contracts/messages/schemas.ts';
import type {FunctionsZip} from './functions.ts';

/** File in `dist/` with the digest of the zip and of its sources. The digest of an absent source is null. */
const RECORD = 'functions.json';

const recordForm = z.strictObject({zip: z.string(), sources: z.record(z.string(), z.string().nullable())});

/** Times of files are a little behind the clock. */
const BEHIND_MS = 1000;

/** The zip of `dist/`, if a build of the sources would give the same bytes. `root`: folder of the sources. */
export function keptZip(dist: string, root: string): Uint8Array | undefined {
  const record = readRecord(join(dist, RECORD));
  if (!record) return undefined;
  for (const [source, digest] of Object.entries(record.sources))
    if (digestOf(join(root, source)) !== digest) return undefined;
  const zip = join(dist, `functions-${record.zip}.zip`);
  return digestOf(zip) === record.zip ? readFileSync(zip) : undefined;
}

/** Records the sources of the zip in `dist/`, unless one of them changed or went after the start of the build at `began_ms`. */
export async function recordZip(
  dist: string,
  root: string,
  {zip, modules, sources}: FunctionsZip,
  began_ms: number,
): Promise<void> {
  const digests = Object.fromEntries(sources.map(source => [source, digestOf(join(root, source))]));
  if (modules.some(module => digests[module] === null)) return;
  // The times come after the digests: a source that is saved between the two is no longer that of the zip.
  const times = sources.map(source => statSync(join(root, source), {throwIfNoEntry: false})?.ctimeMs ?? 0);
  if (Math.max(...times) >= began_ms - BEHIND_MS) return;
  const record: z.infer<typeof recordForm> = {
    zip: sha256Of(zip),
    sources: digests,
  };
  const unfinished = join(dist, `${RECORD}.${process.pid}`);
  await writeFile(unfinished, JSON.stringify(record));
  await rename(unfinished, join(dist, RECORD));
}

function readRecord(file: string): z.infer<typeof recordForm> | undefined {
  try {
    return parseJson(recordForm, readFileSync(file, 'utf8'), file);
  } catch {
    // Without a record, or with a damaged one, the zip is made again.
    return undefined;
  }
}

function digestOf(path: string): string | null {
  try {
    return sha256Of(readFileSync(path));
  } catch {
    return null;
  }
}

function sha256Of(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}
