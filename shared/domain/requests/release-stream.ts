/** The release of a stream: its worker gives it back as completed, drained, preempted or failed. */

import {isOpen, type Run} from '../records/run.ts';
import type {Stream} from '../records/stream.ts';
import {notIdle, type Worker} from '../records/worker.ts';
import {afterMachineFailedStream} from '../run/machine-deaths.ts';
import {afterCertainFailure, afterModelMiss, isCertain, type ModelRetry} from '../run/model-failures.ts';
import {
  type Failure,
  type Holder,
  holds,
  idleLeasesAfter,
  type ReleaseOutcome,
  releaseLease,
  saysItHas,
} from '../stream/lease.ts';
import {contradictionEvent, type TimelineEvent} from '../timeline.ts';
import {gaveBack} from './heard-from.ts';
import {advise, isCurrent, type RequestDecision, type WorkerAnswer} from './requests.ts';

export type Release = Holder & {
  lease: {run: string; stream: string; epoch: number};
  outcome: ReleaseOutcome;
  failure: Failure | null;
};

/** `run`: only read if the sender holds the lease. */
export type ReleaseState = {
  stream: Stream | undefined;
  worker: Worker | undefined;
  run?: Run | undefined;
  /** Shards after a gap that the lease explains. */
  waiting?: readonly number[];
};

export function lostStream({worker, lease: {run, stream}}: Release): WorkerAnswer {
  return advise('stop', `${worker} does not hold the lease of ${run}/${stream} any more`, 409);
}

/** True if the document of the stream, or of the worker, says that the sender holds the lease. */
export function isHeldBySender({stream, worker}: ReleaseState, request: Release): boolean {
  if (stream && holds(stream, {...request, epoch: request.lease.epoch})) return true;
  return worker?.incarnation === request.incarnation && saysItHas(worker, request.lease);
}

/** The answer to a sender that does not hold the lease. A worker whose answer was lost repeats the release of a complete stream. */
export function answerWithoutLease(stream: Stream | undefined, request: Release): WorkerAnswer {
  return stream?.status === 'completed' ? advise('continue', '') : lostStream(request);
}

/** Releases the lease and asks for a tick: another run may need the worker, or no run does any more. */
export function decideRelease(
  state: ReleaseState,
  request: Release,
  retry: ModelRetry,
  now: number,
): RequestDecision {
  const {stream, worker, run} = state;
  const {lease, outcome, failure} = request;
  if (!isHeldBySender(state, request)) return {answer: answerWithoutLease(stream, request)};
  const claim = {...request, epoch: lease.epoch};
  const released = stream && releaseLease(stream, claim, outcome, failure, now, state.waiting);
  if (!released) return {answer: lostStream(request)};
  const isHeld = holds(stream, claim);
  const after = isHeld && run && failure ? runAfter(run, released, failure, retry, now) : run;
  const endsWithRun = after?.certain_failure && released.status !== 'completed';
  const next: Stream = endsWithRun ? {...released, status: 'failed'} : released;
  return {
    answer: advise('continue', ''),
    writes: {
      ...(next === stream ? {} : {stream: next}),
      ...(run && after && after !== run ? {breaker: {before: run, after}} : {}),
      worker: workerAfter(worker, request, next, now),
      events: isHeld ? eventsOf(request, next) : [],
    },
    wakes: true,
  };
}

/** The run after a failure of its stream. A failure that every stream would repeat ends the run. */
function runAfter(
  run: Run,
  {stream, status, total_shards}: Stream,
  {kind, reason}: Failure,
  retry: ModelRetry,
  now: number,
): Run {
  switch (kind) {
    case 'stream':
      return run;
    case 'model':
      return isOpen(run) && isCertain(run, total_shards) ? afterCertainFailure(run, reason, now) : run;
    case 'hub':
      return afterModelMiss(run, total_shards, reason, retry, now);
    case 'infrastructure':
      return status === 'failed' ? afterMachineFailedStream(run, stream, now) : run;
    default:
      return kind satisfies never;
  }
}

/** The worker without the stream. If its machine failed, the stream is suspect: the end of the worker will charge it. */
function workerAfter(worker: Worker | undefined, request: Release, stream: Stream, now: number) {
  const {lease, outcome, failure} = request;
  const work = `${lease.run}/${lease.stream}`;
  if (!isCurrent(worker, request) || worker.work !== work) return undefined;
  const fault = (failure?.kind === 'infrastructure' && failure.reason) || null;
  const isTold = worker.drains || worker.yields_to !== null || worker.phase === 'draining';
  const leased = isTold ? notIdle(worker) : worker;
  const free = {...gaveBack(leased, outcome, fault, now), idle_leases: idleLeasesAfter(leased, stream)};
  const {total_shards} = stream;
  return {...free, suspect: free.fault === null ? null : {work, epoch: lease.epoch, total_shards}};
}

function eventsOf(request: Release, stream: Stream): TimelineEvent[] {
  const {worker, failure} = request;
  const about = {...request.lease, worker};
  const released = {kind: 'stream' as const, ...about, text: releaseText(request, stream)};
  return failure?.contradiction
    ? [released, contradictionEvent(failure.contradiction, worker, about)]
    : [released];
}

function releaseText({worker, outcome, failure}: Release, {run, stream, status}: Stream): string {
  const text = `${worker} gave ${run}/${stream} back: ${outcome}`;
  if (!failure) return text;
  return `${text}, ${failure.reason}${status === 'failed' ? '; it has failed' : ''}`;
}
