/** The life of a job: its document and an event decide the next document. Every change of the lease is here. */

import {type Cause, MACHINE_CAUSES, OWN_CAUSES} from '../records/causes.ts';
import type {HostEnd, Job, JobAttempt, JobLease} from '../records/job.ts';
import type {Worker} from '../records/worker.ts';
import type {Holder} from '../stream/lease.ts';
import {isOlderThan, iso, msOf, utcText} from '../time.ts';
import {FIRST_HOST, hostText} from '../worker/hosts.ts';
import {type Death, isMachineDeath} from '../worker/liveness.ts';
import {nodeStanding} from '../worker/provider-states.ts';
import {afterFailure, atStart, restoreSeconds, withoutComplete, withStorage} from './checkpoint.ts';
import {queuePlace} from './queue.ts';

/** Machines that may fail while running a job before the job itself counts as the cause. */
export const MAX_MACHINE_FAILURES = 5;
/** Attempts that a document keeps, and characters of an error, so that a job that keeps failing does not outgrow its document. */
export const MOST_ATTEMPTS = 50;
export const MOST_ERROR_CHARS = 20_000;
const MOST_ATTEMPT_ERROR_CHARS = 500;
const MOST_HOST_ERROR_CHARS = 200;
/** After a host reports that it lost a peer, the attempt waits this long for the true cause. */
const PEERS_S = 30;
/** A tick ends a job this long after its timeout if its agent has not. The timeout excludes 60 s of preparation and 60 s of JAX. */
export const GRACE_S = 180;
const KEPT_DAYS = 30;

const NO_RESULT = {exit_code: null, result: null, result_path: null, artifacts_path: null, ran: null};

/** The end of an attempt, as its worker reports it or as the control plane finds it. */
export type JobEnd = Pick<JobAttempt, 'outcome' | 'cause' | 'error'> &
  Partial<Pick<HostEnd, keyof typeof NO_RESULT>>;

const failed = (cause: Cause, error: string): JobEnd => ({outcome: 'failed', cause, error});
const preempted = (error: string): JobEnd => ({outcome: 'preempted', cause: 'preempted', error});

/** Processes of an attempt: one for each host of each slice. */
export const processesOf = ({host_count, members}: JobLease) => host_count * Math.max(1, members.length);

/** Number of the process on a host of the holder, as JAX counts them: slice by slice. */
export function processOf({host_count, members}: JobLease, {worker}: Holder, host: number): number {
  const slice = members.findIndex(member => member.worker === worker);
  return Math.max(0, slice) * host_count + host;
}

/** True if host 0 has finished the attempt while other hosts still run. Such a worker no longer renews its lease. */
export function waitsForOthers({lease, ends}: Job, {name, incarnation}: Worker): boolean {
  return lease !== null && ends[processOf(lease, {worker: name, incarnation}, FIRST_HOST)] !== undefined;
}

/** Also of a document that may have any status. */
export function isFinal({status}: {status?: unknown}): boolean {
  return status === 'completed' || status === 'failed' || status === 'cancelled';
}

export function scheduleJob(job: Job, now: number): Job {
  return {
    ...job,
    status: 'scheduled',
    queue: queuePlace(job),
    lease: null,
    due_at: job.deadline_at,
    scheduled_at: job.scheduled_at ?? iso(now),
    updated_at: iso(now),
  };
}

/** The job as leased to a worker at this price. The new epoch invalidates every earlier lease. */
export function grantJob(
  job: Job,
  holder: Holder & Partial<Pick<JobLease, 'host_count' | 'members'>>,
  usd_per_hour: number | null,
  now: number,
): Job & {lease: JobLease} {
  const epoch = job.epoch + 1;
  const lease = {host_count: 1, members: [], ...holder, epoch};
  return {
    ...job,
    ...{status: 'running', queue: null, reason: null, epoch, lease},
    ...{started_at: iso(now), updated_at: iso(now)},
    ...{due_at: dueAt(job, usd_per_hour, now), artifacts_path: null, ends: {}, reservation_timeouts: {}},
    checkpoint_state: job.checkpoint_state && atStart(job),
  };
}

