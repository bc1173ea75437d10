import type {PublishTimes} from '../commands/publish-order.ts';
import type {Environment, Ran, Source} from '../source/source.ts';
import type {Lease} from '../stream/stream.ts';

/**
 * `pending`: created, and not checked yet. `scheduled`: valid, and waits for a worker. `running`: leased to a worker.
 * The other three are final, and a `retry` message alone reopens them.
 */
export type JobStatus = 'pending' | 'scheduled' | 'running' | 'completed' | 'failed' | 'cancelled';

/** Failures of the job's own, which count against `max_retries`. */
export const OWN_CAUSES = ['exit', 'timeout', 'memory', 'output', 'result'] as const;

/** Causes that an agent reports. A retry cannot mend `source`, `setup`, `isolation` and `tpu`. Few ends by `machine` fail the job. */
export const REPORTED_CAUSES = [...OWN_CAUSES, 'source', 'setup', 'isolation', 'tpu', 'machine'] as const;

/**
 * Why an attempt ended. A retry cannot mend `invalid` (the document), `deadline` and `budget` either. `machine` is also a worker that
 * fell silent or hung. `preempted` and `drained` cost the job nothing.
 */
export const CAUSES = [
  'invalid',
  ...REPORTED_CAUSES,
  'deadline',
  'budget',
  'preempted',
  'drained',
  'cancelled',
] as const;
export type Cause = (typeof CAUSES)[number];

/** An ended attempt: the epoch of its lease is its number. */
export type JobAttempt = {
  epoch: number;
  worker: string;
  incarnation: number;
  started_at: string;
  ended_at: string;
  outcome: 'completed' | 'failed' | 'preempted' | 'drained' | 'cancelled';
  cause: Cause | null;
  error: string | null;
  exit_code: number | null;
  cost_usd: number | null;
  ran: Ran | null;
};

export type JobLimits = {
  memory_gb: number | null;
  processes: number | null;
  open_files: number | null;
  file_gb: number | null;
};

/**
 * A document of the collection of jobs. People write the first block; the control plane completes it and writes the rest.
 * Fields: docs/firestore.md.
 */
export type Job = {
  job: string;
  challenge_number: number | null;
  code: string | null;
  command: string[] | string | null;
  timeout: number;
  pool: string;
  priority: number;
  max_retries: number;
  source: Source | null;
  environment: Partial<Environment> | null;
  limits: JobLimits | null;
  metadata: Record<string, unknown>;
  deadline_at: string | null;
  budget_usd: number | null;

  status: JobStatus;
  queue: string | null;
  epoch: number;
  lease: Lease | null;
  /** Time at which a tick ends the job, whatever its worker says: deadline, timeout or budget; null for an ended job. */
  due_at: string | null;
  failures: number;
  machine_failures: number;
  result: string | null;
  result_path: string | null;
  error: string | null;
  cause: Cause | null;
  /** Why it waits, as of the tick that found it among the first of its pool; null while it runs. */
  reason: string | null;
  exit_code: number | null;
  attempts: JobAttempt[];
  ran: Ran | null;
  log_path: string | null;
  artifacts_path: string | null;
  spent_usd: number;
  long_epoch: number | null;
  said: PublishTimes;
  created_at: string;
  scheduled_at: string | null;
  started_at: string | null;
  completed_at: string | null;
  updated_at: string;
  expire_at: string | null;
};
