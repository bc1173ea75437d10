/** Reads the spec hashes of runs, which other documents need, and reopens ended runs. */

import {NO_MODEL_FAILURES, type Run} from '../../domain/records/run.ts';
import {withMark} from '../../domain/run/marks.ts';
import type {FrozenOutput} from '../../domain/stream/advance.ts';
import type {Transaction} from '../../ports/ports.ts';
import type {Services} from '../calls/services.ts';
import {runRecords} from './documents.ts';
import {recordEvent} from './event-log.ts';
import {openTaskAgain} from './tasks.ts';

const MOST_KNOWN = 1000;

/** Properties that all shards of a run share through its frozen spec. Cached, because every shard needs them. Undefined before the freeze. */
export async function frozenOutputOf(
  {frozenOutputs, store}: Services,
  run: string,
): Promise<FrozenOutput | undefined> {
  const cached = frozenOutputs.get(run);
  if (cached) return cached;
  const parent = await runRecords.get(store, run);
  const format = formatOf(parent?.spec);
  if (!parent?.spec_hash || format === undefined) return undefined;
  if (frozenOutputs.size >= MOST_KNOWN) frozenOutputs.clear();
  const known = {spec_hash: parent.spec_hash, format};
  frozenOutputs.set(run, known);
  return known;
}

export function formatOf(spec: Run['spec'] | undefined): string | undefined {
  return spec ? String(spec.format ?? 'safetensors') : undefined;
}

/** Throws if the run has another spec now: its documents and its manifest were deleted, and the run was started again. */
export async function assertSpecHash({frozenOutputs}: Services, tx: Transaction, run: string, known: string) {
  const parent = await runRecords.get(tx, run);
  if (parent?.spec_hash === known) return;
  frozenOutputs.delete(run);
  throw new Error(
    `Run ${run} has another spec than this process knew: the next delivery reads its shards again`,
  );
}

/** Reopens an ended run in the transaction that has read it. Returns false for a run in any other status. */
export function reopenRun(tx: Transaction, run: Run | undefined, why: string, now: number): boolean {
  if (run?.status !== 'completed' && run?.status !== 'failed') return false;
  runRecords.set(tx, withMark({...run, ...NO_MODEL_FAILURES, status: 'active', expired_at: null}, now));
  // The documents of its other streams are recreated from the bucket.
  if (run.expired_at !== null) openTaskAgain(tx, {task: 'register', run: run.run}, now);
  recordEvent(tx, {kind: 'run', run: run.run, text: `Run ${run.run} is active again: ${why}`}, now);
  return true;
}
