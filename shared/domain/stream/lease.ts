import type {Run} from '../run/run.ts';
import {iso, msOf} from '../time.ts';
import type {Death} from '../worker/liveness.ts';
import {isBadHost, isBrokenBy, nodeStanding} from '../worker/provider-states.ts';
import {isServedFor, type Served} from '../worker/served-time.ts';
import type {Suspect, Worker} from '../worker/worker.ts';
import type {Lease, Stream} from './stream.ts';
import {MAX_FAILURES, MAX_FAULTS} from './stream.ts';

export type Holder = {worker: string; incarnation: number};

/** What a worker shows to prove its lease. */
export type Claim = Holder & {epoch: number};

export type Outcome = 'completed' | 'drained' | 'preempted' | 'failed';

export type Failure = {kind: 'stream' | 'model' | 'infrastructure'; reason: string};

/** Whether the stream's lease, of whatever epoch, is out to this worker incarnation. */
export function isLeasedTo({lease}: Stream, holder: Holder): boolean {
  return lease?.worker === holder.worker && lease.incarnation === holder.incarnation;
}

export function holds(stream: Stream, claim: Claim): boolean {
  return stream.status === 'in_progress' && stream.lease?.epoch === claim.epoch && isLeasedTo(stream, claim);
}

/** A stream that nobody works on. */
export function isClaimable(stream: Stream): boolean {
  return stream.status === 'pending';
}

/** Grants a stream that nobody has; the new epoch makes every earlier lease of it worthless. */
export function grantLease(stream: Stream, holder: Holder, now: number): Stream & {lease: Lease} {
  const epoch = stream.epoch + 1;
  const lease = {...holder, epoch};
  return {...stream, status: 'in_progress', epoch, lease, updated_at: iso(now)};
}

/** Whether the worker's document says that it has this lease of the stream. */
export function saysItHas(worker: Worker, work: {run: string; stream: string; epoch: number}): boolean {
  return worker.work === `${work.run}/${work.stream}` && worker.epoch === work.epoch;
}

/** Whether the stream's lease is out to this worker, as the worker's document says too. */
export function isHeldBy(stream: Stream, worker: Worker | undefined): boolean {
  if (!stream.lease || !worker) return false;
  const {epoch} = stream.lease;
  const isTheirs = isLeasedTo(stream, {worker: worker.name, incarnation: worker.incarnation});
  return isTheirs && saysItHas(worker, {run: stream.run, stream: stream.stream, epoch});
}

/** Whether the worker has not claimed its lease for too long: it is silent, or its host restarted and forgot the lease. */
export function hasRunOut(worker: Worker, lease_s: number, served: Served): boolean {
  return worker.work !== null && isServedFor(served, worker.claimed_at ?? worker.phase_since_at, lease_s);
}

/** Takes the stream back from whoever has it; the work stored so far stays counted. */
export function revokeLease(stream: Stream, now: number): Stream {
  if (stream.status !== 'in_progress') return stream;
  return {...stream, status: 'pending', lease: null, updated_at: iso(now)};
}

/**
 * Its worker died. A node that was taken away says nothing about the stream; an agent that fell silent or stood still may have
 * been killed by it, as a record that needs more memory than there is does, so it counts among the faults.
 */
export function freeFromDead(stream: Stream, worker: string, death: Death | undefined, now: number): Stream {
  const free = revokeLease(stream, now);
  const isSuspect = death?.kind === 'silent' || death?.kind === 'hung';
  return isSuspect && free !== stream ? blame(free, `${worker} died at work on it: ${death.cause}`) : free;
}

/** A worker that sets up again may have been brought down by its stream. */
export const RESTARTED = 'restarted in the middle of it';

/**
 * Takes the stream from a worker that still has a node: the worker asks for the stream again, or its lease has run out. A worker
 * that restarted in the middle of the stream may have been brought down by the stream, so the stream is charged a fault.
 */
export function freeFromLiving(stream: Stream, worker: Worker, now: number): Stream {
  const free = revokeLease(stream, now);
  const hasRestarted = worker.claimed_at === null;
  return hasRestarted && free !== stream ? blame(free, `${worker.name} ${RESTARTED}`) : free;
}

/**
 * The stream that a silent worker loses with its lease. It is charged when the worker ends, and not while the worker is held or
 * speaks again. Null where Google repairs the node, or where the node could not work at all.
 */
