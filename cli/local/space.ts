/** Free space in the folder of a local cloud, and the files that it may open at once. */
import {existsSync, globSync, rmSync, statfsSync} from 'node:fs';
import {dirname, join} from 'node:path';
import {CliError} from '../../client/text/errors.ts';
import {lockFolder} from '../../emulator/state/database.ts';

/** Size of a worker's Python environment, which is a copy where the cache is on another disk. */
const START_MB = 700;
/** Minimum for the work of a running cloud. */
const MIN_MB = 16;
const INTERVAL_MS = 2000;
/** A cloud with two workers has up to 120 open. Below that, it stores no object and boots no VM. */
const MIN_OPEN_FILES = 256;

function freeMb(dir: string): number {
  const existing = existsSync(dir) ? dir : dirname(dir);
  if (existing !== dir) return freeMb(existing);
  const {bavail, bsize} = statfsSync(dir);
  return Math.floor((bavail * bsize) / 1e6);
}

/** Refuses a full folder, after removing what the attempts of jobs have left there. Fails where a local cloud runs in the folder. */
export function requireSpace(dir: string, adopt = false): void {
  removeAttempts(dir, adopt);
  const free = freeMb(dir);
  if (free < START_MB)
    throw new CliError(
      `The folder ${dir} is full (${free} MB free, a worker needs ${START_MB}): free some space, or choose another with --dir`,
    );
}

/**
 * Empties the folders of attempts and commands below the disks of the VMs. No cloud runs, so all of them are dead. The folder of an
 * attempt itself stays: it tells the agent that its host restarted in the middle.
 */
function removeAttempts(dir: string, adopt: boolean): void {
  if (!existsSync(join(dir, 'vms'))) return;
  const lock = lockFolder(dir, adopt);
  try {
    for (const path of globSync('vms/*/jobs/{*-e+([0-9]),tmp-*,exec-*}/{*,.*}', {cwd: dir}))
      rmSync(join(dir, path), {recursive: true, force: true});
  } finally {
    lock.release();
  }
}

/** Fails where a limit of this process (`ulimit -n`) is too low for a cloud. Node has raised the soft limit to the hard one. */
export function requireOpenFiles(): void {
  const {userLimits} = process.report.getReport() as {userLimits?: {open_files: {soft: number | string}}};
  const soft = userLimits?.open_files.soft;
  if (typeof soft === 'number' && soft < MIN_OPEN_FILES)
    throw new CliError(
      `This shell lets a process open ${soft} files, and a local cloud needs ${MIN_OPEN_FILES}: raise the limit with \`ulimit -n\`, or start in another shell`,
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
