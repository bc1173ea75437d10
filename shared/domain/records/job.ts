import {z} from 'zod';
import {
  count,
  describing,
  dollars,
  epoch,
  incarnation,
  instant,
  integer,
  kept,
  orNull,
  stored,
  text,
} from '../fields.ts';
import {CAUSES} from './causes.ts';
import {checkpointState} from './checkpoint.ts';
import type {Environment, Ran, Source} from './source.ts';
import {lease} from './stream.ts';

const cause = orNull(describing(CAUSES));
const ran = orNull(kept<Ran>());
const limit = orNull(z.number());

/** The end of an attempt on one host. The results of host 0 count once all hosts have ended; other hosts have none. */
const hostEnd = stored({
  outcome: describing(['completed', 'failed', 'preempted', 'drained']),
  cause,
  error: orNull(text),
  exit_code: orNull(integer),
  result: orNull(text),
  result_path: orNull(text),
  artifacts_path: orNull(text),
  ran: ran,
});
export type HostEnd = z.infer<typeof hostEnd>;

/** The lease of a job: the worker of slice 0 and its hosts, and all workers if the job has several slices. */
const members = z.array(stored({worker: text, incarnation}));
const jobLease = lease.extend({host_count: count.min(1), members});
export type JobLease = z.infer<typeof jobLease>;

/** An ended attempt, numbered by the epoch of its lease. If the job has several slices, the attempt names all of their workers. */
const attempt = stored({
  ...{epoch, worker: text, incarnation, members, started_at: instant, ended_at: instant, cause},
  outcome: describing(['completed', 'failed', 'preempted', 'drained', 'cancelled']),
  error: orNull(text),
  exit_code: orNull(integer),
  restored_at: orNull(instant),
  cost_usd: orNull(dollars),
  ran,
});
export type JobAttempt = z.infer<typeof attempt>;

/** Fields of a job that the control plane writes. */
export const ownFields = {
  status: z
    .enum(['pending', 'scheduled', 'running', 'completed', 'failed', 'cancelled'])
    .describe('Status word of the job; [Jobs](../jobs.md) explains each.'),
  queue: orNull(text).describe('Place in the queue while the job waits: `POOL/PRIORITY/TIME/ID`. Else null.'),
  epoch: epoch.describe('Count of attempts: each lease adds 1.'),
  lease: orNull(jobLease).describe(
    'The holder: `worker`, `incarnation`, `epoch`, `host_count`, and `members` of a job of several slices. Null without a holder.',
  ),
  ends: z
    .record(text, hostEnd)
    .describe(
      'Ends of the newest attempt as its hosts reported them, by process number: slice times hosts, plus host. Empty for one host.',
    ),
  due_at: orNull(instant).describe(
    'Time at which a tick ends the job: deadline, timeout or budget. Null for an ended job.',
  ),
  failures: count.describe('Failures of the job itself, counted against `max_retries`.'),
  machine_failures: count.describe(
    'Machines that failed while running the job, perhaps because of it, since the last version of its checkpoint.',
  ),
  result: orNull(text).describe('Result of the job as text. Null without one, or where it is too long.'),
  result_path: orNull(text).describe('Address of a result that is too long for the document; else null.'),
  error: orNull(text).describe('Text of the last error; null without one.'),
  cause: cause.describe(
    'Why the last attempt failed, as one word; [Jobs](../jobs.md) explains each. Else null.',
  ),
  reservation_timeouts: z
    .record(text, stored({count, next_at: instant}))
    .describe(
      'Zones where slices of the job waited too long for the others: how often (`count`), and the end of the pause. Cleared when an attempt begins.',
    ),
  reason: orNull(text).describe(
    'Why the job waits, as the last tick found; only for the first ten jobs of a pool. Null while it runs.',
  ),
  exit_code: orNull(integer).describe('Exit code of the last attempt; null without one.'),
  attempts: z.array(attempt).describe('The newest ended attempts, the last one being the newest.'),
  ran: ran.describe(
    'What the last attempt ran: bundle, repository, commit, JAX version, environment. Null before.',
  ),
  log_path: orNull(text).describe('Address of the output of the newest attempt; null before.'),
  artifacts_path: orNull(text).describe('Address of the artifacts of the newest attempt; null before.'),
  spent_usd: dollars.describe('Dollars of the attempts that have ended.'),
  checkpoint_state: orNull(checkpointState).describe(
    'Versions of the checkpoint: `complete` is what the next attempt restores, `previous` the one before. `pending` has what hosts stored since, `restored_at` the version that the present attempt restored, `problem` why none is stored, `storage_usd` the cost so far. Null before the first.',
  ),
  cancelled_at: orNull(instant).describe(
    'Time at which a person cancelled the running attempt, which stores what it has. Null once it has ended.',
  ),
  long_epoch: orNull(epoch).describe('Epoch of the attempt that was reported as long; else null.'),
  message_times: z.record(text, instant).describe('Publish time of the last message about each field.'),
  created_at: instant.describe('Time at which the job was submitted.'),
  scheduled_at: orNull(instant).describe(
    'Time at which the job was accepted into the queue last; null before.',
  ),
  started_at: orNull(instant).describe('Start of the newest attempt; null before.'),
  completed_at: orNull(instant).describe('End of the job; null before.'),
  updated_at: instant.describe('Time of the last change of the document.'),
  expire_at: orNull(instant).describe(
    'Firestore deletes the document some time after this. Null while the job is open.',
  ),
};

