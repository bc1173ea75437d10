/** Mends documents of jobs that people have edited. An invalid job fails. Queue place, lease and due time follow from the status. */
import {Rejected} from '../../contracts/errors.ts';
import {endWithoutHolder, withFittingFields} from '../../domain/job/edits.ts';
import type {Job} from '../../domain/job/job.ts';
import {endAttempt, isFinal} from '../../domain/job/lifecycle.ts';
import {parseJobWork, paths} from '../../domain/names.ts';
import type {Worker} from '../../domain/worker/worker.ts';
import type {Document, Filter, Transaction} from '../../ports.ts';
import {forEachConcurrently} from '../concurrency.ts';
import type {Deps} from '../deps.ts';
import {setInvalid} from '../documents/document-kind.ts';
import {jobRecords, storeEnded, workerOf} from '../documents/job-documents.ts';
import {pagesOf} from '../documents/pages.ts';
import {withValidNames} from '../documents/storable-job.ts';
import {asJob, storeInvalid} from './check-job.ts';

const RUNNING: Filter = {field: 'status', op: '==', value: 'running'};

/** Mends each document. A document that cannot be mended stops no other, and no request of a worker. */
export async function mendJobs(deps: Deps, ids: readonly string[]): Promise<void> {
  await forEachConcurrently(ids, async id => {
    try {
      await mendJob(deps, id);
    } catch (error) {
      deps.log('ERROR', `Failed to mend job ${id}: ${(error as Error).message}`, {job: id});
    }
  });
}

/** Mends a document that is not new. A running job without its worker waits again. */
export async function mendJob(deps: Deps, id: string): Promise<void> {
  const path = paths.job(deps.config.jobs_collection, id);
  await deps.store.transaction(async tx => {
    const data = await tx.get(path);
    if (!data) return;
    let job: Job;
    try {
      job = jobRecords.parse(path, id, data);
    } catch (error) {
      if (!(error instanceof Rejected)) throw error;
      return mendInvalid(deps, tx, {path, id, data}, error.message);
    }
    if (job.status !== 'running' || (await workerOf(deps, tx, job))) return storeFitting(deps, tx, job);
    const now = deps.now();
    storeEnded(deps, tx, job, endAttempt(job, endWithoutHolder(job), null, now), now);
  });
}

/** Stores the queue place, the lease and the due time that follow from the status of the job. */
export function storeFitting(deps: Deps, tx: Transaction, job: Job): void {
  const fitting = withFittingFields(job);
  if (fitting !== job) jobRecords.set(deps, tx, fitting);
}

/** Fails the document, unless it has ended: people keep jobs of other programs in the collection. */
function mendInvalid(
  deps: Deps,
  tx: Transaction,
  {path, id, data}: {path: string; id: string; data: Document},
  reason: string,
): void {
  const {status, queue, due_at, epoch} = data;
  if (isFinal({status: status as Job['status']})) {
    const isWaiting = (queue ?? null) !== null || (due_at ?? null) !== null;
    if (isWaiting) setInvalid(tx, path, {...withValidNames(data), queue: null, due_at: null});
    return;
  }
  const why =
    epoch === undefined
      ? `status: ${JSON.stringify(status)} is no status of a new job: leave it out, or write "pending"`
      : reason;
  storeInvalid(deps, tx, data, asJob(deps, id, data), why, deps.now());
}

/** Mends running jobs that no worker holds. Edits, and lost documents of workers, leave such jobs. */
export async function mendOrphans(deps: Deps, workers: readonly Worker[]): Promise<void> {
  const {config, store} = deps;
  const held = new Set(workers.flatMap(({work}) => parseJobWork(work) ?? []));
  if ((await store.count(config.jobs_collection, [RUNNING])) <= held.size) return;
  for await (const page of pagesOf(store, config.jobs_collection, {where: [RUNNING]}, 50)) {
    const orphans = page.filter(({id}) => !held.has(id));
    await mendJobs(
      deps,
      orphans.map(({id}) => id),
    );
  }
}
