import {type Pool, slotsFor} from '../../domain/fleet/pool.ts';
import {paths, workerIdOf} from '../../domain/names.ts';
import {isRunnable, type Run} from '../../domain/run/run.ts';
import {byPreference, candidateOf} from '../../domain/stream/lease.ts';
import {iso} from '../../domain/time.ts';
import type {Transaction} from '../../ports.ts';
import type {Deps} from '../state/deps.ts';
import {FAILED, runRecords, UNFINISHED} from '../state/documents.ts';
import {tell} from '../state/event-log.ts';

/**
 * What the runnable runs of a pool have left, those first that are served first: streams that any slot may work on, and slots that have
 * one which is theirs alone, with its run. A stream that the pool has no slot for waits for a larger one.
 */
export type Left = {open: {run: string; streams: number}[]; fixed: Map<string, string>};

export async function whatIsLeft(deps: Deps, pool: Pool): Promise<Left> {
  const left: Left = {open: [], fixed: new Map()};
  const runs = (await openRuns(deps)).filter(run => isRunnable(run) && run.pool === pool.pool);
  const served = byPreference(null);
  runs.sort((one, other) => served(candidateOf(one, ''), candidateOf(other, '')));
  for (const {run, ...of} of runs) {
    if (of.affinity === 'any')
      left.open.push({run, streams: await deps.store.count(paths.streams(run), [UNFINISHED])});
    else
      for (const {id} of await deps.store.query(paths.streams(run), {where: [UNFINISHED]}))
        for (const slot of slotsFor(pool, of, workerIdOf(id)) ?? [])
          if (!left.fixed.has(slot)) left.fixed.set(slot, run);
  }
  return left;
}

/** Whether a run is open whose streams are all done: a look closes it, and must come. */
export async function isAnyToClose(deps: Deps): Promise<boolean> {
  for (const {run, status} of await openRuns(deps)) {
    if ((await deps.store.count(paths.streams(run), [UNFINISHED])) > 0) continue;
    // A paused run with a failed stream stays open until a person resumes or stops it.
    if (status === 'paused' && (await deps.store.count(paths.streams(run), [FAILED])) > 0) continue;
    if ((await deps.store.count(paths.streams(run))) > 0) return true;
  }
  return false;
}

export async function openRuns(deps: Deps): Promise<Run[]> {
  const open = await deps.store.query('runs', {
    where: [{field: 'status', op: 'in', value: ['active', 'paused']}],
  });
  return runRecords.parseAll(open, error => deps.log('ERROR', error.message));
}

const MOST_KNOWN = 1000;

/** The hash of a run's spec, which is frozen: what every shard asks for is not worth a read each. */
export async function specHashOf(deps: Deps, run: string): Promise<string | undefined> {
  const known = deps.specs.get(run);
  if (known) return known;
  const found = await runRecords.get(deps.store, run);
  if (!found?.spec_hash) return undefined;
  if (deps.specs.size >= MOST_KNOWN) deps.specs.clear();
  deps.specs.set(run, found.spec_hash);
  return found.spec_hash;
}

/** Throws if the run has another spec since: its documents and its manifest were deleted, and it was begun anew. */
export async function assertSpecHash(deps: Deps, tx: Transaction, run: string, known: string): Promise<void> {
  const found = await runRecords.get(tx, run);
  if (found?.spec_hash === known) return;
  deps.specs.delete(run);
  throw new Error(`Run ${run} has another spec than this process knew: its shards are to be looked at again`);
}

/** Lets a run that has ended go on, in the transaction that has read it; false if it has not. Whoever calls switches the beat on. */
export function reopenRun(tx: Transaction, run: Run | undefined, why: string, now: number): boolean {
  if (run?.status !== 'completed' && run?.status !== 'failed') return false;
  runRecords.set(tx, {...run, status: 'active', updated_at: iso(now)});
  tell(tx, {kind: 'run', run: run.run, text: `Run ${run.run} is active again: ${why}`}, now);
  return true;
}
