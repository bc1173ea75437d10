/** Messages of a worker's hosts, and the worker's document after each of them. */
import {accrue} from '../billing/cost.ts';
import {leasedWork} from '../names.ts';
import type {WorkLease} from '../records/request-writes.ts';
import {
  type Host,
  NO_HOST,
  NO_WORK,
  type Phase,
  readySince,
  type Worker,
  withoutWork,
} from '../records/worker.ts';
import {isOlderThan, iso} from '../time.ts';
import {bootingHosts, FIRST_HOST, hostText} from '../worker/hosts.ts';
import {livedUntil} from '../worker/life-phases.ts';
import {advise, type RequestDecision} from './requests.ts';

/** The worker after a message of a host other than host 0. Returns the same object for a message that soon repeats the last one. */
export function heardFromHost(
  worker: Worker,
  host: number,
  said: Partial<Host>,
  silent_s: number,
  now: number,
): Worker {
  const before = worker.hosts[host] ?? NO_HOST;
  const known = {...before, ...said};
  const isSame = (['phase', 'source_version', 'source_error'] as const).every(
    field => known[field] === before[field],
  );
  const isRecent = before.heartbeat_at !== null && !isOlderThan(before.heartbeat_at, silent_s / 4, now);
  if (isSame && isRecent) return worker;
  return {...worker, hosts: {...worker.hosts, [host]: {...known, heartbeat_at: iso(now)}}};
}

export function leaseFieldsOf({work, epoch, claimed_at, drains, yields_to}: Worker) {
  return {work, epoch, claimed_at, drains, yields_to};
}

/** The boot of the host has failed, so the next tick replaces the worker. The first reason is kept. */
export function decideFailedBoot(
  worker: Worker,
  {reason, host}: {reason: string; host: number},
  now: number,
): RequestDecision {
  const answer = advise('continue', '');
  if (worker.fault !== null) return {answer};
  if (host !== FIRST_HOST) {
    const heard = heardFromHost(worker, host, {phase: 'setup'}, 0, now);
    const fault = faultText(`${hostText(host, worker.host_count)}: ${reason}`);
    return {answer, writes: {worker: {...heard, fault}}, wakes: true};
  }
  const held = {...NO_WORK, ...leaseFieldsOf(worker)};
  const heard = heardFrom(worker, {...held, activity: 'setup', step: worker.boot_step ?? undefined}, now);
  return {answer, writes: {worker: {...heard, fault: faultText(reason)}}, wakes: true};
}

export function beganWork(worker: Worker, lease: WorkLease, now: number): Worker {
  const claim = {work: leasedWork(lease), epoch: lease.epoch, claimed_at: iso(now)};
  return heardFrom(worker, {...NO_WORK, activity: 'loading', ...claim}, now);
}

/** The worker after the request of another slice has leased it a job. It receives the job with its next request. */
export function takenForWork(worker: Worker, lease: WorkLease, now: number): Worker {
  const claim = {work: leasedWork(lease), epoch: lease.epoch, claimed_at: iso(now)};
  return {...worker, ...NO_WORK, ...claim, phase: 'working', phase_since_at: iso(now)};
}

export function joinedWork(worker: Worker, host: number, now: number): Worker {
  if (host !== FIRST_HOST) return heardFromHost(worker, host, {phase: 'loading'}, 0, now);
  const claim = {...leaseFieldsOf(worker), claimed_at: iso(now)};
  return heardFrom(worker, {...NO_WORK, activity: 'loading', ...claim}, now);
}

const MOST_FAULT_CHARS = 2000;

/** The worker without its work. After a `fault` it gets no more work and is replaced: another machine may succeed. */
export function gaveBack(worker: Worker, outcome: string, fault: string | null, now: number): Worker {
  const activity = outcome === 'preempted' ? 'preempted' : 'idle';
  return {
    ...heardFrom(worker, {...NO_WORK, activity}, now),
    fault: fault === null ? worker.fault : faultText(fault),
  };
}

export function lostToHost(worker: Worker, host: number, fault: string | null): Worker {
  const text = fault === null ? worker.fault : faultText(`${hostText(host, worker.host_count)}: ${fault}`);
  return {...withoutWork(worker), fault: text};
}

const faultText = (fault: string) => fault.slice(0, MOST_FAULT_CHARS).toWellFormed();

const PROGRESS = ['activity', 'work', 'samples_done', 'tokens_done', 'shards_done'] as const;

/** The worker after a request for work, which always counts as progress. */
export function askedForWork(worker: Worker, now: number): Worker {
  return {...heardFrom(worker, {...NO_WORK, activity: 'idle'}, now), progress_at: iso(now)};
}

/** A message of host 0 proves that it lives. A node is up once the agents of all hosts have sent a message, host 0 last. */
export function heardFrom(
  worker: Worker,
  {step, ...said}: Pick<Worker, keyof typeof NO_WORK> & {activity: string; step?: string | undefined},
  now: number,
): Worker {
  const isSetup = said.activity === 'setup';
  const isUp = !isSetup && bootingHosts(worker).length === 0;
  const phase = phaseAfter(worker, isUp, said.work);
  return {
    ...accrue(worker, now),
    ...livedUntil(worker, said, now),
    ...said,
    boot_step: isSetup ? (step ?? null) : null,
    last_error: isUp ? null : worker.last_error,
    agent_at: worker.agent_at ?? (isUp ? iso(now) : null),
    phase,
    phase_since_at: phase === worker.phase ? worker.phase_since_at : iso(now),
    ready_at: worker.ready_at ?? readyBySaying(worker, now),
    hello_at: worker.hello_at ?? iso(now),
    suspect: worker.fault === null ? null : worker.suspect,
    progress_at: PROGRESS.some(field => said[field] !== worker[field]) ? iso(now) : worker.progress_at,
    heartbeat_at: iso(now),
  };
}

/**
 * Billing start of a node that sends a heartbeat before a tick has seen it READY.
 * Nobody knows when the creation of a queued node began, so its billing starts now.
 */
function readyBySaying(
  {provisioning, provider_state, provider_since_at, phase_since_at, unready_at}: Worker,
  now: number,
) {
  const isBegun = provisioning === 'node' || provider_state !== null;
  return isBegun ? readySince([phase_since_at, provider_since_at, unready_at], now) : iso(now);
}

function phaseAfter(worker: Worker, isUp: boolean, work: string | null): Phase {
  if (worker.phase === 'draining') return 'draining';
  if (!isUp) return 'booting';
  return work === null ? 'idle' : 'working';
}
