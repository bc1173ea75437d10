import {isOpen} from '../../domain/run/run.ts';
import type {Deps} from './deps.ts';
import {runRecords} from './documents.ts';
import {isOpenTask, requestTask} from './tasks.ts';

/**
 * Requests the totals of an ended run, because ticks count open runs only. Called after the end of a run and after each late shard, so
 * the later call sees both. One tick starts one count.
 */
export async function requestTotals(deps: Deps, run: string): Promise<void> {
  const parent = await runRecords.get(deps.store, run);
  if (!parent || isOpen(parent)) return;
  // A task at work begins again: it may have read before the shard was counted.
  await requestTask(deps, {task: 'totals', run}, task => isOpenTask(task) && task.busy_until_at === null);
}
