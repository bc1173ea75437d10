import type {Death} from './death.ts';
import {isBadHost, isBrokenBy, nodeStanding} from './provider.ts';
import type {Run} from './run.ts';
import type {Lease, Stream} from './stream.ts';
import {MAX_FAILURES, MAX_FAULTS} from './stream.ts';
import {isOlderThan, iso, msOf} from './time.ts';
import type {Worker} from './worker.ts';

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

/** Whether the worker has not said for too long that it has its lease: it is silent, or has begun anew and forgotten it. */
export function hasRunOut(worker: Worker, lease_s: number, now: number): boolean {
  return worker.work !== null && isOlderThan(worker.claimed_at ?? worker.phase_since_at, lease_s, now);
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

/**
 * Taken back from a worker that lives: it asks anew for what it has, or its lease has run out. One that begins anew in the midst of it,
 * or says nothing any more, may have been brought down by it, with its whole host, and would be again for ever: that counts among the
 * faults.
 */
export function freeFromLiving(
  stream: Stream,
  worker: Worker,
  why: 'it asks' | 'it ran out',
  now: number,
): Stream {
  const free = revokeLease(stream, now);
  const hasBegunAnew = worker.claimed_at === null ? 'began anew in the midst of it' : undefined;
  const suspicion = hasBegunAnew ?? (why === 'it ran out' ? silenceOf(worker) : undefined);
  return suspicion && free !== stream ? blame(free, `${worker.name} ${suspicion}`) : free;
}

/** What counts of a worker whose lease has run out, unless Google has it in hand or it could not have worked at all. */
function silenceOf(worker: Worker): string | undefined {
  const {claimed_at, heartbeat_at, symptoms} = worker;
  // Since Google has mended it, it has not been heard yet.
  const isMended = heartbeat_at === null || nodeStanding(worker) === 'mending';
  if (isMended || isBrokenBy(symptoms)) return undefined;
  const isSilent = claimed_at !== null && msOf(heartbeat_at) <= msOf(claimed_at);
  return isSilent ? 'fell silent at work on it' : undefined;
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
