/** Heartbeats: a worker proves that it lives, says what it does, and hears what it is to do. */
import type {WorkerRequest} from '../../contracts/schemas.ts';
import {isOpen, type Run} from '../../domain/run/run.ts';
import {chargeSuspect, holds, RESTARTED, saysItHas} from '../../domain/stream/lease.ts';
import {iso} from '../../domain/time.ts';
import {heardFrom} from '../../domain/worker/heartbeat.ts';
import {nodeStanding} from '../../domain/worker/provider-states.ts';
import {NO_WORK, type Worker} from '../../domain/worker/worker.ts';
import type {Deps} from '../state/deps.ts';
import {runRecords, skipIfInvalid, streamRecords, workerRecords} from '../state/documents.ts';
import {returnStream, runOfFailed, suspectedBy} from '../state/lease-documents.ts';
import {holderOf, isAhead, isCurrent, notWanted, ok, unknown, type WorkerAnswer} from './worker-answers.ts';

type Heartbeat = Extract<WorkerRequest, {action: 'heartbeat'}>;

/**
 * Reads and writes the worker alone: while its document says that it has the lease, it has it. A beat that names no lease, or an
 * older one, was sent before the last grant was heard of, and takes nothing back.
 */
export async function handleHeartbeat(deps: Deps, request: Heartbeat): Promise<WorkerAnswer> {
  const {heartbeat_s, lease_s} = deps.config;
  const claim = request.lease;
  return deps.store.transaction(async tx => {
    const now = deps.now();
    const worker = await skipIfInvalid(deps.log, () => workerRecords.get(tx, request.worker));
    // Its document was lost, or is an earlier one: it stores the shard in hand, and then waits for its node to go.
    if (!worker || isAhead(request, worker))
      return ok({...say(claim ? 'drain' : 'continue', unknown(request)), heartbeat_s});
    if (!isCurrent(worker, request)) return ok({...say('exit', notWanted(request)), heartbeat_s});
    let isHeld = claim !== null && saysItHas(worker, claim);
    let run: Run | undefined;
    if (claim && !isHeld) {
      const stream = await streamRecords.get(tx, claim.run, claim.stream);
      run = await runRecords.get(tx, claim.run);
      // Its document was edited, and its stream's says that it has the lease.
      if (stream && run && isOpen(run)) isHeld = holds(stream, {...holderOf(request), epoch: claim.epoch});
    }
    const drains = isHeld && run ? run.status === 'paused' : worker.drains;
    const held = isHeld && claim ? {...claim, claimed_at: iso(now)} : undefined;
    const {work, epoch, claimed_at} = held ? {...held, work: `${held.run}/${held.stream}`} : worker;
    // A host that Google has mended boots again too: that says nothing about its work.
    const wasUp = worker.phase !== 'booting' && nodeStanding(worker) !== 'mending';
    const beginsAnew = request.phase === 'setup' && wasUp;
    const suspected =
      beginsAnew && worker.fault === null ? await suspectedBy(deps.log, tx, worker) : undefined;
    const charged = suspected && chargeSuspect(suspected, worker, RESTARTED, now);
    const parent = charged && (await runOfFailed(deps.log, tx, charged));
    const said = {...NO_WORK, ...request.progress, activity: request.phase, work, epoch, drains};
    const spoken = heardFrom(worker, {...said, claimed_at: beginsAnew ? null : claimed_at}, now);
    workerRecords.set(tx, spoken);
    if (charged && charged !== suspected) returnStream(tx, charged, undefined, now, parent);
    const lease_expires_at = isHeld ? iso(now + lease_s * 1000) : null;
    return ok({...verdict(request, spoken, isHeld, run), lease_expires_at, heartbeat_s});
  });
}

function verdict(request: Heartbeat, worker: Worker, isHeld: boolean, run: Run | undefined) {
  if (request.lease && !isHeld)
    return say('stop', `the lease of ${request.lease.run}/${request.lease.stream} is over: ${whyOver(run)}`);
  if (worker.phase === 'draining') return say(request.lease ? 'drain' : 'exit', notWanted(request));
  if (isHeld && worker.drains) return say('drain', `run ${request.lease?.run} is paused`);
  return say('continue', '');
}

function whyOver(run: Run | undefined): string {
  if (!run || isOpen(run)) return 'another worker has it, or it was given back';
  return `the run is ${run.status}`;
}

export function say(action: 'continue' | 'drain' | 'stop' | 'exit', reason: string) {
  return {action, reason, lease_expires_at: null as string | null};
}
