/** Bound of the cache of worker environments: each archive has some 400 MB. */
import {readdir, rm, stat, utimes} from 'node:fs/promises';
import {join} from 'node:path';

/** Environments that stay: those used last, such as that of a deployment, of a local cloud and of another branch. */
const MOST_KEPT = 3;

/** Marks an environment as used now. */
export async function markUsed(folder: string): Promise<void> {
  const now = new Date();
  await utimes(folder, now, now);
}

/** Removes all but the environments used last, and returns their number. An unfinished one has another name, and stays. */
export async function removeUnused(environments: string): Promise<number> {
  const names = (await readdir(environments)).filter(name => /^[0-9a-f]{16}$/.test(name));
  const used = await Promise.all(
    names.map(async name => ({name, used_ms: (await stat(join(environments, name))).mtimeMs})),
  );
  const unused = used.sort((a, b) => b.used_ms - a.used_ms).slice(MOST_KEPT);
  for (const {name} of unused) await rm(join(environments, name), {recursive: true, force: true});
  return unused.length;
}
