/** Releases: a worker gives its stream back, complete, drained, preempted or failed. */
import {holds, releaseLease, saysItHas} from '../../domain/stream/lease.ts';
import type {Stream} from '../../domain/stream/stream.ts';
import {heardFrom} from '../../domain/worker/heartbeat.ts';
import {NO_WORK} from '../../domain/worker/worker.ts';
import type {Deps} from '../deps.ts';
import {runRecords, skipIfInvalid, streamRecords, workerRecords} from '../documents/documents.ts';
import {recordEvent} from '../documents/event-log.ts';
import {setMachineFailed} from '../documents/lease-documents.ts';
import {needsTotals} from '../documents/request-totals.ts';
import {openTask} from '../documents/tasks.ts';
import {advanceStream} from '../streams/advance-checkpoint.ts';
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

type Release = Asked<'release'>;

/** Releases the lease and asks for a tick: another run may need the worker, or no run does. */
export async function releaseStream(deps: Deps, request: Release): Promise<WorkerAnswer> {
  const {run, stream, epoch} = request.lease;
  const lost = {
    status: 409 as const,
    body: say('stop', `${request.worker} does not hold the lease of ${run}/${stream} any more`),
  };
  const known = await skipIfInvalid(deps.log, () => workerRecords.get(deps.store, request.worker));
  if (contradicts(known, request)) return impostor(deps, 'release a stream', request);
  // No document vouches for the secret: the lease, if there is one, ends without its worker.
  if (known?.incarnation !== request.incarnation) return lost;
  if (!speaksFor(known, request)) return impostor(deps, 'release a stream', request);
  const claim = {epoch, ...requesterOf(request)};
  // A claim of another worker's lease moves no checkpoint, opens no task and wakes no tick.
  if (!saysItHas(known, request.lease)) {
    const claimed = await streamRecords.get(deps.store, run, stream);
    if (!claimed || !holds(claimed, claim)) return isOver(claimed) ? ok(say('continue', '')) : lost;
  }
  await advanceStream(deps, run, stream);
  const {answer, isTheirs} = await deps.store.transaction(async tx => {
    const now = deps.now();
    const current = await streamRecords.get(tx, run, stream);
    const worker = await workerRecords.get(tx, request.worker);
    const held = current !== undefined && holds(current, claim);
    const isTheirs =
      held || (worker?.incarnation === request.incarnation && saysItHas(worker, request.lease));
    if (!isTheirs) return {answer: isOver(current) ? ok(say('continue', '')) : lost, isTheirs};
    const parent = await skipIfInvalid(deps.log, () => runRecords.get(tx, run));
    // The run may have ended while the worker held its stream.
    if (await skipIfInvalid(deps.log, () => needsTotals(tx, parent)))
      openTask(tx, {task: 'totals', run}, now);
    const next = current && releaseLease(current, claim, request.outcome, request.failure, now);
    if (!next) return {answer: lost, isTheirs};
    const {kind, reason} = request.failure ?? {};
    const isMachineFailed = kind === 'infrastructure' && held && next.status === 'failed';
    if (next !== current) streamRecords.set(tx, next);
    if (parent && isMachineFailed) setMachineFailed(deps.log, tx, parent, next, now);
    if (isCurrent(worker, request) && worker.work === `${run}/${stream}`) {
      // Another machine may succeed: this worker gets no work until it is replaced.
      const fault = kind === 'infrastructure' && reason ? reason.slice(0, 2000).toWellFormed() : worker.fault;
      const {total_shards} = next;
      const suspect = fault === null ? null : {work: worker.work, epoch, total_shards};
      workerRecords.set(tx, {...heardFrom(worker, idleReport(request), now), fault, suspect});
    }
    if (held)
      recordEvent(
        tx,
        {kind: 'stream', run, stream, worker: request.worker, epoch, text: releaseText(request, next)},
        now,
      );
    return {answer: ok(say('continue', '')), isTheirs};
  });
  if (isTheirs && answer.status === 200) await wake(deps.bus);
  return answer;
}

/** A worker repeats a release after a lost answer: a complete stream needs nothing more from it. */
function isOver(stream: Stream | undefined): boolean {
  return stream?.status === 'completed';
}

function idleReport(request: Release) {
  const activity = request.outcome === 'preempted' ? 'preempted' : 'idle';
  return {...NO_WORK, activity};
}

function releaseText(request: Release, stream: Stream): string {
  const text = `${request.worker} gave ${stream.run}/${stream.stream} back: ${request.outcome}`;
  if (!request.failure) return text;
  const end = stream.status === 'failed' ? '; it is parked' : '';
  return `${text}, ${request.failure.reason}${end}`;
}
