import {leasedWork} from '../names.ts';
import type {Job} from '../records/job.ts';
import type {RequestWrites, WorkLease} from '../records/request-writes.ts';
import type {Run} from '../records/run.ts';
import {type Lease, MAX_FAILURES, MAX_FAULTS, type Stream} from '../records/stream.ts';
import type {Suspect, Worker} from '../records/worker.ts';
import {afterMachineFailedStream} from '../run/machine-deaths.ts';
import {iso, msOf} from '../time.ts';
import type {Contradiction} from '../timeline.ts';
import type {Death} from '../worker/liveness.ts';
import {isBadHost, isBrokenBy, nodeStanding} from '../worker/provider-states.ts';
import {isServedFor, type Served} from '../worker/served-time.ts';

export type Holder = {worker: string; incarnation: number};

export type Claim = Holder & {epoch: number};

export type ReleaseOutcome = 'completed' | 'drained' | 'preempted' | 'failed';

/**
 * `stream`: the input is bad. `model`: the model or the spec cannot be used. `hub`: the model could not be downloaded. `infrastructure`: the
 * machine or its network fails.
 */
export type Failure = {
  kind: 'stream' | 'model' | 'hub' | 'infrastructure';
  reason: string;
  contradiction?: Contradiction | null;
};

/** `members`: the holders of a job of several slices. */
type Leased = {lease: (Lease & {members?: readonly Holder[]}) | null};

/** True if this incarnation holds the lease of the stream or the job, whatever the epoch. */
export function isLeasedTo({lease}: Leased, {worker, incarnation}: Holder): boolean {
  const isTheirs = (each: Holder) => each.worker === worker && each.incarnation === incarnation;
  return lease !== null && [lease, ...(lease.members ?? [])].some(isTheirs);
}

export function holds(leased: Leased, claim: Claim): boolean {
  return isLeasedTo(leased, claim) && leased.lease?.epoch === claim.epoch;
}

export const isClaimable = (stream: Stream) => stream.status === 'pending';

/** Returns the key of the lease of this epoch of a stream. */
export type LeaseKeys = (stream: Stream, epoch: number) => string;

/** Grants a pending stream. The new epoch invalidates every earlier lease. */
export function grantLease(
  stream: Stream,
  holder: Holder,
  keyOf: LeaseKeys,
  now: number,
): Stream & {lease: Lease} {
  const epoch = stream.epoch + 1;
  const lease = {...holder, epoch};
  const began = {lease, lease_key: keyOf(stream, epoch), lease_shards: stream.total_shards};
  return {...stream, status: 'in_progress', epoch, ...began, updated_at: iso(now)};
}

export function saysItHas(worker: Worker, lease: WorkLease): boolean {
  return worker.work === leasedWork(lease) && worker.epoch === lease.epoch;
}

/** Consecutive leases of the worker without a stored shard, after its lease of the stream. Each grant has counted one. */
export function idleLeasesAfter({idle_leases}: Worker, {total_shards, lease_shards}: Stream): number {
  return total_shards > lease_shards ? 0 : idle_leases;
}

/** True if the worker's document and that of the stream or the job agree that the worker holds the lease. */
export function isHeldBy(leased: Stream | Job, worker: Worker | undefined): worker is Worker {
  if (!leased.lease || !worker) return false;
  const {name, incarnation, work, epoch} = worker;
  const isTheirs = isLeasedTo(leased, {worker: name, incarnation});
  return isTheirs && work === leasedWork(leased) && epoch === leased.lease.epoch;
}

/** True if the worker has not renewed its lease for too long: it is silent, or its host restarted without the lease. */
export function hasRunOut(worker: Worker, lease_s: number, served: Served): boolean {
  return worker.work !== null && isServedFor(served, worker.claimed_at ?? worker.phase_since_at, lease_s);
}

/** Revokes the lease of the stream. Stored shards still count. */
export function revokeLease(stream: Stream, now: number): Stream {
  if (stream.status !== 'in_progress') return stream;
  return {...stream, status: 'pending', lease: null, updated_at: iso(now)};
}

/**
 * Revokes the lease of a worker that died. A preemption is no fault of the stream.
 * A stream may kill or hang its agent, for example by a record too large for memory, so silence and hanging count as faults.
 */
export function freeFromDead(stream: Stream, worker: string, death: Death | undefined, now: number): Stream {
  const free = revokeLease(stream, now);
  const isSuspect = death?.kind === 'silent' || death?.kind === 'hung';
  const by = stream.lease;
  return isSuspect && by && free !== stream
    ? blame(free, by, `${worker} died while working on it: ${death.cause}`)
    : free;
}

/**
 * Writes a stream that lost its lease. If it failed because of its machines, an event says so and its run `parent` counts it.
 * `parent` is undefined if the document of the run is invalid.
 */
export function returnedStream(
  free: Stream,
  parent: Run | undefined,
  now: number,
): Pick<RequestWrites, 'stream' | 'breaker' | 'events'> {
  if (free.status !== 'failed') return {stream: free};
  const {run, stream, epoch, faults, last_error} = free;
  const text = `Stream ${run}/${stream} failed after ${faults} machines in a row that stored nothing: ${last_error}; retry revives it`;
  return {
    stream: free,
    ...(parent ? {breaker: {before: parent, after: afterMachineFailedStream(parent, stream, now)}} : {}),
    events: [{kind: 'stream', run, stream, epoch, text}],
  };
}