/** The earliest end of an attempt that starts now: the deadline, the timeout with its grace, or the end of the budget. */
function dueAt(
  {deadline_at, timeout, budget_usd, spent_usd, slices, checkpoint_state}: Job,
  usd_per_hour: number | null,
  now: number,
) {
  const restore_s = restoreSeconds(checkpoint_state?.complete ?? null);
  const ends = [now + (timeout + GRACE_S + restore_s) * 1000];
  if (deadline_at !== null) ends.push(msOf(deadline_at));
  if (budget_usd !== null && usd_per_hour)
    ends.push(now + ((budget_usd - spent_usd) / (slices * usd_per_hour)) * 3_600_000);
  return iso(Math.max(now, Math.min(...ends)));
}

/** The end of a job that no worker of this price may run; undefined if it may be granted. */
export function grantProblem(job: Job, usd_per_hour: number | null, now: number): JobEnd | undefined {
  const {budget_usd, spent_usd, deadline_at} = job;
  if (deadline_at !== null && msOf(deadline_at) <= now)
    return failed('deadline', `its deadline passed at ${utcText(deadline_at)} before a worker was free`);
  if (budget_usd === null) return undefined;
  if (usd_per_hour === null) return failed('budget', 'the price of its worker is unknown; set prices/chips');
  if (spent_usd < budget_usd) return undefined;
  return failed('budget', `$${spent_usd.toFixed(2)} of $${budget_usd.toFixed(2)} are spent`);
}

/**
 * The job after its attempt ended on one host. The attempt ends with the first failure of its own, or with the last host, because storing
 * artifacts may take longer on one host. JAX ends the other processes when one dies: their ends wait for the true cause.
 */
export function endProcess(
  job: Job & {lease: JobLease},
  index: number,
  end: JobEnd,
  usd_per_hour: number | null,
  now: number,
): Job {
  const processes = processesOf(job.lease);
  if (processes === 1) return endAttempt(job, end, usd_per_hour, now);
  const ends = {...job.ends, [index]: hostEndOf(end)};
  // Each host of a cancelled attempt stores what it has.
  const isConsequence = end.outcome === 'completed' || end.cause === 'peer' || job.cancelled_at !== null;
  if (!isConsequence) return endAttempt({...job, ends}, byHost(end, index, processes), usd_per_hour, now);
  if (Object.keys(ends).length === processes)
    return endAttempt({...job, ends}, endOfAll(ends, processes), usd_per_hour, now);
  const due_ms = job.due_at === null ? Infinity : msOf(job.due_at);
  const due_at = end.cause === 'peer' ? iso(Math.min(now + PEERS_S * 1000, due_ms)) : job.due_at;
  return {...job, ends, due_at, updated_at: iso(now)};
}

function hostEndOf({outcome, ...end}: JobEnd): HostEnd {
  const error = clipped(end.error, MOST_HOST_ERROR_CHARS);
  return {...NO_RESULT, ...end, outcome: outcome as HostEnd['outcome'], error};
}

function byHost(end: JobEnd, index: number, processes: number): JobEnd {
  const error = end.error === null ? null : `${hostText(index, processes)}: ${end.error}`;
  return {...end, error};
}

/** The end of an attempt whose hosts have succeeded, lost a peer, or not reported an end in time. */
function endOfAll(ends: Job['ends'], processes: number): JobEnd {
  const all = Array.from({length: processes}, (_, index) => ends[index]);
  const lost = all.indexOf(undefined);
  const peer = all.findIndex(end => end?.cause === 'peer');
  const lostBy = (index: number, error: string) => byHost(failed('machine', error), index, processes);
  if (lost >= 0) return lostBy(lost, 'it did not report its end');
  if (peer >= 0) return lostBy(peer, all[peer]?.error ?? 'it lost another host');
  return all[0] ?? lostBy(0, 'it did not report its end');
}

