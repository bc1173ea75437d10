/** Free space of the folder in which a local cloud keeps everything. */
import {existsSync, statfsSync} from 'node:fs';
import {dirname} from 'node:path';
import {CliError} from './errors.ts';

/** The Python environment of one worker, where it cannot be linked from the cache. */
const START_MB = 700;
/** Below this nothing of use fits any more. */
const LEAST_MB = 16;
const LOOK_MS = 2000;

export function freeMb(dir: string): number {
  const existing = existsSync(dir) ? dir : dirname(dir);
  if (existing !== dir) return freeMb(existing);
  const {bavail, bsize} = statfsSync(dir);
  return Math.floor((bavail * bsize) / 1e6);
}

export function requireSpace(dir: string): void {
  const free = freeMb(dir);
  if (free < START_MB)
    throw new CliError(
      `the folder ${dir} is full (${free} MB free, a worker needs ${START_MB}): free some space, or choose another with --dir`,
    );
}

/** Watches a folder until `end`: `full` rejects when nothing fits into it any more. */
export function watchSpace(dir: string): {full: Promise<never>; end(): void} {
  let timer: NodeJS.Timeout | undefined;
  const full = new Promise<never>((_, reject) => {
    timer = setInterval(() => {
      const free = freeMb(dir);
      if (free < LEAST_MB)
        reject(
          new CliError(
            `the folder ${dir} is full (${free} MB free): free some space and start again; nothing that is stored is lost`,
          ),
        );
    }, LOOK_MS);
    timer.unref();
  });
  // A rejection before the first `await` of it is no crash.
  full.catch(() => {});
  return {full, end: () => clearInterval(timer)};
}
