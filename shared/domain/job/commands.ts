/** Decisions about jobs that people ask for with messages. */
import {applied, type Decision, type Rejection, rejected} from '../commands/commands.ts';
import {NO_CHECKPOINT} from '../records/checkpoint.ts';
import type {Job} from '../records/job.ts';
import {splitByPublishTime, withPublishTime} from '../records/publish-order.ts';
import type {Worker} from '../records/worker.ts';
import {iso, msOf} from '../time.ts';
import {CANCELLED, endAttempt, GRACE_S, isFinal, laterThanKept, scheduleJob} from './lifecycle.ts';

export const noJob = (id: string): Rejection => rejected(`there is no job "${id}"`);

/**
 * Cancels a job that has not ended, however late the message arrives. `holder`: the worker that runs it, which stores what the attempt has
 * and then ends it.
 */
export function decideCancelJob(
  job: Job,
  holder: Pick<Worker, 'usd_per_hour'> | undefined,
  published_at: string,
  now: number,
): Decision<Job> {
  const message_times = withPublishTime(job.message_times, ['status'], published_at);
  if (job.status === 'cancelled')
    return applied({...job, message_times}, `job ${job.job} was cancelled already`);
  if (isFinal(job)) return rejected(`job ${job.job} is ${job.status}: cancel has no effect`);
  if (!holder) {
    const next = {...endAttempt(job, CANCELLED, null, now), message_times};
    return applied(next, `job ${job.job} is cancelled`);
  }
  const due_ms = Math.min(now + GRACE_S * 1000, job.due_at === null ? Infinity : msOf(job.due_at));
  const cancelled_at = job.cancelled_at ?? iso(now);
  return applied(
    {...job, message_times, cancelled_at, due_at: iso(due_ms), updated_at: iso(now)},
    `job ${job.job} is cancelled: its attempt ends within ${GRACE_S} s, and stores its artifacts first`,
  );
}

/** Tolerance for the clocks of two functions: an expiry this close to the automatic one was not set by a person. */
const CLOCKS_MS = 60_000;

/** Runs a failed or cancelled job again, with all its retries. `isFresh`: without its checkpoint. */
export function decideRetryJob(job: Job, published_at: string, now: number, isFresh = false): Decision<Job> {
  const {outdated} = splitByPublishTime(job.message_times, ['status'], published_at);
  if (outdated.length > 0)
    return rejected(
      `outdated: a later message about job ${job.job} was published at ${job.message_times.status_at}`,
    );
  if (job.cause === 'invalid')
    return rejected(`job ${job.job} is invalid, and a retry cannot mend that: submit a valid one`);
  if (job.status !== 'failed' && job.status !== 'cancelled')
    return rejected(`job ${job.job} is ${job.status}: retry has no effect`);
  const fresh = {
    ...{failures: 0, machine_failures: 0, error: null, cause: null, exit_code: null},
    ...{completed_at: null, expire_at: laterThanKept(job.expire_at, now + CLOCKS_MS), scheduled_at: iso(now)},
    message_times: withPublishTime(job.message_times, ['status'], published_at),
    ...(isFresh ? {checkpoint_state: {...NO_CHECKPOINT, own_epoch: job.epoch}} : {}),
  };
  return applied(scheduleJob({...job, ...fresh}, now), `job ${job.job} runs again`);
}
