import {resolve} from 'node:path';
import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import {type FoundJob, findJob} from '../../client/cloud/find-job.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {CliError} from '../../client/text/errors.ts';
import {bytesText, counted} from '../../client/text/format.ts';
import {complain, print, say} from '../../client/text/output.ts';
import {listArtifacts} from '../../client/views/attempt-files.ts';
import {epochOf} from '../../client/views/jobs.ts';
import {forEachConcurrently} from '../../shared/control-plane/calls/concurrency.ts';
import type {ObjectInfo} from '../../shared/ports/ports.ts';
import {downloadsOf} from './result.ts';

const AT_ONCE = 4;
const SAY_EVERY_MS = 2000;

type CopyOptions = CloudOptions & {attempt?: number};

/**
 * Downloads the artifacts of an attempt into a folder, those of several hosts into a folder for each. Files that are there are kept, and a
 * broken download goes on. A file that this machine refuses is left out and named, with exit code 1.
 */
export async function copy(given: string, folder: string, {attempt, ...options}: CopyOptions): Promise<void> {
  await withCloud(options, async cloud => {
    const {id, job} = await findJob(cloud, given);
    const epoch = attempt ?? epochOf(job);
    const found = epoch > 0 ? await listArtifacts(cloud.objects, id, epoch) : [];
    if (found.length === 0) throw new CliError(noArtifacts({id, job}, epoch));
    const {written, left_out} = await download(cloud, found, folder);
    const out = new Set(left_out.map(({name}) => name));
    const files = found.length - out.size;
    const bytes = sizeOf(found.filter(({name}) => !out.has(name)).map(({info}) => info));
    const there = files > written ? `, ${counted(files - written, 'file')} were there` : '';
    const missing = out.size > 0 ? `; ${counted(out.size, 'file')} left out` : '';
    const answer = {folder: resolve(folder), attempt: epoch, files, written, bytes, left_out};
    print<'jobs cp'>(options.json, answer, [
      `${counted(files, 'file')}, ${bytesText(bytes)} in ${folder}${there}${missing}`,
    ]);
    for (const {reason} of left_out) complain(reason);
    if (out.size > 0) process.exitCode = 1;
  });
}

async function download(cloud: Cloud, files: {info: ObjectInfo; name: string}[], folder: string) {
  const downloads = downloadsOf(cloud);
  const total = bytesText(sizeOf(files.map(({info}) => info)));
  const left_out: {name: string; reason: string}[] = [];
  let [moved, written] = [0, 0];
  const timer = setInterval(() => say(`${bytesText(moved)} of ${total}`), SAY_EVERY_MS);
  try {
    await forEachConcurrently(
      files,
      async ({info, name}) => {
        try {
          const outcome = await downloads.write(info, pathIn(folder, name), bytes => {
            moved += bytes;
          });
          if (outcome === 'written') written++;
        } catch (error) {
          const {syscall, message} = error as NodeJS.ErrnoException;
          if (!(error instanceof CliError) && syscall === undefined) throw error;
          left_out.push({name, reason: `${JSON.stringify(name)} is left out: ${message}`});
        }
      },
      AT_ONCE,
    );
  } finally {
    clearInterval(timer);
  }
  return {written, left_out};
}

function sizeOf(objects: readonly ObjectInfo[]): number {
  return objects.reduce((sum, {size_bytes}) => sum + size_bytes, 0);
}

function noArtifacts({id, job: {status}}: FoundJob, epoch: number): string {
  const what = epoch > 0 ? `attempt ${epoch} of job ${id}` : `job ${id}`;
  return `There are no artifacts of ${what}, which is ${status ?? 'pending'}: an attempt stores the files of $JOB_ARTIFACTS once they have not changed for 30 s, and when it ends`;
}

/** Path of an artifact below the folder. A name in a bucket may be any text. */
function pathIn(folder: string, name: string): string {
  const parts = name.split('/');
  if (parts.some(part => part === '' || part === '.' || part === '..' || part.includes('\0')))
    throw new CliError('the name is not a path below a folder; download it by `gcloud storage cp`');
  return resolve(folder, ...parts);
}
