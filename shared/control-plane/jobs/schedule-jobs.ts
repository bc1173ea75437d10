/** Schedules new documents of jobs. A valid job waits for a worker. An invalid job fails with the reason. */
import {MAX_EPOCH} from '../../domain/bounds.ts';
import {isFinal, scheduleJob} from '../../domain/job/lifecycle.ts';
import {JOB, jobsFolder, jobWork, paths} from '../../domain/names.ts';
import type {Document, Filter, Objects, Transaction} from '../../ports/ports.ts';
import {forEachConcurrently} from '../calls/concurrency.ts';
import type {Deps} from '../deps.ts';
import {jobRecords} from '../documents/job-documents.ts';
import {check, storeInvalid} from './check-job.ts';

/** Jobs that one tick schedules; the next tick schedules the others. */
const MOST_AT_ONCE = 200;

/** Schedules every pending job, because its event may have been lost. */
export async function schedulePending(deps: Deps): Promise<void> {
  const where: Filter[] = [{field: 'status', op: '==', value: 'pending'}];
  const stored = await deps.store.query(deps.config.jobs_collection, {where, limit: MOST_AT_ONCE});
  await forEachConcurrently(stored, async ({id}) => {
    try {
      await scheduleNewJob(deps, id);
    } catch (error) {
      deps.log('ERROR', `Failed to schedule job ${id}: ${(error as Error).message}`, {job: id});
    }
  });
}

/** Schedules the document of a new job. Returns true if the job now waits for a worker. */
export async function scheduleNewJob(deps: Deps, id: string): Promise<boolean> {
  const path = paths.job(deps.config.jobs_collection, id);
  const first = await deps.store.get(path);
  if (!first || !isNew(first)) return false;
  const checked = await check(deps, id, first);
  const last_epoch = JOB.test(id) ? await lastEpochOf(deps, id) : 0;
  return deps.store.transaction(async tx => {
    const data = await tx.get(path);
    if (!data || !isNew(data)) return false;
    // The document changed between the two reads, so the newer version is checked.
    const isSame = JSON.stringify(data) === JSON.stringify(first);
    const {job, problem} = isSame ? checked : await check(deps, id, data);
    const next = {...job, epoch: Math.max(job.epoch, last_epoch)};
    const now = deps.now();
    // Fields that people wrote are not changed.
    if (problem === undefined) jobRecords.set(deps, tx, {...data, ...scheduleJob(next, now)});
    else storeInvalid({deps, tx, now}, data, next, problem);
    return problem === undefined;
  });
}

/**
 * The epoch of the last known attempt. A job that was deleted and written again continues above it, because output is never overwritten:
 * a worker may still run an attempt of the deleted job, and store its output later.
 */
async function lastEpochOf({objects, store}: Deps, id: string): Promise<number> {
  const holders = await store.query('workers', {where: [{field: 'work', op: '==', value: jobWork(id)}]});
  const held = holders.map(({data}) => (typeof data.epoch === 'number' ? data.epoch : 0));
  return Math.min(Math.max(0, await storedEpochOf(objects, id), ...held), MAX_EPOCH);
}

async function storedEpochOf(objects: Objects, id: string): Promise<number> {
  let last = 0;
  // `0` is the character after the slash that follows the epoch.
  for (let start = ''; ; ) {
    const [next] = await objects.list(jobsFolder(id), {limit: 1, ...(start && {start})});
    const epoch = /\/epoch_([1-9]\d{0,6})\//.exec(next?.name ?? '')?.[1];
    if (epoch === undefined) return last;
    last = Math.max(last, Number(epoch));
    start = `${jobsFolder(id)}epoch_${epoch}0`;
  }
}

/** Schedules the job of a message. A job with a problem is not stored. Returns the problem. */
export async function submitJob(
  deps: Deps,
  tx: Transaction,
  id: string,
  data: Document,
): Promise<string | undefined> {
  const {job, problem} = await check(deps, id, data);
  const epoch = await lastEpochOf(deps, id);
  if (problem === undefined) jobRecords.set(deps, tx, scheduleJob({...job, epoch}, deps.now()));
  return problem;
}

/** True for a document that a person wrote or returned to `pending`. People keep ended jobs of other programs in the collection. */
function isNew({status, epoch}: Document): boolean {
  if (status === 'pending' || (status ?? null) === null) return true;
  return epoch === undefined && !isFinal({status});
}
