import {resolve} from 'node:path';
import {forEachConcurrently} from '../../shared/control-plane/concurrency.ts';
import type {ObjectInfo} from '../../shared/ports.ts';
import {type Cloud, withCloud} from '../cloud/cloud.ts';
import type {CloudOptions} from '../cloud/connect.ts';
import {CliError} from '../terminal/errors.ts';
import {bytesText, counted} from '../terminal/format.ts';
import {print, say} from '../terminal/output.ts';
import {listArtifacts} from '../views/attempt-files.ts';
import {epochOf, readJob} from '../views/jobs.ts';
import {downloadsOf} from './result.ts';

const AT_ONCE = 4;
const SAY_EVERY_MS = 2000;

type Options = CloudOptions & {attempt?: number};

/** Downloads the artifacts of an attempt into a folder, those of several hosts into a folder for each. Files that are there are kept, and a broken download goes on. */
export async function copy(id: string, folder: string, {attempt, ...options}: Options): Promise<void> {
  await withCloud(options, async cloud => {
    const epoch = attempt ?? epochOf(await readJob(cloud, id));
    const found = epoch > 0 ? await listArtifacts(cloud.objects, id, epoch) : [];
    if (found.length === 0) throw new CliError(await noArtifacts(cloud, id, epoch));
    const files = found.map(({info, name}) => ({info, path: pathIn(folder, name)}));
    const written = await download(cloud, files);
    const bytes = sizeOf(found.map(({info}) => info));
    const there = found.length > written ? `, ${counted(found.length - written, 'file')} were there` : '';
    const answer = {folder: resolve(folder), attempt: epoch, files: found.length, written, bytes};
    print<'jobs cp'>(options.json, answer, [
      `${counted(found.length, 'file')}, ${bytesText(bytes)} in ${folder}${there}`,
    ]);
  });
}

async function download(cloud: Cloud, files: {info: ObjectInfo; path: string}[]): Promise<number> {
  const downloads = downloadsOf(cloud);
  const total = bytesText(sizeOf(files.map(({info}) => info)));
  let [moved, written] = [0, 0];
  const timer = setInterval(() => say(`${bytesText(moved)} of ${total}`), SAY_EVERY_MS);
  try {
    await forEachConcurrently(
      files,
      async ({info, path}) => {
        const outcome = await downloads.write(info, path, bytes => {
          moved += bytes;
        });
        if (outcome === 'written') written++;
      },
      AT_ONCE,
    );
  } finally {
    clearInterval(timer);
  }
  return written;
}

function sizeOf(objects: readonly ObjectInfo[]): number {
  return objects.reduce((sum, {size_bytes}) => sum + size_bytes, 0);
}

async function noArtifacts(cloud: Cloud, id: string, epoch: number): Promise<string> {
  const {status} = await readJob(cloud, id);
  const what = epoch > 0 ? `attempt ${epoch} of job ${id}` : `job ${id}`;
  return `There are no artifacts of ${what}, which is ${status ?? 'pending'}: an attempt stores the files of $JOB_ARTIFACTS when it ends`;
}

/** Path of an artifact below the folder. A name in a bucket may be any text. */
function pathIn(folder: string, name: string): string {
  const parts = name.split('/');
  if (parts.some(part => part === '' || part === '.' || part === '..' || part.includes('\0')))
    throw new CliError(
      `Failed to download the artifact ${JSON.stringify(name)}: the name is no path below a folder; download it by \`gcloud storage cp\``,
    );
  return resolve(folder, ...parts);
}
