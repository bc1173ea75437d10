/** The end of an attempt of a job on one host, as its agent reports it. */

import {withLaggard} from '../job/laggard.ts';
import {endProcess, type JobEnd, processOf} from '../job/lifecycle.ts';
import {jobWork} from '../names.ts';
import type {Job, JobAttempt} from '../records/job.ts';
import {type Worker, withoutWork} from '../records/worker.ts';
import {type Claim, type Holder, holds} from '../stream/lease.ts';
import {type Contradiction, contradictionEvent} from '../timeline.ts';
import {FIRST_HOST} from '../worker/hosts.ts';
import {gaveBack, lostToHost} from './heard-from.ts';
import {advise, isCurrent, type RequestDecision, type WorkerAnswer} from './requests.ts';

export type Finish = Holder & {
  host: number;
  lease: {job: string; epoch: number};
  contradiction?: Contradiction | null;
};

/** `others`: the workers of the other slices of the job. */
export type FinishState = {job: Job | undefined; worker: Worker | undefined; others: readonly Worker[]};

export function lostJob({worker, lease}: Finish): WorkerAnswer {
  return advise('stop', `${worker} does not hold job ${lease.job} any more`, 409);
}

/**
 * Records the end on the host and asks for a tick, because the pool may shrink or the job may wait again. A repeated report changes no
 * document and asks for a tick too: the first delivery may have died before it did.
 */
export function decideFinish(
  {job, worker, others}: FinishState,
  request: Finish,
  end: JobEnd,
  now: number,
): RequestDecision {
  const {lease, host, contradiction} = request;
  const claim = {worker: request.worker, incarnation: request.incarnation, epoch: lease.epoch};
  const isHeld = job !== undefined && holds(job, claim);
  const isKnown = job?.attempts.some(attempt => isReportOf(attempt, claim, end));
  const isAtWork =
    isCurrent(worker, request) && worker.work === jobWork(lease.job) && worker.epoch === lease.epoch;
  const fault = end.cause === 'machine' || end.cause === 'tpu' ? end.error : null;
  const freed = (of: Worker) =>
    host === FIRST_HOST ? gaveBack(of, end.outcome, fault, now) : lostToHost(of, host, fault);
  const answer = advise('continue', '');
  if (!isHeld || !job.lease) {
    // The job was deleted, so its worker becomes free.
    const isDeleted = isAtWork && job === undefined;
    if (!isKnown && !isDeleted) return {answer: lostJob(request)};
    return {answer, writes: {worker: isAtWork ? freed(worker) : undefined}, wakes: true};
  }
  const index = processOf(job.lease, claim, host);
  if (job.ends[index] !== undefined) return {answer, wakes: true};
  const told = withLaggard(end, job, worker ? [worker, ...others] : others);
  const after = endProcess({...job, lease: job.lease}, index, told, worker?.usd_per_hour ?? null, now);
  const about = {...lease, worker: request.worker};
  const events = contradiction ? [contradictionEvent(contradiction, request.worker, about)] : [];
  if (after.lease !== null) return {answer, writes: {job: after, events}, wakes: true};
  return {
    answer,
    writes: {
      endedJob: {before: job, after},
      worker: isAtWork ? freed(worker) : undefined,
      members: others.map(withoutWork),
      events,
    },
    wakes: true,
  };
}

/** True if an earlier delivery of this report ended the attempt. Any other end means that the lease was lost. */
function isReportOf(attempt: JobAttempt, claim: Claim, {outcome, cause}: JobEnd): boolean {
  const {epoch, worker, incarnation} = claim;
  const isTheirs =
    attempt.epoch === epoch && attempt.worker === worker && attempt.incarnation === incarnation;
  return isTheirs && attempt.outcome === outcome && attempt.cause === cause;
}
