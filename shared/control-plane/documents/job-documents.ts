/** Reads and writes of the documents of jobs. The deployment chooses their collection. */
import type {NotUnderstood} from '../../contracts/errors.ts';
import {isFinal} from '../../domain/job/lifecycle.ts';
import {parseJobWork, paths} from '../../domain/names.ts';
import {type Job, jobDocument} from '../../domain/records/job.ts';
import type {Worker} from '../../domain/records/worker.ts';
import {isHeldBy} from '../../domain/stream/lease.ts';
import type {Store, Stored, Transaction} from '../../ports/ports.ts';
import type {Services} from '../calls/services.ts';
import {recordsOf} from './document-kind.ts';
import {skipIfInvalid, workerRecords} from './documents.ts';
import {recordEvent} from './event-log.ts';

const jobs = recordsOf(jobDocument);

export const jobRecords = {
  /** The id of the document is the id of the job, because a person may copy a document with all its fields. */
  get: async ({config}: Services, from: Store | Transaction, id: string): Promise<Job | undefined> => {
    const job = await jobs.get(from, paths.job(config.jobs_collection, id));
    return job && {...job, job: id};
  },
  parseAll: (stored: Stored[], onOther: (error: NotUnderstood, id: string) => void): Job[] =>
    jobs.parseAll(
      stored.map(each => ({...each, data: {...each.data, job: each.id}})),
      onOther,
    ),
  set: ({config}: Services, tx: Transaction, job: Job): void =>
    jobs.set(tx, paths.job(config.jobs_collection, job.job), job),
};

export function deleteJob({config}: Services, tx: Transaction, id: string): void {
  tx.delete(paths.job(config.jobs_collection, id));
}

/** Reads the job that the worker holds; undefined if the job's document does not agree. */
export async function jobOf(deps: Services, tx: Transaction, worker: Worker): Promise<Job | undefined> {
  const id = parseJobWork(worker.work);
  const job = id && (await skipIfInvalid(deps.log, () => jobRecords.get(deps, tx, id)));
  return job && isHeldBy(job, worker) ? job : undefined;
}

export async function membersOf(
  {log}: Services,
  tx: Transaction,
  job: Job,
  but: string | undefined,
): Promise<Worker[]> {
  const names = (job.lease?.members ?? []).map(({worker}) => worker).filter(name => name !== but);
  const read = await Promise.all(names.map(name => workerRecords.read(log, tx, name)));
  return read.flatMap(worker => (isHeldBy(job, worker) ? worker : []));
}

/** Stores a job whose attempt has ended. A failed job is recorded as an event and a signal. */
export function storeEnded(deps: Services, tx: Transaction, before: Job, job: Job, now: number): void {
  jobRecords.set(deps, tx, job);
  const last = job.attempts.at(-1);
  const who = before.lease ? `${before.lease.worker}: ` : '';
  // A job that runs again keeps the error of its last failure, which may be that of an earlier attempt.
  const why = isFinal(job) ? (job.error ?? last?.error) : (last?.error ?? last?.cause);
  const text = `Job ${job.job} is ${job.status}${why ? `, because ${who}${why}` : ''}`;
  const about = before.lease ? {worker: before.lease.worker, epoch: before.lease.epoch} : {};
  recordEvent(tx, {kind: 'job', job: job.job, ...about, text}, now);
  if (job.status === 'failed')
    deps.log('WARNING', text, {job: job.job, cause: job.cause, signal: 'job-failed'});
}
