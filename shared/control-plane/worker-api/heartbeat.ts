import {parseWorkerName} from '../../domain/names.ts';
import type {Worker} from '../../domain/records/worker.ts';
import {
  bootsAfterStart,
  decideHeartbeat,
  decideHostHeartbeat,
  hasRestarted,
} from '../../domain/requests/heartbeat.ts';
import {chargeSuspect, RESTARTED, saysItHas} from '../../domain/stream/lease.ts';
import {FIRST_HOST} from '../../domain/worker/hosts.ts';
import type {Transaction} from '../../ports/ports.ts';
import {poolOf} from '../caches/pool-cache.ts';
import type {Deps} from '../deps.ts';
import {runRecords, skipIfInvalid, streamRecords} from '../documents/documents.ts';
import {jobOf, jobRecords, membersOf} from '../documents/job-documents.ts';
import {runOfFailed, suspectedBy} from '../documents/lease-documents.ts';
import {type AgentRequest, heartbeatOf} from './answers.ts';
import {inTransaction} from './authenticate.ts';

type Heartbeat = AgentRequest<'heartbeat'>;

/** Handles a heartbeat. For a worker at work on a stream, it reads and writes only the worker's document. */
export const takeHeartbeat = inTransaction('heartbeat', async (deps, tx, {worker, request, now}) => {
  if (request.host !== FIRST_HOST) {
    const job = bootsAfterStart(worker, request) ? await jobOf(deps, tx, worker) : undefined;
    const others = job ? await membersOf(deps, tx, job, worker.name) : [];
    const {limits, region} = deps.config;
    return decideHostHeartbeat({worker, job, others}, request, now, {silent_s: limits.silent_s, region});
  }
  const claimed = await readClaimed(deps, tx, worker, request);
  const suspected = await readSuspected(deps, tx, worker, request, now);
  return decideHeartbeat({worker, ...claimed, ...suspected}, request, now, deps.config);
});

/** Interval of the heartbeats of the worker. The pool is in the worker's name; its document is read later, in the transaction. */
export async function heartbeatOfWorker(deps: Deps, {worker}: Heartbeat): Promise<number> {
  const pool = parseWorkerName(worker)?.pool ?? deps.config.pool.pool;
  return heartbeatOf(deps, await poolOf(deps, pool));
}

/**
 * Reads the claimed work. A person may have deleted a job. A worker whose document was edited may hold a stream. While the document of a job
 * is invalid, that of its worker proves the lease.
 */
async function readClaimed(deps: Deps, tx: Transaction, worker: Worker, {lease}: Heartbeat) {
  if (!lease) return {};
  const saysSo = saysItHas(worker, lease);
  if ('job' in lease) {
    const readJob = async () => ({job: await jobRecords.get(deps, tx, lease.job)});
    return saysSo ? ((await skipIfInvalid(deps.log, readJob)) ?? {isJobLeftAlone: true}) : readJob();
  }
  if (saysSo) return {};
  const stream = await streamRecords.get(tx, lease.run, lease.stream);
  return {stream, run: await runRecords.get(tx, lease.run)};
}

/** Reads the stream that is charged for a restart of its worker, and the run of a stream that the charge fails. */
async function readSuspected({log}: Deps, tx: Transaction, worker: Worker, request: Heartbeat, now: number) {
  if (!hasRestarted(worker, request) || worker.fault !== null) return {};
  const suspected = await suspectedBy(log, tx, worker);
  if (!suspected) return {};
  const charged = chargeSuspect(suspected, worker, RESTARTED, now);
  return {suspected, suspectedRun: await runOfFailed(log, tx, charged)};
}