/** The ends without their results, which are in the job now. */
function withoutResults(ends: Job['ends']): Job['ends'] {
  const without = (end: HostEnd) => ({...end, ...NO_RESULT, exit_code: end.exit_code});
  return Object.fromEntries(Object.entries(ends).map(([index, end]) => [index, without(end)]));
}

/** The end of a job that a person cancels. */
export const CANCELLED = {
  outcome: 'cancelled',
  cause: 'cancelled',
  error: 'cancelled by a message',
} as const satisfies JobEnd;

/**
 * The job after the end of its attempt, or of its wait. Preemptions and drains cost it nothing. Its own failures count against `max_retries`;
 * machines that die under it are counted separately.
 */
export function endAttempt(job: Job, given: JobEnd, usd_per_hour: number | null, now: number): Job {
  const end = job.cancelled_at !== null && given.outcome !== 'completed' ? {...given, ...CANCELLED} : given;
  const ended = withAttempt(withStorage(job, now), end, usd_per_hour, now);
  const {cause} = end;
  switch (end.outcome) {
    case 'completed': {
      const {result = null, result_path = null, exit_code = null, ran = null} = end;
      return closed({...ended, result, result_path, exit_code, ran}, 'completed', end, now);
    }
    case 'cancelled':
      return closed(ended, 'cancelled', end, now);
    case 'preempted':
    case 'drained':
      return scheduleJob(ended, now);
    case 'failed': {
      const {exit_code = null, ran = null} = end;
      const told = {...ended, error: clipped(end.error, MOST_ERROR_CHARS), cause, exit_code, ran};
      if (MACHINE_CAUSES.some(machine => machine === cause)) {
        const machine_failures = job.machine_failures + 1;
        const {checkpoint_state: state} = told;
        const checkpoint_state = cause === 'checkpoint' ? withoutComplete(state) : state;
        const next = {...told, machine_failures, checkpoint_state};
        const error = `${MAX_MACHINE_FAILURES} machines failed while working on it, the last one because ${end.error}`;
        return machine_failures < MAX_MACHINE_FAILURES
          ? scheduleJob(next, now)
          : closed(next, 'failed', {...end, error}, now);
      }
      if (!OWN_CAUSES.some(own => own === cause)) return closed(told, 'failed', end, now);
      const failures = job.failures + 1;
      const next = {...told, failures, checkpoint_state: afterFailure(told)};
      return failures <= job.max_retries ? scheduleJob(next, now) : closed(next, 'failed', end, now);
    }
    default:
      return end.outcome satisfies never;
  }
}

/** Time until which a job that ends now is kept, unless a person set a later time. */
const keptUntil = (now: number) => iso(now + KEPT_DAYS * 86_400_000);

/** A job that waits or runs must not expire: an expiry earlier than that of an ended job is ignored. */
export function laterThanKept(expire_at: string | null, now: number): string | null {
  return expire_at !== null && expire_at > keptUntil(now) ? expire_at : null;
}

function closed(job: Job, status: 'completed' | 'failed' | 'cancelled', end: JobEnd, now: number): Job {
  return {
    ...job,
    ...{status, queue: null, lease: null, due_at: null, cause: end.cause, reason: null, cancelled_at: null},
    error: clipped(end.error, MOST_ERROR_CHARS),
    completed_at: iso(now),
    updated_at: iso(now),
    expire_at: laterThanKept(job.expire_at, now) ?? keptUntil(now),
  };
}

function clipped(text: string | null, most: number): string | null {
  return text === null ? null : text.slice(0, most).toWellFormed();
}

