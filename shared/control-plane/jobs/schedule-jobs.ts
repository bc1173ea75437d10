/** New documents of jobs: a valid one waits for a worker, and any other one is failed with the reason. */
import {MAX_EPOCH} from '../../domain/bounds.ts';
import type {Job} from '../../domain/job/job.ts';
import {scheduleJob} from '../../domain/job/lifecycle.ts';
import {JOB, jobsFolder, jobWork, paths} from '../../domain/names.ts';
import type {Document, Objects, Transaction} from '../../ports.ts';
import {forEachConcurrently} from '../concurrency.ts';
import type {Deps} from '../deps.ts';
import {jobRecords} from '../documents/job-documents.ts';
import {check, storeInvalid} from './check-job.ts';
import {mendJob} from './mend-jobs.ts';

/** Jobs that one tick takes up. The next tick takes up the others. */
const MOST_AT_ONCE = 200;

/** Takes up every pending job: its event may be lost. */
export async function schedulePending(deps: Deps): Promise<void> {
  const pending = {where: [{field: 'status', op: '==', value: 'pending'}], limit: MOST_AT_ONCE} as const;
  const found = await deps.store.query(deps.config.jobs_collection, {...pending, where: [...pending.where]});
  await forEachConcurrently(found, async ({id}) => {
    try {
      await scheduleNewJob(deps, id);
    } catch (error) {
      deps.log('ERROR', `Failed to take up job ${id}: ${(error as Error).message}`, {job: id});
    }
  });
}

/** Takes up the document of a new job. Returns true if the job waits for a worker from now on. */
export async function scheduleNewJob(deps: Deps, id: string): Promise<boolean> {
  const path = paths.job(deps.config.jobs_collection, id);
  const known = await deps.store.get(path);
  if (!known) return false;
  if (!isNew(known)) {
    await mendJob(deps, id);
    return false;
  }
  const checked = await check(deps, id, known);
  const last_epoch = JOB.test(id) ? await lastEpochOf(deps, id) : 0;
  return deps.store.transaction(async tx => {
    const data = await tx.get(path);
    if (!data || !isNew(data)) return false;
    // The document changed between the two reads: the check of the newest one decides.
    const isSame = JSON.stringify(data) === JSON.stringify(known);
    const {job, why} = isSame ? checked : await check(deps, id, data);
    return storeSchedule(deps, tx, data, {...job, epoch: Math.max(job.epoch, last_epoch)}, why);
  });
}

/**
 * The epoch of the last known attempt. A job that was deleted and written again goes on above it, because output is never overwritten.
 * A worker may still run an attempt of the deleted job, and store its output later.
 */
async function lastEpochOf({objects, store}: Deps, id: string): Promise<number> {
  const holders = await store.query('workers', {where: [{field: 'work', op: '==', value: jobWork(id)}]});
  const held = holders.map(({data}) => (typeof data.epoch === 'number' ? data.epoch : 0));
  return Math.min(Math.max(0, await storedEpochOf(objects, id), ...held), MAX_EPOCH);
}

/** The epoch of the last attempt with output in the bucket. */
async function storedEpochOf(objects: Objects, id: string): Promise<number> {
  let last = 0;
  // `0` is the character after the slash behind the epoch.
  for (let start = ''; ; ) {
    const [next] = await objects.list(jobsFolder(id), {limit: 1, ...(start && {start})});
    const epoch = /\/epoch_([1-9]\d{0,6})\//.exec(next?.name ?? '')?.[1];
    if (epoch === undefined) return last;
    last = Math.max(last, Number(epoch));
    start = `${jobsFolder(id)}epoch_${epoch}0`;
  }
}

/** Stores a job of a message, which waits for a worker from now on. Returns why it is no valid job, and then stores nothing. */
export async function submitJob(
  deps: Deps,
  tx: Transaction,
  id: string,
  data: Document,
): Promise<string | undefined> {
  const {job, why} = await check(deps, id, data);
  const epoch = await lastEpochOf(deps, id);
  if (why === undefined) jobRecords.set(deps, tx, scheduleJob({...job, epoch}, deps.now()));
  return why;
}

/** True for a document that a person wrote, or returned to `pending`. */
function isNew({status}: Document): boolean {
  return status === 'pending' || (status ?? null) === null;
}

/** Stores the job, or why it is none. Fields of people stay as they are, unless the Store refuses them. */
function storeSchedule(
  deps: Deps,
  tx: Transaction,
  data: Document,
  job: Job,
  why: string | undefined,
): boolean {
  const now = deps.now();
  if (why === undefined) jobRecords.set(deps, tx, {...data, ...scheduleJob(job, now)});
  else storeInvalid(deps, tx, data, job, why, now);
  return why === undefined;
}
