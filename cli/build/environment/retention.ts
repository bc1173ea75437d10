/** Bound of the cache of worker environments: each archive has some 400 MB. */
import {readdir, rm, stat, utimes} from 'node:fs/promises';
import {join} from 'node:path';

/** Environments that stay: those used last, such as that of a deployment, of a local cloud and of another branch. */
const MOST_KEPT = 3;

/** Marks an environment as used now. A folder of another user keeps its time. */
export async function markUsed(folder: string): Promise<void> {
  const now = new Date();
  await utimes(folder, now, now).catch(() => {});
}

/**
 * Removes all but the environments used last, and returns their number. An unfinished one has another name, and stays. What cannot be
 * removed, or is removed by another process, fails no build.
 */
export async function removeUnused(environments: string): Promise<number> {
  const names = await readdir(environments).catch(() => []);
  const found = await Promise.all(
    names
      .filter(name => /^[0-9a-f]{16}$/.test(name))
      .map(async name => ({name, stats: await stat(join(environments, name)).catch(() => undefined)})),
  );
  const used = found.flatMap(({name, stats}) => (stats ? {name, used_ms: stats.mtimeMs} : []));
  let removed = 0;
  for (const {name} of used.sort((a, b) => b.used_ms - a.used_ms).slice(MOST_KEPT))
    await rm(join(environments, name), {recursive: true}).then(
      () => removed++,
      () => {},
    );
  return removed;
}
