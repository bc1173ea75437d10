import {retryIn} from '../../domain/stream/spread.ts';
import {askedForWork} from '../../domain/worker/heartbeat.ts';
import {advise, isCurrent, notWantedText, ok, type RequestDecision} from '../../domain/worker/requests.ts';
import {isAlive, type Worker} from '../../domain/worker/worker.ts';
import {poolOf} from '../caches/pool-cache.ts';
import type {Deps} from '../deps.ts';
import {workerRecords} from '../documents/documents.ts';
import {holdsWork} from '../documents/lease-documents.ts';
import {type AuthenticatedRequest, askerOf, heartbeatOf, waitFor} from './answers.ts';
import {grantWaitingJob} from './grant-job.ts';
import {grantStream} from './grant-stream.ts';
import {transact} from './write.ts';

/** Seconds until a worker asks again where others were faster. Without any work it waits `poll_s`. */
const SOON_S = [2, 5] as const;

/** Answers with work, or with the time of the next request. Jobs come first, because people wait for them. */
export async function answerLease(
  deps: Deps,
  worker: Worker,
  request: AuthenticatedRequest<'lease'>,
): Promise<RequestDecision> {
  const {name, incarnation} = worker;
  if (worker.phase === 'draining') return {answer: advise('exit', notWantedText(name, incarnation))};
  const asker = askerOf(request, deps.now());
  const soon = (reason: string) => ({
    answer: ok({action: 'wait', retry_s: retryIn(...SOON_S, asker), reason}),
  });
  const isReplaced = worker.recreate || worker.fault !== null;
  if (!isReplaced && !isAlive(worker)) {
    await recordRequest(deps, request);
    return soon(`${name} counts as READY from now on: ask again`);
  }
  const pool = await poolOf(deps, worker.pool);
  const wait = (reason: string) => ({answer: waitFor(pool ?? deps.config.pool, asker, reason)});
  if (isReplaced) return wait(`${name} is being replaced`);
  const job = await grantWaitingJob(deps, worker, pool, asker);
  const work = job && 'order' in job ? job : ((await grantStream(deps, worker, request, asker)) ?? job);
  if (work && 'order' in work) return {answer: ok({...work.order, heartbeat_s: heartbeatOf(deps, pool)})};
  // Another write of this worker would slow the other workers that ask now.
  if (!work?.isRaced) await recordRequest(deps, request);
  return work ? soon(work.soon) : wait('no job waits, and every stream is leased or finished');
}

/** Records that the worker lives and has no work. A lease that it has not heard of yet stays. */
async function recordRequest(deps: Deps, request: AuthenticatedRequest<'lease'>): Promise<void> {
  await transact(deps, async (tx, now) => {
    const worker = await workerRecords.get(tx, request.worker);
    if (!isCurrent(worker, request) || (await holdsWork(deps, tx, worker))) return {};
    return {writes: {worker: askedForWork(worker, now)}};
  });
}