/** Records the attempt of the lease, with the cost of its time. A job without a lease has no attempt. */
function withAttempt(job: Job, end: JobEnd, usd_per_hour: number | null, now: number): Job {
  const {lease, started_at} = job;
  if (!lease || started_at === null) return job;
  // The clock of another process may be behind the one that started the attempt.
  const ended_ms = Math.max(now, msOf(started_at));
  const hours = (ended_ms - msOf(started_at)) / 3_600_000;
  const cost_usd = usd_per_hour === null ? null : hours * job.slices * usd_per_hour;
  const {outcome, cause, exit_code = null, ran = null} = end;
  const error = clipped(end.error, MOST_ATTEMPT_ERROR_CHARS);
  const attempt = {
    ...{epoch: lease.epoch, worker: lease.worker, incarnation: lease.incarnation, members: lease.members},
    ...{started_at, ended_at: iso(ended_ms), outcome, cause, error, exit_code, cost_usd, ran},
    restored_at: job.checkpoint_state?.restored_at ?? null,
  };
  return {
    ...job,
    lease: null,
    ends: withoutResults(job.ends),
    attempts: [...job.attempts, attempt].slice(-MOST_ATTEMPTS),
    spent_usd: job.spent_usd + (cost_usd ?? 0),
    ...(end.artifacts_path ? {artifacts_path: end.artifacts_path} : {}),
  };
}

/** The end of a job whose worker died: a preemption, or a machine that the job may have killed. */
export function endByDeath(worker: string, death: Death | undefined): JobEnd {
  if (!death) return {outcome: 'drained', cause: 'drained', error: `${worker} is not needed any more`};
  const error = `${worker} is lost: ${death.cause}`;
  return isMachineDeath(death) ? failed('machine', error) : preempted(error);
}

export function endByExpiry(worker: Worker, lease_s: number): JobEnd {
  return endByMachine(worker, `${worker.name} has not renewed its lease for ${lease_s} s`);
}

/** The end of an attempt whose machine failed. A node that Google repairs is not the fault of its job. */
export function endByMachine(worker: Worker, error: string): JobEnd {
  return nodeStanding(worker) === 'mending' ? preempted(error) : failed('machine', error);
}

/** The end of an attempt whose worker asks for work again: its host restarted, maybe because of the job, or never received the lease. */
export function endByRequest({name, claimed_at}: Worker): JobEnd {
  return claimed_at === null
    ? failed('machine', `${name} restarted in the middle of it`)
    : preempted(`${name} asked for work again`);
}

/** The end of an attempt that no worker holds; it does not count as a failure of the job. */
export function endWithoutHolder({lease}: Job): JobEnd {
  return preempted(`${lease?.worker ?? 'its worker'} does not hold it any more`);
}

/**
 * The end of a job that is due: by its deadline, its budget or its timeout. A worker that is silent or has restarted may have finished the
 * job in time or died running it, so its silence is no failure of the job. Nor is a lost document of the worker. Undefined for a job that is
 * not due, because an edit moved its time.
 */
export function endOfDue(
  job: Job,
  holder: Worker | undefined,
  lease_s: number,
  now: number,
): JobEnd | undefined {
  if (isFinal(job) || job.due_at === null || msOf(job.due_at) > now) return undefined;
  const {deadline_at, budget_usd, spent_usd, started_at, timeout, slices, lease, ends} = job;
  if (deadline_at !== null && msOf(deadline_at) <= now)
    return failed('deadline', `its deadline passed at ${utcText(deadline_at)}`);
  if (job.status !== 'running') return undefined;
  const hours = started_at === null ? 0 : (now - msOf(started_at)) / 3_600_000;
  const cost = spent_usd + hours * slices * (holder?.usd_per_hour ?? 0);
  if (budget_usd !== null && cost >= budget_usd)
    return failed(
      'budget',
      `$${cost.toFixed(2)} of $${budget_usd.toFixed(2)} are spent; submit it again with a larger budget_usd`,
    );
  if (lease && Object.keys(ends).length > 0) return endOfAll(ends, processesOf(lease));
  if (!holder) return endWithoutHolder(job);
  const isUnheard = holder.claimed_at === null || isOlderThan(holder.claimed_at, lease_s, now);
  return isUnheard
    ? endByExpiry(holder, lease_s)
    : failed('timeout', `it ran longer than its timeout of ${timeout} s`);
}
