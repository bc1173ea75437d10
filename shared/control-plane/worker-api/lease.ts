/** Requests for work: a waiting job of the worker's pool, or else a pending stream. */
import {retryIn} from '../../domain/stream/spread.ts';
import {askedForWork} from '../../domain/worker/heartbeat.ts';
import {isAlive, type Worker} from '../../domain/worker/worker.ts';
import {poolOf} from '../caches/pool-cache.ts';
import type {Deps} from '../deps.ts';
import {skipIfInvalid, workerRecords} from '../documents/documents.ts';
import {jobOf} from '../documents/job-documents.ts';
import {workOf} from '../documents/lease-documents.ts';
import {
  type Asked,
  contradicts,
  heartbeatOf,
  impostor,
  isAhead,
  isCurrent,
  notWanted,
  ok,
  speaksFor,
  unknown,
  type WorkerAnswer,
  waitFor,
} from './answers.ts';
import {grantWaitingJob} from './grant-job.ts';
import {grantStream} from './grant-stream.ts';

type LeaseRequest = Asked<'lease'>;

/** Seconds until a worker asks again where others were faster. Without any work it waits `poll_s`. */
const SOON_S = [2, 5] as const;

/** Answers with work, or with the time of the next request. Jobs come first, because people wait for them. */
export async function answerLease(deps: Deps, request: LeaseRequest): Promise<WorkerAnswer> {
  const known = await skipIfInvalid(deps.log, () => workerRecords.get(deps.store, request.worker));
  // Two requests of one worker start at two places: the documents at one place may be invalid.
  const asker = `${request.worker}#${request.incarnation} at ${deps.now()}`;
  const wait = (reason: string) => waitFor(deps, known?.pool ?? deps.config.pool.pool, asker, reason);
  const soon = (reason: string) => ok({action: 'wait', retry_s: retryIn(...SOON_S, asker), reason});
  if (contradicts(known, request)) return impostor(deps, 'lease work', request);
  if (!known || isAhead(request, known)) return wait(unknown(request));
  const worker = isCurrent(known, request) ? known : undefined;
  if (worker && !speaksFor(worker, request)) return impostor(deps, 'lease work', request);
  if (!worker || worker.phase === 'draining') return ok({action: 'exit', reason: notWanted(request)});
  if (worker.recreate || worker.fault !== null) return wait(`${worker.name} is being replaced`);
  if (!isAlive(worker)) {
    await recordRequest(deps, request);
    return soon(`${worker.name} counts as READY from now on: ask again`);
  }
  const job = await grantWaitingJob(deps, request, worker, asker);
  if (job && job !== 'taken') return granted(deps, worker, job);
  const stream = await grantStream(deps, request, worker, asker);
  if (stream && 'order' in stream) return granted(deps, worker, stream.order);
  // A record would be one more race.
  if (stream?.isRaced) return soon(stream.soon);
  await recordRequest(deps, request);
  if (stream) return soon(stream.soon);
  if (job === 'taken') return soon('others took the jobs: ask again');
  return wait('no job waits, and every stream is leased or finished');
}

async function granted(deps: Deps, {pool}: Worker, order: object): Promise<WorkerAnswer> {
  return ok({...order, heartbeat_s: heartbeatOf(deps, await poolOf(deps, pool))});
}

/** Records that the worker lives and has no work. */
function recordRequest(deps: Deps, request: LeaseRequest): Promise<void> {
  return deps.store.transaction(async tx => {
    const current = await workerRecords.get(tx, request.worker);
    if (!isCurrent(current, request)) return;
    // The worker has work: it has not heard of its lease yet, or this request is late.
    if ((await workOf(deps.log, tx, current)) ?? (await jobOf(deps, tx, current))) return;
    workerRecords.set(tx, askedForWork(current, deps.now()));
  });
}
