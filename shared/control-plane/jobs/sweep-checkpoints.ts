/** Deletes the objects of checkpoints that no attempt restores: those of older versions, and those of jobs without a document. */
import {z} from 'zod';
import {manifestObject, stateOf} from '../../domain/job/checkpoint.ts';
import {checkpointsFolder, paths} from '../../domain/names.ts';
import type {CheckpointVersion} from '../../domain/records/checkpoint.ts';
import type {Job} from '../../domain/records/job.ts';
import {forEachConcurrently} from '../calls/concurrency.ts';
import type {Deps} from '../deps.ts';
import {jobRecords} from '../documents/job-documents.ts';

const FOLDER = 'checkpoints/';
const PAGE = 1000;
const MAX_MANIFEST_BYTES = 64 * 1024 * 1024;
/** Ids of jobs that one step of the daily task looks at. */
const IDS = 100;

const manifest = z.object({
  files: z.record(z.string(), z.object({pieces: z.array(z.object({object: z.string()}))})),
});

/**
 * Deletes what neither kept version names, in versions older than the newest kept one of their host. Versions after it are on their way, and
 * name no other objects than these and the kept ones.
 */
export async function sweepCheckpoint(deps: Deps, id: string): Promise<void> {
  const job = await jobRecords.get(deps, deps.store, id);
  const {complete, previous} = job ? stateOf(job) : {complete: null, previous: null};
  if (!job || !complete) return;
  const kept = new Set<string>();
  for (const version of [complete, previous])
    for (const name of version ? await objectsOf(deps, id, version) : []) kept.add(name);
  for await (const page of pagesOf(deps, checkpointsFolder(id))) {
    const old = page.filter(name => !kept.has(name) && isOld(name, job, complete));
    await forEachConcurrently(old, name => deps.checkpoints.delete(name));
  }
}

/** Names of all objects that a version needs. A version that cannot be read makes the sweep fail, and deletes nothing. */
async function objectsOf(
  {checkpoints}: Deps,
  id: string,
  {epoch, parts}: CheckpointVersion,
): Promise<string[]> {
  const all = await Promise.all(
    Object.entries(parts).map(async ([index, {version}]) => {
      const name = manifestObject(id, epoch, index, version);
      const bytes = await checkpoints.read(name, {max_bytes: MAX_MANIFEST_BYTES});
      if (!bytes) throw new Error(`Failed to sweep the checkpoint of job ${id}: ${name} is missing`);
      const {files} = manifest.parse(JSON.parse(new TextDecoder().decode(bytes)));
      return [name, ...Object.values(files).flatMap(({pieces}) => pieces.map(({object}) => object))];
    }),
  );
  return all.flat();
}

/** `own/` belongs to the program. In the epoch of the newest version, later versions may still count. */
function isOld(name: string, {job}: Job, complete: CheckpointVersion): boolean {
  const [, epoch, process = '', version] =
    /^epoch_(\d+)\/host_(\d+)\/(\d+)\//.exec(name.slice(checkpointsFolder(job).length)) ?? [];
  if (epoch === undefined || Number(epoch) > complete.epoch) return false;
  return Number(epoch) < complete.epoch || Number(version) < (complete.parts[process]?.version ?? 0);
}

async function* pagesOf({checkpoints}: Deps, prefix: string): AsyncGenerator<string[]> {
  for (let start = ''; ; ) {
    const page = await checkpoints.list(prefix, {limit: PAGE, ...(start && {start})});
    yield page.map(({name}) => name);
    const last = page.at(-1);
    if (page.length < PAGE || !last) return;
    start = `${last.name}\0`;
  }
}

/** Deletes the folders of jobs after `after` whose documents are gone. Returns where the next step begins; undefined at the end. */
export async function expireCheckpoints(deps: Deps, after: string): Promise<string | undefined> {
  let start = after === '' ? FOLDER : after;
  for (let count = 0; count < IDS; count++) {
    const [next] = await deps.checkpoints.list(FOLDER, {start, limit: 1});
    const id = next?.name.split('/')[1];
    if (id === undefined) return undefined;
    if (!(await deps.store.get(paths.job(deps.config.jobs_collection, id))))
      for await (const page of pagesOf(deps, checkpointsFolder(id)))
        await forEachConcurrently(page, name => deps.checkpoints.delete(name));
    // `0` is the character after the slash.
    start = `${FOLDER}${id}0`;
  }
  return start;
}