/** Part of a reason: the stream may have caused the restart of its worker. */
export const RESTARTED = 'restarted in the middle of it';

/**
 * Revokes the lease of a worker whose node still exists: the worker requests work again, or its lease has expired.
 * The stream may have caused a restart of the worker, so a restart counts as a fault.
 */
export function freeFromLiving(stream: Stream, worker: Worker, now: number): Stream {
  const free = revokeLease(stream, now);
  const hasRestarted = worker.claimed_at === null;
  return hasRestarted && free !== stream
    ? blame(free, holderOf(worker), `${worker.name} ${RESTARTED}`)
    : free;
}

/**
 * The stream that a silent worker loses with its lease. If the worker ends, the stream is charged.
 * It is not charged while the worker is held, nor once it sends heartbeats again.
 */
export function suspectOf(worker: Worker, stream: Stream, lease_s: number, served: Served): Suspect | null {
  const {claimed_at, heartbeat_at} = worker;
  if (heartbeat_at === null) return null;
  const saysNothing = claimed_at !== null && msOf(heartbeat_at) <= msOf(claimed_at);
  const isSilent = saysNothing || isServedFor(served, heartbeat_at, lease_s);
  return isSilent ? suspectUntilHeard(worker, stream) : null;
}

/**
 * Suspects the stream of a worker that was not notified yet that its lease is over. Its next heartbeat clears the suspicion.
 * Null while Google repairs the node, and for a node that cannot work.
 */
export function suspectUntilHeard(worker: Worker, {total_shards}: Stream): Suspect | null {
  const {heartbeat_at, symptoms, work, epoch} = worker;
  const isUnderRepair = heartbeat_at === null || nodeStanding(worker) === 'mending';
  if (work === null || epoch === null || isUnderRepair || isBrokenBy(symptoms)) return null;
  return {work, epoch, total_shards};
}

/** Charges a fault to the stream that a silent worker lost, unless a shard was stored since. `why`: how the worker ended or restarted. */
export function chargeSuspect(stream: Stream, worker: Worker, why: string, now: number): Stream {
  const isOver = stream.status === 'completed' || stream.status === 'failed';
  if (isOver || stream.total_shards > (worker.suspect?.total_shards ?? 0)) return stream;
  const charged = blame(stream, holderOf(worker), `${worker.name} ${why}`);
  // The stream stays with its present worker until that worker ends or stores a shard.
  const {status} = stream.status === 'in_progress' ? stream : charged;
  return {...charged, status, updated_at: iso(now)};
}

/**
 * Releases the stream on behalf of its holder. Returns undefined if the claim is not the stream's lease.
 * A complete stream has no lease: the caller checks that the worker's document has the lease.
 * `kept_shards`: shards after a gap that the lease explains. A claim of `completed` without the final shard in the bucket is a failure.
 */
export function releaseLease(
  stream: Stream,
  claim: Claim,
  outcome: ReleaseOutcome,
  failure: Failure | null,
  now: number,
  kept_shards: readonly number[] = [],
): Stream | undefined {
  if (stream.status === 'completed') return stream;
  if (!holds(stream, claim)) return undefined;
  const free = {...revokeLease(stream, now), ended_epoch: claim.epoch, kept_shards: [...kept_shards]};
  switch (outcome) {
    case 'drained':
    case 'preempted':
      return free;
    case 'completed':
      return charge(
        free,
        claim,
        'the worker said that the stream is complete, but its final shard is not in the bucket',
      );
    case 'failed': {
      const reason = failure?.reason ?? 'the worker gave no reason';
      // An object of another writer is set aside; it is no fault of the stream.
      const isForeign = failure?.kind === 'stream' && failure.contradiction;
      if (failure?.kind === 'hub' || isForeign) return {...free, last_error: reason};
      if (failure?.kind !== 'infrastructure') return charge(free, claim, reason);
      // Many hosts may be bad. The losses of their zone limit further nodes; the stream is not charged.
      return isBadHost(reason) ? {...free, last_error: reason} : blame(free, claim, reason);
    }
    default:
      return outcome satisfies never;
  }
}

/** A count and the incarnations that it counts: one machine alone cannot fail a stream. */
function counted(count: number, by: readonly string[], {worker, incarnation}: Holder): [number, string[]] {
  const one = `${worker}/${incarnation}`;
  return by.includes(one) ? [count, [...by]] : [count + 1, [...by, one]];
}

/** Charges a failure to the stream. */
function charge(stream: Stream, by: Holder, reason: string): Stream {
  const [failures, failed_workers] = counted(stream.failures, stream.failed_workers, by);
  const status = failures >= MAX_FAILURES ? 'failed' : 'pending';
  return {...stream, failures, failed_workers, last_error: reason, status};
}

/** Charges a fault of a machine to the stream. */
function blame(stream: Stream, by: Holder, reason: string): Stream {
  const [faults, faulted_workers] = counted(stream.faults, stream.faulted_workers, by);
  const status = faults >= MAX_FAULTS ? 'failed' : 'pending';
  return {...stream, faults, faulted_workers, last_error: reason, status};
}

const holderOf = ({name, incarnation}: Worker): Holder => ({worker: name, incarnation});
