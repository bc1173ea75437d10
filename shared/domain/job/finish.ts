/** The end of an attempt of a job, as its worker reports it. */
import {jobWork} from '../names.ts';
import type {Claim, Holder} from '../stream/lease.ts';
import {type Contradiction, contradictionEvent} from '../timeline.ts';
import {gaveBack} from '../worker/heartbeat.ts';
import {advise, isCurrent, type RequestDecision, type WorkerAnswer} from '../worker/requests.ts';
import type {Worker} from '../worker/worker.ts';
import type {Job, JobAttempt} from './job.ts';
import {endAttempt, holdsJob, type JobEnd} from './lifecycle.ts';

export type Finish = Holder & {
  lease: {job: string; epoch: number};
  contradiction?: Contradiction | null;
};

export function lostJob({worker, lease}: Finish): WorkerAnswer {
  return advise('stop', `${worker} does not hold job ${lease.job} any more`, 409);
}

/**
 * Records the end of the attempt, and asks for a tick: the pool may shrink, or the job waits again. A repeated report changes no
 * document, and asks for a tick too: the delivery before may have died before its wake.
 */
export function decideFinish(
  {job, worker}: {job: Job | undefined; worker: Worker | undefined},
  request: Finish,
  end: JobEnd,
  now: number,
): RequestDecision {
  const {lease, contradiction} = request;
  const claim = {...request, epoch: lease.epoch};
  const isHeld = job !== undefined && holdsJob(job, claim);
  const isKnown = job?.attempts.some(attempt => isReportOf(attempt, claim, end));
  const isAtWork =
    isCurrent(worker, request) && worker.work === jobWork(lease.job) && worker.epoch === lease.epoch;
  // A deleted job frees its worker.
  if (!isHeld && !isKnown && !(isAtWork && job === undefined)) return {answer: lostJob(request)};
  const fault = end.cause === 'machine' ? end.error : null;
  return {
    answer: advise('continue', ''),
    writes: {
      ...(isHeld
        ? {endedJob: {before: job, after: endAttempt(job, end, worker?.usd_per_hour ?? null, now)}}
        : {}),
      worker: isAtWork ? gaveBack(worker, end.outcome, fault, now) : undefined,
      events:
        isHeld && contradiction
          ? [contradictionEvent(contradiction, request.worker, {...lease, worker: request.worker})]
          : [],
    },
    wakes: true,
  };
}

/** True if the attempt ended by an earlier delivery of this report. Another end is that of a lost lease. */
function isReportOf(attempt: JobAttempt, claim: Claim, {outcome, cause}: JobEnd): boolean {
  const {epoch, worker, incarnation} = claim;
  const isTheirs =
    attempt.epoch === epoch && attempt.worker === worker && attempt.incarnation === incarnation;
  return isTheirs && attempt.outcome === outcome && attempt.cause === cause;
}
