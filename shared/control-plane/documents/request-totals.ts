import {isOpen, type Run} from '../../domain/run/run.ts';
import type {Transaction} from '../../ports.ts';
import type {Deps} from '../deps.ts';
import {runRecords} from './documents.ts';
import {isOpenTask, isTaskMissing, requestTask, type Task} from './tasks.ts';

/** True for an open task that no delivery works on. A task at work may have read the streams before the shard counted. */
const isWaiting = (task: Task) => isOpenTask(task) && task.busy_until_at === null;

/**
 * Requests the totals of an ended run, because ticks count open runs only. Called after the end of a run and after each late shard, so
 * the later call sees both. One tick starts one count.
 */
export async function requestTotals(deps: Deps, run: string): Promise<void> {
  const parent = await runRecords.get(deps.store, run);
  if (!parent || isOpen(parent)) return;
  await requestTask(deps, {task: 'totals', run}, isWaiting);
}

/** True if the transaction must open the task of the totals: the run has ended. Called before its first write. */
export async function needsTotals(tx: Transaction, parent: Run | undefined): Promise<boolean> {
  if (!parent || isOpen(parent)) return false;
  return isTaskMissing(tx, {task: 'totals', run: parent.run}, isWaiting);
}
