import {Contradicted, Rejected} from '../../contracts/errors.ts';
import {completeSpec} from '../../contracts/spec/spec.ts';
import {outputsPrefix, parseOutputObject, specObject, stopObject} from '../../domain/names.ts';
import {pick} from '../../domain/records/field.ts';
import {endedAs, isOpen, LOST_AFTER_S, lostReason, newRun, type Run} from '../../domain/records/run.ts';
import {runChanges} from '../../domain/records/spec-keys.ts';
import {isOlderThan, iso} from '../../domain/time.ts';
import {type Contradiction, contradictionEvent} from '../../domain/timeline.ts';
import type {Deps} from '../deps.ts';
import {runRecords} from '../documents/documents.ts';
import {recordEvent} from '../documents/event-log.ts';
import {freezeSpec} from './run-manifest.ts';

/**
 * Returns the run with its frozen spec. A run with an invalid `run.json` is recorded as failed, and waits for a valid one. A run that a
 * message stopped stays stopped, even if its document was lost or comes from a backup.
 */
export async function ensureRun(deps: Deps, run: string): Promise<Run | undefined> {
  const stored = await runRecords.get(deps.store, run);
  if (stored?.spec) return isOpen(stored) && (await wasStopped(deps, run)) ? stopAgain(deps, run) : stored;
  let frozen: Awaited<ReturnType<typeof freezeSpec>> | undefined;
  let reason: string | null = null;
  let isLost = false;
  let contradiction: Contradiction | null = null;
  try {
    frozen = await freezeSpec(deps, run);
    isLost = await hadDocument(deps, run, frozen.frozen_at);
    if (isLost) reason = lostReason(run);
    else contradiction = frozen.contradiction;
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    reason = error.message;
    if (error instanceof Contradicted) contradiction = error.contradiction;
  }
  const isStopped = await wasStopped(deps, run);
  if (isStopped) reason = stoppedText(run);
  return deps.store.transaction(async tx => {
    const current = await runRecords.get(tx, run);
    if (current?.spec || current?.status === 'stopped') return current;
    if (current && current.reason === reason && !frozen) return current;
    const now = deps.now();
    const next: Run = {
      ...newRun(run, (frozen ?? completeSpec({}, deps.config)).placement, now, current),
      created_at: frozen?.frozen_at ?? iso(now),
      status: isStopped ? 'stopped' : isLost ? 'paused' : frozen ? 'active' : 'failed',
      paused_at: isLost ? iso(now) : null,
      stopped_at: isStopped ? iso(now) : null,
      reason,
      spec: frozen?.spec ?? null,
      spec_hash: frozen?.spec_hash ?? null,
      preemptions: isLost ? null : 0,
      ...(current && current.version > 0 ? pick(runChanges, current) : {}),
    };
    runRecords.set(tx, next);
    const text =
      reason ?? `Run ${run} begins: model ${frozen?.spec.model}, spec ${frozen?.spec_hash.slice(0, 12)}`;
    recordEvent(tx, {kind: frozen ? 'run' : 'rejected', run, object: specObject(run), text}, now);
    if (contradiction) recordEvent(tx, contradictionEvent(contradiction, 'the control plane', {run}), now);
    return next;
  });
}

async function wasStopped({objects}: Deps, run: string): Promise<boolean> {
  return (await objects.head(stopObject(run))) !== undefined;
}

function stoppedText(run: string): string {
  return `it was stopped: ${stopObject(run)} in the bucket says so`;
}

async function stopAgain(deps: Deps, run: string): Promise<Run | undefined> {
  return deps.store.transaction(async tx => {
    const current = await runRecords.get(tx, run);
    if (!current || !isOpen(current)) return current;
    const now = deps.now();
    const reason = stoppedText(run);
    const stopped: Run = {...endedAs('stopped', current, reason, now), stopped_at: iso(now)};
    runRecords.set(tx, stopped);
    recordEvent(tx, {kind: 'run', run, text: `Run ${run} is stopped: ${reason}`}, now);
    return stopped;
  });
}

/**
 * True if a run lost its document: it has a shard, or its spec was frozen over an hour ago. Such a run waits for an operator, because a
 * pause, a stop or a budget may have been lost with the document.
 */
async function hadDocument({now, objects}: Deps, run: string, frozen_at: string | null): Promise<boolean> {
  if (frozen_at !== null && isOlderThan(frozen_at, LOST_AFTER_S, now())) return true;
  const outputs = await objects.list(outputsPrefix(run), {limit: MOST_OUTPUTS});
  return outputs.some(({name}) => parseOutputObject(name) !== undefined);
}

/** Objects to search for a shard, because other objects may come before it. */
const MOST_OUTPUTS = 1000;
