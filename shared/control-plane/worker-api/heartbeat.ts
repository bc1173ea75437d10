import {holdsJob} from '../../domain/job/lifecycle.ts';
import {jobWork, parseWorkerName} from '../../domain/names.ts';
/** Heartbeats: a worker proves that it lives, reports its progress, and receives its next action. */
import {isOpen, type Run} from '../../domain/run/run.ts';
import {chargeSuspect, holds, RESTARTED} from '../../domain/stream/lease.ts';
import {iso} from '../../domain/time.ts';
import {heardFrom} from '../../domain/worker/heartbeat.ts';
import {nodeStanding} from '../../domain/worker/provider-states.ts';
import {NO_WORK, type Worker} from '../../domain/worker/worker.ts';
import type {Transaction} from '../../ports.ts';
import {poolOf} from '../caches/pool-cache.ts';
import type {Deps} from '../deps.ts';
import {runRecords, skipIfInvalid, streamRecords, workerRecords} from '../documents/documents.ts';
import {jobRecords} from '../documents/job-documents.ts';
import {returnStream, runOfFailed, suspectedBy} from '../documents/lease-documents.ts';
import {
  type Asked,
  contradicts,
  heartbeatOf,
  impostor,
  isAhead,
  isCurrent,
  notWanted,
  ok,
  requesterOf,
  say,
  speaksFor,
  unknown,
  type WorkerAnswer,
} from './answers.ts';

type Heartbeat = Asked<'heartbeat'>;

/**
 * Reads and writes the worker's document alone: while it names the lease, the worker holds the lease. A heartbeat with no lease, or an
 * older lease, was sent before the worker heard of its last grant. Such a heartbeat releases nothing.
 */
export async function handleHeartbeat(deps: Deps, request: Heartbeat): Promise<WorkerAnswer> {
  const {lease_s} = deps.config;
  const claim = claimOf(request.lease);
  const heartbeat_s = heartbeatOf(deps, await poolOf(deps, poolIn(deps, request.worker)));
  return deps.store.transaction(async tx => {
    const now = deps.now();
    const worker = await skipIfInvalid(deps.log, () => workerRecords.get(tx, request.worker));
    if (contradicts(worker, request)) return impostor(deps, 'take a heartbeat', request);
    // The document was lost or restored: the worker stores the shard in hand, and waits until its node is deleted.
    if (!worker || isAhead(request, worker))
      return ok({...say(claim ? 'drain' : 'continue', unknown(request)), heartbeat_s});
    if (!isCurrent(worker, request)) return ok({...say('exit', notWanted(request)), heartbeat_s});
    if (!speaksFor(worker, request)) return impostor(deps, 'take a heartbeat', request);
    const says = claim !== null && worker.work === claim.work && worker.epoch === claim.epoch;
    const {isHeld, run} = claim ? await checkClaim(deps, tx, request, claim, says) : {isHeld: false};
    const drains = isHeld && run ? run.status === 'paused' : worker.drains;
    const {work, epoch, claimed_at} = isHeld && claim ? {...claim, claimed_at: iso(now)} : worker;
    // A deleted job leaves its worker without work.
    const kept = claim?.kind === 'job' && says && !isHeld ? NO_WORK : {work, epoch, drains};
    // A host that Google repaired boots again too: no evidence against its work.
    const wasUp = worker.phase !== 'booting' && nodeStanding(worker) !== 'mending';
    const hasRestarted = request.phase === 'setup' && wasUp;
    const suspected =
      hasRestarted && worker.fault === null ? await suspectedBy(deps.log, tx, worker) : undefined;
    const charged = suspected && chargeSuspect(suspected, worker, RESTARTED, now);
    const parent = charged && (await runOfFailed(deps.log, tx, charged));
    const report = {...NO_WORK, ...request.progress, activity: request.phase, ...kept};
    const heard = heardFrom(worker, {...report, claimed_at: hasRestarted ? null : claimed_at}, now);
    workerRecords.set(tx, withReport(heard, request, now));
    if (charged && charged !== suspected) returnStream(deps.log, tx, charged, undefined, now, parent);
    const lease_expires_at = isHeld ? iso(now + lease_s * 1000) : null;
    const {execs, source_version} = heard;
    return ok({
      ...verdict(claim, heard, isHeld, run),
      ...{lease_expires_at, heartbeat_s, execs, source_version},
    });
  });
}

/** A heartbeat without a report leaves the last report. */
function withReport(worker: Worker, {source_report}: Heartbeat, now: number): Worker {
  return source_report ? {...worker, source_report: {...source_report, at: iso(now)}} : worker;
}

/** Pool of the worker, by its name: the document is read later, in the transaction. */
function poolIn({config}: Deps, worker: string): string {
  return parseWorkerName(worker)?.pool ?? config.pool.pool;
}

/** The work that a request claims, as the document of its worker names it. */
type Claim = {work: string; epoch: number} & (
  | {kind: 'stream'; run: string; stream: string}
  | {kind: 'job'; job: string}
);

function claimOf(lease: Heartbeat['lease']): Claim | null {
  if (!lease) return null;
  if ('job' in lease) return {kind: 'job', work: jobWork(lease.job), ...lease};
  return {kind: 'stream', work: `${lease.run}/${lease.stream}`, ...lease};
}

/**
 * True if the worker holds the lease. `says`: its document has the lease, which is enough for a stream. A document that was edited is
 * compared with that of the stream. A job may have been deleted by a person, so its document is read each time.
 */
async function checkClaim(
  deps: Deps,
  tx: Transaction,
  request: Heartbeat,
  claim: Claim,
  says: boolean,
): Promise<{isHeld: boolean; run?: Run | undefined}> {
  const mine = {...requesterOf(request), epoch: claim.epoch};
  if (claim.kind === 'job') {
    const job = await skipIfInvalid(deps.log, () => jobRecords.get(deps, tx, claim.job));
    return {isHeld: job !== undefined && holdsJob(job, mine)};
  }
  if (says) return {isHeld: true};
  const stream = await streamRecords.get(tx, claim.run, claim.stream);
  const run = await runRecords.get(tx, claim.run);
  return {isHeld: stream !== undefined && run !== undefined && isOpen(run) && holds(stream, mine), run};
}

function verdict(claim: Claim | null, worker: Worker, isHeld: boolean, run: Run | undefined) {
  if (claim && !isHeld) return say('stop', `the lease of ${claim.work} is over: ${whyOver(claim, run)}`);
  if (worker.phase === 'draining') return say(claim ? 'drain' : 'exit', notWanted(worker));
  if (isHeld && worker.drains && claim?.kind === 'stream') return say('drain', `run ${claim.run} is paused`);
  return say('continue', '');
}

function whyOver({kind}: Claim, run: Run | undefined): string {
  if (kind === 'job') return 'it has ended, or another worker runs it';
  if (!run || isOpen(run)) return 'another worker holds it, or it was released';
  return `the run is ${run.status}`;
}
