/** The grant of a waiting job to the worker that requests work. */
import type {Pool} from '../fleet/pool.ts';
import {jobFolder, jobWork} from '../names.ts';
import {NO_ENVIRONMENT} from '../source/source.ts';
import {type Holder, isLeasedTo} from '../stream/lease.ts';
import {beganWork} from '../worker/heartbeat.ts';
import {FIRST_HOST, sliceOrder} from '../worker/hosts.ts';
import type {GrantDecision} from '../worker/requests.ts';
import {isAlive, type Worker, withoutWork} from '../worker/worker.ts';
import type {Job} from './job.ts';
import {endAttempt, grantJob, grantProblem, isJobHeldBy, type JobEnd} from './lifecycle.ts';

/** `job`: undefined if its document is deleted. `hasOtherWork`: the worker holds a stream, or another job. */
export type JobGrantState = {job: Job | undefined; worker: Worker | undefined; hasOtherWork: boolean};

/** Leases the job, unless the job or the worker has changed since the search. */
export function decideJobGrant(
  {job, worker, hasOtherWork}: JobGrantState,
  id: string,
  holder: Holder,
  {pool, bucket}: {pool: Pool | undefined; bucket: string},
  now: number,
): GrantDecision {
  if (!worker || worker.incarnation !== holder.incarnation || !isAlive(worker)) return {};
  const isAtWork = worker.work === jobWork(id);
  const isOwn = job?.status === 'running' && isLeasedTo(job, holder);
  if (!job || !(isOwn || job.status === 'scheduled') || job.pool !== worker.pool) {
    // The job of the worker was deleted, or leased to another worker.
    const isLost = isAtWork && !(job && isJobHeldBy(job, worker));
    return isLost ? {writes: {worker: withoutWork(worker)}} : {};
  }
  // A later request of this worker has been granted other work: this request is late.
  if (hasOtherWork) return {};
  const price = worker.usd_per_hour;
  // The worker asks again, so the attempt before has ended, or never began.
  const free = isOwn ? endAttempt(job, endByRequest(worker), price, now) : job;
  const problem = free.status === 'scheduled' ? grantProblem(free, price, now) : undefined;
  if (free.status !== 'scheduled' || problem)
    return {
      writes: {
        worker: isAtWork ? withoutWork(worker) : undefined,
        endedJob: {before: job, after: problem ? endAttempt(free, problem, price, now) : free},
      },
    };
  const granted = grantJob(free, holder, price, now);
  const {epoch} = granted;
  const folder = jobFolder(id, epoch);
  const text = `${worker.name} runs job ${id}, attempt ${epoch}`;
  return {
    order: jobOrder(granted, worker, pool, folder, bucket),
    writes: {
      job: {...granted, log_path: `gs://${bucket}/${folder}output/`},
      worker: beganWork(worker, {job: id, epoch}, now),
      events: [{kind: 'job', job: id, worker: worker.name, epoch, text}],
    },
  };
}

/** A restart of the host in the middle of the job may be the job's work. Without one, the answer with the lease was lost. */
function endByRequest({name, claimed_at}: Worker): JobEnd {
  return claimed_at === null
    ? {outcome: 'failed', cause: 'machine', error: `${name} restarted in the middle of it`}
    : {outcome: 'preempted', cause: 'preempted', error: `${name} asked for work again`};
}

function jobOrder(granted: Job, worker: Worker, pool: Pool | undefined, folder: string, bucket: string) {
  const {job: id, epoch, code, command, challenge_number, timeout, limits, source, environment} = granted;
  return {
    action: 'job',
    lease: {job: id, epoch},
    slice: sliceOrder(worker, FIRST_HOST),
    job: {
      ...{id, code, command, challenge_number, timeout_s: timeout, limits, folder, bucket},
      source: source ?? pool?.source ?? null,
      environment: {...NO_ENVIRONMENT, ...pool?.environment, ...environment},
      source_version: source === null ? (pool?.source_version ?? 0) : null,
    },
  };
}
