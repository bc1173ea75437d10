import {paths} from '../core/names.ts';
import {isRunnable, type Run} from '../core/run.ts';
import type {Deps} from './deps.ts';
import {runRecords, UNFINISHED} from './records.ts';

/** How many unfinished streams the runnable runs of each pool have. */
export async function unfinishedStreams(deps: Deps): Promise<Map<string, number>> {
  const unfinished = new Map<string, number>();
  for (const run of await openRuns(deps)) {
    if (!isRunnable(run)) continue;
    const count = await deps.store.count(paths.streams(run.run), [UNFINISHED]);
    unfinished.set(run.pool, (unfinished.get(run.pool) ?? 0) + count);
  }
  return unfinished;
}

export async function openRuns(deps: Deps): Promise<Run[]> {
  const open = await deps.store.query('runs', {
    where: [{field: 'status', op: 'in', value: ['active', 'paused']}],
  });
  return runRecords.parseAll(open, error => deps.log('ERROR', error.message));
}
