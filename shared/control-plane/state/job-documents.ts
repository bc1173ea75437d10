/** Reads and writes of the documents of jobs. The deployment chooses their collection. */
import {z} from 'zod';
import {environment, ran, source} from '../../contracts/job-schemas.ts';
import {MAX_LEASE_EPOCH, MAX_ORDINAL} from '../../domain/bounds.ts';
import type {Environment} from '../../domain/fleet/source.ts';
import {CAUSES, type Job} from '../../domain/job/job.ts';
import {isJobOf} from '../../domain/job/lifecycle.ts';
import {jobWork, parseJobWork, paths} from '../../domain/names.ts';
import type {Worker} from '../../domain/worker/worker.ts';
import type {Store, Transaction} from '../../ports.ts';
import type {Deps} from './deps.ts';
import {kind} from './document-kind.ts';
import {skipIfInvalid, workerRecords} from './documents.ts';
import {recordEvent} from './event-log.ts';

const count = z.number().int().min(0);
const instant = z.iso.datetime();
const text = z.string();
const amount = z.number().nullable();
const epoch = count.max(MAX_LEASE_EPOCH);
const incarnation = count.max(MAX_ORDINAL);
const cause = z.enum(CAUSES).nullable();

/** A document that the control plane has completed: what people wrote is checked before. */
export const jobDocument: z.ZodType<Job> = z.looseObject({
  job: text,
  challenge_number: z.number().int().nullable(),
  code: text.nullable(),
  command: z.union([z.array(text), text]).nullable(),
  timeout: z.number().positive(),
  pool: text,
  priority: z.number().int(),
  max_retries: count,
  source: source.nullable(),
  environment: environment.partial().nullable() as z.ZodType<Partial<Environment> | null>,
  limits: z
    .looseObject({memory_gb: amount, processes: amount, open_files: amount, file_gb: amount})
    .nullable(),
  metadata: z.record(text, z.unknown()),
  deadline_at: instant.nullable(),
  budget_usd: z.number().nullable(),
  status: z.enum(['pending', 'scheduled', 'running', 'completed', 'failed', 'cancelled']),
  queue: text.nullable(),
  epoch,
  lease: z.looseObject({worker: text, incarnation, epoch}).nullable(),
  due_at: instant.nullable(),
  failures: count,
  machine_failures: count,
  result: text.nullable(),
  result_path: text.nullable(),
  error: text.nullable(),
  cause,
  exit_code: z.number().int().nullable(),
  attempts: z.array(
    z.looseObject({
      ...{epoch, worker: text, incarnation, started_at: instant, ended_at: instant, cause},
      outcome: z.enum(['completed', 'failed', 'preempted', 'drained', 'cancelled']),
      error: text.nullable(),
      exit_code: z.number().int().nullable(),
      cost_usd: z.number().nullable(),
      ran: ran.nullable(),
    }),
  ),
  ran: ran.nullable(),
  log_path: text.nullable(),
  artifacts_path: text.nullable(),
  spent_usd: z.number(),
  long_epoch: epoch.nullable().default(null),
  said: z.record(text, instant),
  created_at: instant,
  scheduled_at: instant.nullable(),
  started_at: instant.nullable(),
  completed_at: instant.nullable(),
  updated_at: instant,
  expire_at: instant.nullable(),
});

const jobs = kind(jobDocument);

type Configured = Pick<Deps, 'config'>;

export const jobRecords = {
  ...jobs,
  get: ({config}: Configured, from: Store | Transaction, id: string) =>
    jobs.get(from, paths.job(config.jobs_collection, id)),
  set: ({config}: Configured, tx: Transaction, job: Job) =>
    jobs.set(tx, paths.job(config.jobs_collection, job.job), job),
};

/** Deletes the document of an ended job. */
export function deleteJob({config}: Configured, tx: Transaction, {job}: Job): void {
  tx.delete(paths.job(config.jobs_collection, job));
}

/** Reads the job that the worker holds; undefined if its document says otherwise. */
export async function jobOf(
  deps: Pick<Deps, 'config' | 'log'>,
  tx: Transaction,
  worker: Worker,
): Promise<Job | undefined> {
  const id = parseJobWork(worker.work);
  const found = id && (await skipIfInvalid(deps.log, () => jobRecords.get(deps, tx, id)));
  const holder = {worker: worker.name, incarnation: worker.incarnation};
  return found && isJobOf(found, holder) && found.lease?.epoch === worker.epoch ? found : undefined;
}

/** Reads the worker that holds the lease of the job, for `clearWork` when the lease ends. */
export async function workerOf(
  {log}: Pick<Deps, 'log'>,
  tx: Transaction,
  {job, lease}: Job,
): Promise<Worker | undefined> {
  const worker = lease && (await skipIfInvalid(log, () => workerRecords.get(tx, lease.worker)));
  const isHolder = worker?.work === jobWork(job) && worker.epoch === lease?.epoch;
  return isHolder && worker.incarnation === lease?.incarnation ? worker : undefined;
}

/** Stores a job whose attempt has ended. A failed job is an event and a signal. */
export function storeEnded(
  deps: Pick<Deps, 'config' | 'log'>,
  tx: Transaction,
  before: Job,
  job: Job,
  now: number,
): void {
  jobRecords.set(deps, tx, job);
  const last = job.attempts.at(-1);
  const who = before.lease ? `${before.lease.worker}: ` : '';
  const why = job.error ?? last?.error;
  const text = `Job ${job.job} is ${job.status}${why ? `, because ${who}${why}` : ''}`;
  const about = before.lease ? {worker: before.lease.worker, epoch: before.lease.epoch} : {};
  recordEvent(tx, {kind: 'job', job: job.job, ...about, text}, now);
  if (job.status === 'failed')
    deps.log('WARNING', text, {job: job.job, cause: job.cause, signal: 'job-failed'});
}