export function suspectOf(
  worker: Worker,
  {total_shards}: Stream,
  lease_s: number,
  served: Served,
): Suspect | null {
  const {claimed_at, heartbeat_at, symptoms, work, epoch} = worker;
  const isUnderRepair = heartbeat_at === null || nodeStanding(worker) === 'mending';
  if (work === null || epoch === null || isUnderRepair || isBrokenBy(symptoms)) return null;
  const saysNothing = claimed_at !== null && msOf(heartbeat_at) <= msOf(claimed_at);
  const isSilent = saysNothing || isServedFor(served, heartbeat_at, lease_s);
  return isSilent ? {work, epoch, total_shards} : null;
}

/** Charges a fault to the stream that a silent worker lost, unless more of it was stored since. `why`: the worker ended or restarted. */
export function chargeSuspect(stream: Stream, worker: Worker, why: string, now: number): Stream {
  const isOver = stream.status === 'completed' || stream.status === 'failed';
  if (isOver || stream.total_shards > (worker.suspect?.total_shards ?? 0)) return stream;
  const charged = blame(stream, `${worker.name} ${why}`);
  // Another worker has it now, and ends or stores a shard before the stream is judged.
  const {status} = stream.status === 'in_progress' ? stream : charged;
  return {...charged, status, updated_at: iso(now)};
}

/**
 * The holder gives the stream back. `completed` is believed only when the bucket says so, which `withProgress` has
 * recorded before; a worker that claims it without the final shard has failed. Returns undefined when the lease is not its own.
 */
export function releaseLease(
  stream: Stream,
  claim: Claim,
  outcome: Outcome,
  failure: Failure | null,
  now: number,
): Stream | undefined {
  if (stream.status === 'completed') return stream;
  if (!holds(stream, claim)) return undefined;
  const free = revokeLease(stream, now);
  switch (outcome) {
    case 'drained':
    case 'preempted':
      return free;
    case 'completed':
      return charge(
        free,
        'the worker said that the stream is complete, but its final shard is not in the bucket',
      );
    case 'failed': {
      const reason = failure?.reason ?? 'the worker gave no reason';
      if (failure?.kind !== 'infrastructure') return charge(free, reason);
      // Of bad hosts there may be many: how fast they come is held by their zone's losses, and is none of the stream's doing.
      return isBadHost(reason) ? {...free, last_error: reason} : blame(free, reason);
    }
    default:
      return outcome satisfies never;
  }
}

function charge(stream: Stream, reason: string): Stream {
  const failures = stream.failures + 1;
  return {...stream, failures, last_error: reason, status: failures >= MAX_FAILURES ? 'failed' : 'pending'};
}

function blame(stream: Stream, reason: string): Stream {
  const faults = stream.faults + 1;
  return {...stream, faults, last_error: reason, status: faults >= MAX_FAULTS ? 'failed' : 'pending'};
}

/** A stream that could be leased, with what decides between several. */
export type Candidate = {
  run: string;
  spec_hash: string;
  model: string;
  priority: number;
  run_created_at: string;
  stream: string;
  /** The worker has it already, and does not know: its host restarted, or the answer that gave it was lost. */
  own: boolean;
};

/** What the worker has in memory: all of it for runs of the same spec, the weights for others of the same model. */
export type Loaded = {model: string; spec_hash: string} | null;

export function candidateOf(run: Run, stream: string, own = false): Candidate {
  const {run: name, spec, spec_hash, priority, created_at} = run;
  const model = String(spec?.model ?? '');
  return {run: name, spec_hash: spec_hash ?? '', model, priority, run_created_at: created_at, stream, own};
}

/**
 * Best first: its own, then priority (higher first), then the run that needs the least loading, then the older run, then the
 * index. Priority is what people said, so it comes before what a worker happens to have.
 */
export function byPreference(loaded: Loaded): (a: Candidate, b: Candidate) => number {
  const rank = (c: Candidate) => (c.spec_hash === loaded?.spec_hash ? 0 : c.model === loaded?.model ? 1 : 2);
  return (a, b) =>
    Number(b.own) - Number(a.own) ||
    b.priority - a.priority ||
    rank(a) - rank(b) ||
    a.run_created_at.localeCompare(b.run_created_at) ||
    a.run.localeCompare(b.run) ||
    Number(a.stream) - Number(b.stream);
}
