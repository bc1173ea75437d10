/** The grant of a waiting job to the worker that requests work, and of its attempt to the other hosts. */
import type {Pool} from '../fleet/pool.ts';
import {jobFolder, jobWork} from '../names.ts';
import {NO_ENVIRONMENT} from '../source/source.ts';
import {type Holder, isLeasedTo} from '../stream/lease.ts';
import {beganWork, joinedWork} from '../worker/heartbeat.ts';
import {FIRST_HOST, sliceOrder, unreadyHosts} from '../worker/hosts.ts';
import type {GrantDecision} from '../worker/requests.ts';
import {isAlive, type Worker, withoutWork} from '../worker/worker.ts';
import type {Job, JobLease} from './job.ts';
import {
  endAttempt,
  grantJob,
  grantProblem,
  isJobHeldBy,
  type JobEnd,
  processesOf,
  processOf,
} from './lifecycle.ts';

/** `job`: undefined if its document is deleted. `hasOtherWork`: the worker holds a stream, or another job. */
export type JobGrantState = {job: Job | undefined; worker: Worker | undefined; hasOtherWork: boolean};

type Settings = {pool: Pool | undefined; bucket: string};

/** Leases the job, unless the job or the worker has changed since the search. */
export function decideJobGrant(
  {job, worker, hasOtherWork}: JobGrantState,
  id: string,
  holder: Holder,
  settings: Settings,
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
  const isReady = unreadyHosts(worker).length === 0;
  if (!isOwn && !problem && !isReady) return {};
  if (free.status !== 'scheduled' || problem || !isReady)
    return {
      writes: {
        worker: isAtWork ? withoutWork(worker) : undefined,
        endedJob: {before: job, after: problem ? endAttempt(free, problem, price, now) : free},
      },
    };
  const granted = grantJob(free, {...holder, host_count: worker.host_count}, price, now);
  const {epoch} = granted;
  const text = `${worker.name} runs job ${id}, attempt ${epoch}`;
  const {bucket} = settings;
  const output = processesOf(granted.lease) === 1 ? 'output/' : '';
  return {
    order: jobOrder(granted, worker, FIRST_HOST, settings),
    writes: {
      job: {...granted, log_path: `gs://${bucket}/${jobFolder(id, epoch)}${output}`},
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

/** `waits`: why the host gets no order, although its slice has an attempt. */
export type JoinDecision = GrantDecision & {waits?: string};

/**
 * The order of the attempt that the slice has already, for each of its hosts. Undefined: there is none, or its one process is that of the
 * host that asks. A repeated request gets the same order.
 */
export function decideJoin(
  {job, worker}: Pick<JobGrantState, 'job' | 'worker'>,
  {host, ...holder}: Holder & {host: number},
  settings: Settings,
  now: number,
): JoinDecision | undefined {
  if (!job?.lease || !worker || worker.incarnation !== holder.incarnation) return undefined;
  const processes = processesOf(job.lease);
  if (!isAlive(worker) || !isJobHeldBy(job, worker) || processes === 1) return undefined;
  // Host 0 has restarted: its request ends the attempt.
  if (host === FIRST_HOST && worker.claimed_at === null) return undefined;
  if (job.ends[processOf(job.lease, holder, host)])
    return {waits: `${Object.keys(job.ends).length} of ${processes} hosts have ended job ${job.job}`};
  return {
    order: jobOrder({...job, lease: job.lease}, worker, host, settings),
    writes: {worker: joinedWork(worker, host, now)},
  };
}

function jobOrder(
  granted: Job & {lease: JobLease},
  worker: Worker,
  host: number,
  {pool, bucket}: Settings,
): object {
  const {job: id, lease, code, command, challenge_number, timeout, limits, source, environment} = granted;
  const {epoch} = lease;
  const folder = jobFolder(id, epoch);
  return {
    action: 'job',
    lease: {job: id, epoch},
    slice: sliceOrder(worker, host),
    job: {
      ...{id, code, command, challenge_number, timeout_s: timeout, limits, folder, bucket},
      source: source ?? pool?.source ?? null,
      environment: {...NO_ENVIRONMENT, ...pool?.environment, ...environment},
      source_version: source === null ? (pool?.source_version ?? 0) : null,
    },
  };
}
