import {z} from 'zod';
import {count, describing, dollars, epoch, incarnation, instant, kept, stored, text} from '../fields.ts';
import type {Environment, Ran, Source} from '../source/source.ts';
import {lease} from '../stream/stream.ts';
import {CAUSES} from './causes.ts';

const cause = describing(CAUSES).nullable();
const ran = kept<Ran>().nullable();
const limit = z.number().nullable();

/** An ended attempt: the epoch of its lease is its number. */
const attempt = stored({
  ...{epoch, worker: text, incarnation, started_at: instant, ended_at: instant, cause},
  outcome: describing(['completed', 'failed', 'preempted', 'drained', 'cancelled']),
  error: text.nullable(),
  exit_code: z.number().int().nullable(),
  cost_usd: dollars.nullable(),
  ran,
});
export type JobAttempt = z.infer<typeof attempt>;

/** Fields of a job that the control plane writes. */
export const ownFields = {
  status: z.enum(['pending', 'scheduled', 'running', 'completed', 'failed', 'cancelled']),
  queue: text.nullable(),
  epoch,
  lease: lease.nullable(),
  /** Time at which a tick ends the job, whatever its worker says: deadline, timeout or budget; null for an ended job. */
  due_at: instant.nullable(),
  failures: count,
  machine_failures: count,
  result: text.nullable(),
  result_path: text.nullable(),
  error: text.nullable(),
  cause,
  /** Why it waits, as of the tick that found it among the first of its pool; null while it runs. */
  reason: text.nullable().default(null),
  exit_code: z.number().int().nullable(),
  attempts: z.array(attempt),
  ran,
  log_path: text.nullable(),
  artifacts_path: text.nullable(),
  spent_usd: dollars,
  long_epoch: epoch.nullable().default(null),
  said: z.record(text, instant),
  created_at: instant,
  scheduled_at: instant.nullable(),
  started_at: instant.nullable(),
  completed_at: instant.nullable(),
  updated_at: instant,
  expire_at: instant.nullable(),
};

/**
 * A document of the collection of jobs that the control plane has completed: the fields that people write are checked before. `pending`:
 * created, and not checked yet. `scheduled`: valid, and waits for a worker. `running`: leased to a worker. The other three statuses are final,
 * and a `retry` message alone reopens them. Fields: docs/firestore.md.
 */
export const jobDocument = stored({
  job: text,
  challenge_number: z.number().int().nullable(),
  code: text.nullable(),
  command: z.union([z.array(text), text]).nullable(),
  timeout: z.number().positive(),
  pool: text,
  priority: z.number().int(),
  max_retries: count,
  source: kept<Source>().nullable(),
  environment: kept<Partial<Environment>>().nullable(),
  limits: stored({memory_gb: limit, processes: limit, open_files: limit, file_gb: limit}).nullable(),
  metadata: z.record(text, z.unknown()),
  deadline_at: instant.nullable(),
  budget_usd: dollars.nullable(),
  ...ownFields,
});
export type Job = z.infer<typeof jobDocument>;
export type JobStatus = Job['status'];
