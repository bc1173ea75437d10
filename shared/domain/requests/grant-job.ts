/** The grant of a waiting job to the worker that requests work, and of its attempt to the other hosts. */

import {checkpointOrder, ownUrl} from '../job/checkpoint.ts';
import {inputFolders} from '../job/inputs.ts';
import {endAttempt, endByRequest, grantJob, grantProblem, processesOf, processOf} from '../job/lifecycle.ts';
import {jobFolder, jobWork} from '../names.ts';
import type {Job, JobLease} from '../records/job.ts';
import type {Pool} from '../records/pool.ts';
import {NO_ENVIRONMENT} from '../records/source.ts';
import {isAlive, type Worker, withoutWork} from '../records/worker.ts';
import {type Holder, isHeldBy, isLeasedTo} from '../stream/lease.ts';
import {FIRST_HOST, sliceOrder, unreadyHosts} from '../worker/hosts.ts';
import {beganWork, joinedWork, takenForWork} from './heard-from.ts';
import type {GrantDecision} from './requests.ts';

/**
 * `job`: undefined if its document was deleted. `hasOtherWork`: the worker holds a stream, or another job. `others`: the workers of the other
 * slices of its attempt, or candidates for them.
 */
export type JobGrantState = {
  job: Job | undefined;
  worker: Worker | undefined;
  hasOtherWork: boolean;
  others?: readonly Worker[];
};

type Settings = {pool: Pool | undefined; bucket: string; checkpoints_bucket: string; fence_s: number};

/** Leases the job, unless the job or the worker has changed since the search. */
export function decideJobGrant(
  {job, worker, hasOtherWork, others = []}: JobGrantState,
  id: string,
  holder: Holder,
  settings: Settings,
  now: number,
): JoinDecision {
  if (!worker || worker.incarnation !== holder.incarnation || !isAlive(worker)) return {};
  const isAtWork = worker.work === jobWork(id);
  const isOwn = job?.status === 'running' && isLeasedTo(job, holder);
  if (!job || !(isOwn || job.status === 'scheduled') || job.pool !== worker.pool) {
    // The worker's job was deleted, or leased to another worker.
    const isLost = isAtWork && !(job && isHeldBy(job, worker));
    return isLost ? {writes: {worker: withoutWork(worker)}} : {};
  }
  // This request is late: a later request of the worker was granted other work.
  if (hasOtherWork) return {};
  // Another slice, or an earlier request, has begun the attempt since the search; the worker's next request joins it.
  if (isOwn && job.lease && processesOf(job.lease) > 1 && worker.claimed_at !== null) return {};
  const price = worker.usd_per_hour;
  // The worker asks again, so its previous attempt has ended or never began.
  const free = isOwn ? endAttempt(job, endByRequest(worker), price, now) : job;
  const problem = free.status === 'scheduled' ? grantProblem(free, price, now) : undefined;
  const isReady = unreadyHosts(worker).length === 0;
  const gathered = job.slices === 1 ? [] : others.filter(other => !isOwn && isFreeBeside(other, worker));
  const isGathered = gathered.length + 1 >= job.slices;
  if (!isOwn && !problem && !isReady) return {};
  if (!isOwn && !problem && !isGathered)
    return {waits: `job ${id} needs ${job.slices} slices of one zone, and ${gathered.length + 1} are ready`};
  if (free.status !== 'scheduled' || problem || !isReady || !isGathered)
    return {
      writes: {
        worker: isAtWork ? withoutWork(worker) : undefined,
        ...(isOwn ? {members: others.map(withoutWork)} : {}),
        endedJob: {before: job, after: problem ? endAttempt(free, problem, price, now) : free},
      },
    };
  const slices = [worker, ...gathered.slice(0, job.slices - 1)];
  const members = job.slices === 1 ? [] : slices.map(({name, incarnation}) => ({worker: name, incarnation}));
  const granted = grantJob(free, {...holder, host_count: worker.host_count, members}, price, now);
  const {epoch} = granted;
  const text = `${worker.name} runs job ${id}, attempt ${epoch}`;
  const output = processesOf(granted.lease) === 1 ? 'output/' : '';
  return {
    order: jobOrder(granted, slices, worker, FIRST_HOST, settings),
    writes: {
      members: slices.slice(1).map(member => takenForWork(member, {job: id, epoch}, now)),
      job: {...granted, log_path: `gs://${settings.bucket}/${jobFolder(id, epoch)}${output}`},
      worker: beganWork(worker, {job: id, epoch}, now),
      events: [{kind: 'job', job: id, worker: worker.name, epoch, text}],
    },
  };
}

