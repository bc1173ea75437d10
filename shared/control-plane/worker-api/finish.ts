/** Ends of attempts, as their workers report them. */
import {Rejected} from '../../contracts/errors.ts';
import {MAX_RESULT_BYTES} from '../../contracts/job-schemas.ts';
import type {JobAttempt} from '../../domain/job/job.ts';
import {endAttempt, holdsJob, type JobEnd} from '../../domain/job/lifecycle.ts';
import {jobFolder, jobWork} from '../../domain/names.ts';
import type {Claim} from '../../domain/stream/lease.ts';
import {heardFrom} from '../../domain/worker/heartbeat.ts';
import {NO_WORK} from '../../domain/worker/worker.ts';
import type {Deps} from '../deps.ts';
import {skipIfInvalid, workerRecords} from '../documents/documents.ts';
import {jobRecords, storeEnded} from '../documents/job-documents.ts';
import {wake} from '../wake.ts';
import {
  type Asked,
  contradicts,
  impostor,
  isCurrent,
  ok,
  requesterOf,
  say,
  speaksFor,
  type WorkerAnswer,
} from './answers.ts';

type Finish = Asked<'finish'>;

/** Name of a long result in the folder of its attempt. */
const RESULT = 'result.txt';

/** Records the end of the attempt, and asks for a tick: the pool may shrink, or the job waits again. A repeated report changes nothing. */
export async function finishJob(deps: Deps, request: Finish): Promise<WorkerAnswer> {
  const {job: id, epoch} = request.lease;
  const lost = {
    status: 409 as const,
    body: say('stop', `${request.worker} does not hold job ${id} any more`),
  };
  const known = await skipIfInvalid(deps.log, () => workerRecords.get(deps.store, request.worker));
  if (contradicts(known, request)) return impostor(deps, 'finish a job', request);
  if (known?.incarnation !== request.incarnation) return lost;
  if (!speaksFor(known, request)) return impostor(deps, 'finish a job', request);
  const end = endOf(deps, request);
  const holder = requesterOf(request);
  const answer = await deps.store.transaction(async (tx): Promise<WorkerAnswer> => {
    const now = deps.now();
    // An invalid document is as good as a deleted one: its worker becomes free.
    const job = await skipIfInvalid(deps.log, () => jobRecords.get(deps, tx, id));
    const worker = await workerRecords.get(tx, request.worker);
    const isHeld = job !== undefined && holdsJob(job, {...holder, epoch});
    const isKnown = job?.attempts.some(each => isReportOf(each, {...holder, epoch}, end));
    const isAtWork = isCurrent(worker, request) && worker.work === jobWork(id) && worker.epoch === epoch;
    if (!isHeld && !isKnown && !(isAtWork && job === undefined)) return lost;
    if (isHeld) storeEnded(deps, tx, job, endAttempt(job, end, worker?.usd_per_hour ?? null, now), now);
    if (isAtWork) {
      const isBroken = end.cause === 'machine' && end.error !== null;
      const fault = isBroken ? (end.error?.slice(0, 2000).toWellFormed() ?? null) : worker.fault;
      const activity = request.outcome === 'preempted' ? 'preempted' : 'idle';
      workerRecords.set(tx, {...heardFrom(worker, {...NO_WORK, activity}, now), fault});
    }
    return ok(say('continue', ''));
  });
  // A repeated report wakes too: the delivery before it may have died before its wake.
  if (answer.status === 200) await wake(deps.bus);
  return answer;
}

/** True if the attempt ended by an earlier delivery of this report. Another end is that of a lost lease. */
function isReportOf(attempt: JobAttempt, claim: Claim, {outcome, cause}: JobEnd): boolean {
  const {epoch, worker, incarnation} = claim;
  const isTheirs =
    attempt.epoch === epoch && attempt.worker === worker && attempt.incarnation === incarnation;
  return isTheirs && attempt.outcome === outcome && attempt.cause === cause;
}

function endOf(deps: Deps, request: Finish): JobEnd {
  const {lease, outcome, cause, error, exit_code, result, result_object, has_artifacts, ran} = request;
  if (Buffer.byteLength(result ?? '') > MAX_RESULT_BYTES)
    throw new Rejected(
      `the result has more than ${MAX_RESULT_BYTES} bytes: store it as ${RESULT} in the bucket`,
    );
  const folder = jobFolder(lease.job, lease.epoch);
  if (result_object !== null && result_object !== `${folder}${RESULT}`)
    throw new Rejected(`the result of this attempt is stored as ${folder}${RESULT}, not as another object`);
  const at = (name: string) => `gs://${deps.objects.bucket}/${folder}${name}`;
  return {
    outcome,
    cause: outcome === 'completed' ? null : (cause ?? (outcome === 'failed' ? 'exit' : outcome)),
    error: outcome === 'completed' ? null : (error ?? null),
    ...{exit_code, result, ran},
    result_path: result_object === null ? null : at(RESULT),
    artifacts_path: has_artifacts ? at('artifacts/') : null,
  };
}
