import {parseJobWork} from '../../domain/names.ts';
import type {Pool} from '../../domain/records/pool.ts';
import {isAlive, type Worker} from '../../domain/records/worker.ts';
import {decideJoin, type JoinDecision} from '../../domain/requests/grant-job.ts';
import {askedForWork, heardFromHost} from '../../domain/requests/heard-from.ts';
import {advise, isCurrent, notWantedText, ok} from '../../domain/requests/requests.ts';
import {retryIn} from '../../domain/stream/spread.ts';
import {FIRST_HOST, unreadyHosts} from '../../domain/worker/hosts.ts';
import {poolOf} from '../caches/pool-cache.ts';
import type {Deps} from '../deps.ts';
import {workerRecords} from '../documents/documents.ts';
import {jobOf, membersOf} from '../documents/job-documents.ts';
import {holdsWork} from '../documents/lease-documents.ts';
import {type AgentRequest, askerOf, heartbeatOf, jobSettingsOf, waitFor} from './answers.ts';
import {checked} from './authenticate.ts';
import {grantWaitingJob} from './grant-job.ts';
import {failsForWholePool, grantStream} from './grant-stream.ts';
import {transact} from './write.ts';

/** Seconds until a worker asks again after others were faster. Without any work it waits `poll_s`. */
const SOON_S = [2, 5] as const;

/** Time for which the workers of a pool share a search that found nothing: a share of the time between two requests of a worker. */
const MOST_SHARED_MS = 2000;
const SHARE_OF_POLL = 0.1;

type Asked = {deps: Deps; worker: Worker; request: AgentRequest<'lease'>; asker: string};

/** Answers with work, or with the time of the next request. Jobs come first, because people wait for them. */
export const answerLease = checked('lease', async (deps, worker, request) => {
  const asked = {deps, worker, request, asker: askerOf(request, deps.now())};
  const joined = await joinSlice(asked);
  return {answer: joined ?? (await refuse(asked)) ?? (await waitUntilReady(asked)) ?? (await search(asked))};
});

async function joinSlice({deps, worker, request}: Asked) {
  if (parseJobWork(worker.work) === undefined && request.host === FIRST_HOST) return undefined;
  const joined = await answerJoin(deps, request, await poolOf(deps, worker.pool));
  return joined && ok(joined);
}

/** Ends a worker that drains, and makes one wait that is being replaced. */
async function refuse(asked: Asked) {
  const {name, incarnation, phase, recreate, fault} = asked.worker;
  if (phase === 'draining') return advise('exit', notWantedText(name, incarnation));
  return recreate || fault !== null ? wait(asked, `${name} is being replaced`) : undefined;
}

async function waitUntilReady({deps, worker, request, asker}: Asked) {
  const why = whyNotReady(worker);
  if (why === undefined) return undefined;
  await recordRequest(deps, request);
  return soon(asker, why);
}

function whyNotReady(worker: Worker): string | undefined {
  const {name, host_count, work} = worker;
  if (!isAlive(worker)) return `${name} counts as READY from now on: ask again`;
  const unready = unreadyHosts(worker).length;
  return unready > 0 && work === null
    ? `${host_count - unready} of ${host_count} hosts are ready`
    : undefined;
}

/** Workers of a pool share for a moment the result that there is no work. */
async function search(asked: Asked) {
  const {deps, worker, request, asker} = asked;
  const pool = await poolOf(deps, worker.pool);
  const began_ms = deps.now();
  const shared_ms = Math.min(MOST_SHARED_MS, SHARE_OF_POLL * 1000 * (pool ?? deps.config.pool).poll_s);
  const idle_ms = deps.idlePools.get(worker.pool) ?? Number.NEGATIVE_INFINITY;
  // A search dated in the future was made before the clock was set back.
  const isKnownIdle = idle_ms <= began_ms && began_ms - idle_ms < shared_ms;
  const isShared = isKnownIdle && worker.work === null;
  const work = isShared ? undefined : await searchWork(deps, worker, request, asker);
  if (!work && !isShared && (await failsForWholePool(deps, worker.pool, began_ms)))
    deps.idlePools.set(worker.pool, began_ms);
  if (work && 'order' in work) return ok({...work.order, heartbeat_s: heartbeatOf(deps, pool)});
  // Another write of this worker would slow the other workers that ask now.
  if (!work?.isRaced) await recordRequest(deps, request);
  return work ? soon(asker, work.soon) : wait(asked, 'no job waits, and every stream is leased or finished');
}

const soon = (asker: string, reason: string) =>
  ok({action: 'wait', retry_s: retryIn(...SOON_S, asker), reason});
const wait = async ({deps, worker, asker}: Asked, reason: string) =>
  waitFor((await poolOf(deps, worker.pool)) ?? deps.config.pool, asker, reason);

/**
 * Answers with the attempt that the slice has. If it has none, hosts other than host 0 wait until host 0 leases work, and change no lease.
 * Undefined: host 0 leases work itself.
 */
async function answerJoin(deps: Deps, request: AgentRequest<'lease'>, pool: Pool | undefined) {
  const settings = jobSettingsOf(deps, pool);
  const decision = await transact<JoinDecision>(deps, async (tx, now) => {
    const worker = await workerRecords.get(tx, request.worker);
    const job = worker && (await jobOf(deps, tx, worker));
    const others = job ? await membersOf(deps, tx, job, request.worker) : [];
    const join = decideJoin({job, worker, others}, request, settings, now);
    if (join || request.host === FIRST_HOST) return join ?? {};
    const waits = 'host 0 asks for the work of its slice';
    if (!isCurrent(worker, request)) return {waits};
    const heard = heardFromHost(worker, request.host, {phase: 'idle'}, deps.config.limits.silent_s, now);
    return {waits, writes: heard === worker ? {} : {worker: heard}};
  });
  if (decision.order) return {...decision.order, heartbeat_s: heartbeatOf(deps, pool)};
  if (decision.waits === undefined) return undefined;
  const retry_s = retryIn(...SOON_S, askerOf(request, deps.now()));
  return {action: 'wait', retry_s, reason: decision.waits};
}

async function searchWork(deps: Deps, worker: Worker, request: AgentRequest<'lease'>, asker: string) {
  const job = await grantWaitingJob(deps, worker, await poolOf(deps, worker.pool), asker);
  if (job && 'order' in job) return job;
  // A stream has one writer, so a slice of several hosts runs only jobs.
  if (worker.host_count > 1 || job?.isKept) return job;
  return (await grantStream(deps, worker, request, asker)) ?? job;
}

/** Records that the worker lives and has no work. A lease that it has not received yet stays. */
async function recordRequest(deps: Deps, request: AgentRequest<'lease'>): Promise<void> {
  await transact(deps, async (tx, now) => {
    const worker = await workerRecords.get(tx, request.worker);
    if (!isCurrent(worker, request) || (await holdsWork(deps, tx, worker))) return {};
    return {writes: {worker: askedForWork(worker, now)}};
  });
}