/** True if the slice may run a job together with that of the worker: both are free, in one zone, and of the same shape. */
function isFreeBeside(other: Worker, {name, pool, zone, host_count}: Worker): boolean {
  const isAlike = other.pool === pool && other.zone === zone && other.host_count === host_count;
  const isFree = other.phase === 'idle' && other.work === null && other.activity === 'idle';
  const isSound = !other.recreate && other.fault === null && unreadyHosts(other).length === 0;
  return other.name !== name && isAlike && isFree && isSound;
}

/** `waits`: why the host gets no order although its slice has an attempt. */
export type JoinDecision = GrantDecision & {waits?: string};

/**
 * The order for each host of a slice that has an attempt already. Undefined if it has none, or if its only process belongs to the host that
 * asks. A repeated request gets the same order.
 */
export function decideJoin(
  {job, worker, others = []}: Omit<JobGrantState, 'hasOtherWork'>,
  {host, ...holder}: Holder & {host: number},
  settings: Settings,
  now: number,
): JoinDecision | undefined {
  if (!job?.lease || !worker || worker.incarnation !== holder.incarnation) return undefined;
  const processes = processesOf(job.lease);
  if (!isAlive(worker) || !isHeldBy(job, worker) || processes === 1) return undefined;
  // Host 0 has restarted, so its request ends the attempt.
  if (host === FIRST_HOST && worker.claimed_at === null) return undefined;
  if (job.ends[processOf(job.lease, holder, host)])
    return {waits: `${Object.keys(job.ends).length} of ${processes} hosts have ended job ${job.job}`};
  const held = new Map([worker, ...others].map(each => [each.name, each]));
  const members = job.lease.members.flatMap(member => held.get(member.worker) ?? []);
  if (members.length < job.lease.members.length) return {waits: `job ${job.job} has lost a slice`};
  const slices = members.length === 0 ? [worker] : members;
  return {
    order: jobOrder({...job, lease: job.lease}, slices, worker, host, settings),
    writes: {worker: joinedWork(worker, host, now)},
  };
}

function jobOrder(
  granted: Job & {lease: JobLease},
  slices: readonly Worker[],
  worker: Worker,
  host: number,
  {pool, bucket, checkpoints_bucket, fence_s}: Settings,
): object {
  const {job: id, lease, timeout: timeout_s, source, environment} = granted;
  const {code, args, command, challenge_number, limits, env, secrets} = granted;
  const {epoch} = lease;
  return {
    action: 'job',
    lease: {job: id, epoch},
    slice: sliceOrder(slices, slices.indexOf(worker), host),
    job: {
      ...{id, code, args, command, challenge_number, timeout_s, limits, env, secrets, bucket, fence_s},
      folder: jobFolder(id, epoch),
      checkpoint: checkpointOrder(granted, checkpoints_bucket),
      own_url: ownUrl(granted, checkpoints_bucket),
      inputs: inputFolders(granted.inputs, bucket).map(input => `gs://${bucket}/${input}`),
      source: source ?? pool?.source ?? null,
      environment: {...NO_ENVIRONMENT, ...pool?.environment, ...environment},
      source_version: source === null ? (pool?.source_version ?? 0) : null,
    },
  };
}
