/** Heartbeats: a worker proves that it lives, reports its progress, and receives its next action. */
import {isOpen, type Run} from '../../domain/run/run.ts';
import {chargeSuspect, holds, RESTARTED, saysItHas} from '../../domain/stream/lease.ts';
import {iso} from '../../domain/time.ts';
import {heardFrom} from '../../domain/worker/heartbeat.ts';
import {nodeStanding} from '../../domain/worker/provider-states.ts';
import {NO_WORK, type Worker} from '../../domain/worker/worker.ts';
import type {Deps} from '../state/deps.ts';
import {runRecords, skipIfInvalid, streamRecords, workerRecords} from '../state/documents.ts';
import {returnStream, runOfFailed, suspectedBy} from '../state/lease-documents.ts';
import {
  type Asked,
  contradicts,
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
} from '../state/worker-answers.ts';

type Heartbeat = Asked<'heartbeat'>;

/**
 * Reads and writes the worker's document alone: while it names the lease, the worker holds the lease. A heartbeat with no lease, or an
 * older lease, was sent before the worker heard of its last grant. Such a heartbeat releases nothing.
 */
export async function handleHeartbeat(deps: Deps, request: Heartbeat): Promise<WorkerAnswer> {
  const {heartbeat_s, lease_s} = deps.config;
  const claim = request.lease && 'run' in request.lease ? request.lease : null;
  return deps.store.transaction(async tx => {
    const now = deps.now();
    const worker = await skipIfInvalid(deps.log, () => workerRecords.get(tx, request.worker));
    if (contradicts(worker, request)) return impostor(deps, 'take a heartbeat', request);
    // The document was lost or restored: the worker stores the shard in hand, and waits until its node is deleted.
    if (!worker || isAhead(request, worker))
      return ok({...say(claim ? 'drain' : 'continue', unknown(request)), heartbeat_s});
    if (!isCurrent(worker, request)) return ok({...say('exit', notWanted(request)), heartbeat_s});
    if (!speaksFor(worker, request)) return impostor(deps, 'take a heartbeat', request);
    let isHeld = claim !== null && saysItHas(worker, claim);
    let run: Run | undefined;
    if (claim && !isHeld) {
      const stream = await streamRecords.get(tx, claim.run, claim.stream);
      run = await runRecords.get(tx, claim.run);
      // The worker's document was edited, and the stream's document still names the lease.
      if (stream && run && isOpen(run)) isHeld = holds(stream, {...requesterOf(request), epoch: claim.epoch});
    }
    const drains = isHeld && run ? run.status === 'paused' : worker.drains;
    const held = isHeld && claim ? {...claim, claimed_at: iso(now)} : undefined;
    const {work, epoch, claimed_at} = held ? {...held, work: `${held.run}/${held.stream}`} : worker;
    // A host that Google repaired boots again too: no evidence against its work.
    const wasUp = worker.phase !== 'booting' && nodeStanding(worker) !== 'mending';
    const hasRestarted = request.phase === 'setup' && wasUp;
    const suspected =
      hasRestarted && worker.fault === null ? await suspectedBy(deps.log, tx, worker) : undefined;
    const charged = suspected && chargeSuspect(suspected, worker, RESTARTED, now);
    const parent = charged && (await runOfFailed(deps.log, tx, charged));
    const report = {...NO_WORK, ...request.progress, activity: request.phase, work, epoch, drains};
    const heard = heardFrom(worker, {...report, claimed_at: hasRestarted ? null : claimed_at}, now);
    workerRecords.set(tx, heard);
    if (charged && charged !== suspected) returnStream(deps.log, tx, charged, undefined, now, parent);
    const lease_expires_at = isHeld ? iso(now + lease_s * 1000) : null;
    return ok({...verdict(request, heard, isHeld, run), lease_expires_at, heartbeat_s});
  });
}

function verdict(request: Heartbeat, worker: Worker, isHeld: boolean, run: Run | undefined) {
  const claim = request.lease && 'run' in request.lease ? request.lease : null;
  if (claim && !isHeld)
    return say('stop', `the lease of ${claim.run}/${claim.stream} is over: ${whyOver(run)}`);
  if (worker.phase === 'draining') return say(request.lease ? 'drain' : 'exit', notWanted(request));
  if (isHeld && worker.drains) return say('drain', `run ${claim?.run} is paused`);
  return say('continue', '');
}

function whyOver(run: Run | undefined): string {
  if (!run || isOpen(run)) return 'another worker holds it, or it was released';
  return `the run is ${run.status}`;
}