/**
 * A document of the collection of jobs, completed by the control plane; the fields that people write are checked before. `pending`: created,
 * and not checked yet. `scheduled`: valid, and waits for a worker. `running`: leased to a worker. The other three statuses are final; only a
 * `retry` message reopens them.
 */
export const jobDocument = stored({
  job: text.describe('Id of the job, which is the document id.'),
  challenge_number: orNull(integer).describe('Free number for the submitter; null if unused.'),
  code: orNull(text).describe('Python text of the job. Null where `command` is set.'),
  args: orNull(z.array(text)).default(null).describe('Arguments of `code`. Null: none.'),
  command: orNull(z.union([z.array(text), text])).describe(
    'Arguments of a program, or one text for `bash -c`. Null where `code` is set.',
  ),
  timeout: z.number().positive().describe('Seconds that one attempt may take.'),
  pool: text.describe('Pool whose TPUs may run the job.'),
  slices: count
    .min(1)
    .describe('TPUs that run the job together, in one zone of the pool: more than one needs Multislice.'),
  priority: integer.describe('Order among the jobs of the pool: the higher number goes first.'),
  max_retries: count.describe('Own failures after which the job is tried again.'),
  source: orNull(kept<Source>()).describe('Code of the job. Null: the source of its pool.'),
  environment: orNull(kept<Partial<Environment>>()).describe(
    'Preparation of the host. Null: the environment of its pool.',
  ),
  env: orNull(z.record(text, text)).default(null).describe('Variables of the process. Null: none.'),
  secrets: orNull(z.record(text, text))
    .default(null)
    .describe(
      'Variables of the process, and the name of the secret of each in `job_secrets`; never a value. Null: none.',
    ),
  limits: orNull(
    stored({
      memory_gb: limit,
      processes: limit,
      open_files: limit,
      file_gb: limit,
      disk_gb: limit,
      files: limit,
    }),
  ).describe(
    'Limits of the process: `memory_gb`, `processes`, `open_files`, `file_gb`, `disk_gb`, `files`. Null: none.',
  ),
  checkpoint: orNull(stored({max_gb: limit, max_files: limit, every_s: limit})).describe(
    'Limits of the checkpoint: `max_gb` (100), `max_files` (10,000), `every_s` (60), the least seconds between two versions. Null: these.',
  ),
  inputs: z
    .array(text)
    .default([])
    .describe('What the process reads: `run:NAME`, or addresses of folders of the data bucket.'),
  metadata: z.record(text, z.unknown()).describe('Free values of the submitter.'),
  deadline_at: orNull(instant).describe('Time at which the job ends, whatever its state. Null: no deadline.'),
  budget_usd: orNull(dollars).describe('Dollars that all attempts may cost. Null: no limit of its own.'),
  ...ownFields,
});
export type Job = z.infer<typeof jobDocument>;

/** Start of the wait: when the job was scheduled, or when its last attempt ended. */
export function waitsSince({created_at, scheduled_at, attempts}: Job): string {
  const [begun_at, ended_at] = [scheduled_at ?? created_at, attempts.at(-1)?.ended_at ?? ''];
  return ended_at > begun_at ? ended_at : begun_at;
}
export type JobStatus = Job['status'];
