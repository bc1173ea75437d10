/** Totals of ended runs. Ticks sum up open runs only, so a task adds shards that are counted after the end. */
import {paths} from '../../domain/names.ts';
import {exact, isOpen, SUMMED} from '../../domain/run/run.ts';
import {iso} from '../../domain/time.ts';
import type {Deps} from './deps.ts';
import {runRecords} from './documents.ts';
import {isOpenTask, requestTask} from './tasks.ts';

/** Called after the end of a run and after each late shard, so the sum of the later call has both. One tick starts one sum. */
export async function requestTotals(deps: Deps, run: string): Promise<void> {
  const parent = await runRecords.get(deps.store, run);
  if (!parent || isOpen(parent)) return;
  // A task at work begins again: it may have read before the shard was counted.
  await requestTask(deps, {task: 'totals', run}, task => isOpenTask(task) && task.busy_until_at === null);
}

/** Adds late shards to the totals of an ended run. A rebuild may also find fewer shards: `isRebuilt` stores any other sums. */
export async function updateTotals(
  {store, now}: Pick<Deps, 'store' | 'now'>,
  run: string,
  isRebuilt = false,
): Promise<void> {
  const parent = await runRecords.get(store, run);
  if (!parent || isOpen(parent)) return;
  const sums = exact(await store.sum(paths.streams(run), SUMMED));
  await store.transaction(async tx => {
    const current = await runRecords.get(tx, run);
    if (!current || isOpen(current)) return;
    if (isRebuilt ? sums.total_shards === current.total_shards : sums.total_shards <= current.total_shards)
      return;
    runRecords.set(tx, {...current, ...sums, updated_at: iso(now())});
  });
}
