import {setTimeout as sleep} from 'node:timers/promises';
import {POLL_MS} from '../../client/cloud/send-message.ts';
import {CliError} from '../../client/text/errors.ts';
import {readTask, type Task, type TaskName, taskId} from '../../shared/control-plane/documents/tasks.ts';
import {paths} from '../../shared/domain/names.ts';
import type {Store} from '../../shared/ports/ports.ts';

/** Limit of waiting without progress: a run of many streams takes minutes, and so does the deletion of nodes without a document. */
const WAIT_FOR_TASK_S = 1800;

/** Waits for a task to end. `progress` gets each state of its document. Gives up when the task makes no progress. */
export async function resultOf(
  store: Store,
  name: TaskName,
  progress: (task: Task) => void,
): Promise<{outcome: string; reason: string}> {
  let [moved_ms, moved_at] = [Date.now(), ''];
  while (Date.now() - moved_ms < WAIT_FOR_TASK_S * 1000) {
    const task = await readTask(store, name);
    const reason = task?.result ?? null;
    if (task?.status === 'done' && reason !== null)
      return {outcome: reason.startsWith('refused: ') ? 'rejected' : 'applied', reason};
    if (task && task.updated_at !== moved_at) [moved_ms, moved_at] = [Date.now(), task.updated_at];
    if (task) progress(task);
    await sleep(POLL_MS);
  }
  throw new CliError(
    `${paths.task(taskId(name))} has made no progress for ${WAIT_FOR_TASK_S} s: read the log of the function on-task`,
  );
}
