/** Decisions about jobs that people ask for with messages. */
import {applied, type Decision, type Rejection, rejected} from '../commands/commands.ts';
import type {Job} from '../records/job.ts';
import {splitByPublishTime, withPublishTime} from '../records/publish-order.ts';
import {iso} from '../time.ts';
import {endAttempt, isFinal, laterThanKept, scheduleJob} from './lifecycle.ts';

export const noJob = (id: string): Rejection => rejected(`there is no job "${id}"`);

/** Cancels a job that has not ended, however late the message arrives. */
export function decideCancelJob(
  job: Job,
  usd_per_hour: number | null,
  published_at: string,
  now: number,
): Decision<Job> {
  const message_times = withPublishTime(job.message_times, ['status'], published_at);
  if (job.status === 'cancelled')
    return applied({...job, message_times}, `job ${job.job} was cancelled already`);
  if (isFinal(job)) return rejected(`job ${job.job} is ${job.status}: cancel has no effect`);
  const end = {outcome: 'cancelled', cause: 'cancelled', error: 'cancelled by a message'} as const;
  const next = {...endAttempt(job, end, usd_per_hour, now), message_times};
  return applied(next, `job ${job.job} is cancelled`);
}

/** Tolerance for the clocks of two functions: an expiry this close to the automatic one was not set by a person. */
const CLOCKS_MS = 60_000;

/** Runs a failed or cancelled job again, with all its retries. */
export function decideRetryJob(job: Job, published_at: string, now: number): Decision<Job> {
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
  };
  return applied(scheduleJob({...job, ...fresh}, now), `job ${job.job} runs again`);
}
