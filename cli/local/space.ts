/** Free space in the folder of a local cloud. */
import {existsSync, statfsSync} from 'node:fs';
import {dirname} from 'node:path';
import {CliError} from '../terminal/errors.ts';

/** Size of a worker's Python environment, which is a copy where the cache is on another disk. */
const START_MB = 700;
/** Minimum for the work of a running cloud. */
const MIN_MB = 16;
const INTERVAL_MS = 2000;

function freeMb(dir: string): number {
  const existing = existsSync(dir) ? dir : dirname(dir);
  if (existing !== dir) return freeMb(existing);
  const {bavail, bsize} = statfsSync(dir);
  return Math.floor((bavail * bsize) / 1e6);
}

export function requireSpace(dir: string): void {
  const free = freeMb(dir);
  if (free < START_MB)
    throw new CliError(
      `The folder ${dir} is full (${free} MB free, a worker needs ${START_MB}): free some space, or choose another with --dir`,
    );
}

/** Watches the free space of a folder until `end`. `full` rejects below the minimum. */
export function watchSpace(dir: string): {full: Promise<never>; end(): void} {
  let timer: NodeJS.Timeout | undefined;
  const full = new Promise<never>((_, reject) => {
    timer = setInterval(() => {
      const free = freeMb(dir);
      if (free < MIN_MB)
        reject(
          new CliError(
            `The folder ${dir} is full (${free} MB free): free some space and start again; stored objects are safe`,
          ),
        );
    }, INTERVAL_MS);
    timer.unref();
  });
  // Without this handler a rejection before the first `await` of `full` ends the process.
  full.catch(() => {});
  return {full, end: () => clearInterval(timer)};
}
