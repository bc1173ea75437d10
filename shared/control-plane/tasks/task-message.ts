/** Handles topic `tasks`: each message works on pages of one task for a while, then publishes the next message. */
import {Rejected} from '../../contracts/errors.ts';
import type {TaskMessage} from '../../contracts/messages/schemas.ts';
import {wake} from '../calls/wake.ts';
import type {Deps} from '../deps.ts';
import {claimTask, publishTask, saveTask, type Task, type TaskName, taskId} from '../documents/tasks.ts';
import {sweepCheckpoint} from '../jobs/sweep-checkpoints.ts';
import {auditReported} from '../streams/advance-checkpoint.ts';
import {STEPS, type Step} from './task-steps.ts';

const WORK_MS = 40_000;

export async function handleTaskMessage(deps: Deps, message: TaskMessage): Promise<void> {
  if (message.task === 'audit') await auditReported(deps, message);
  else if (message.task === 'sweep') await sweepCheckpoint(deps, message.job);
  else await workOn(deps, {task: message.task, run: message.run ?? null});
}

async function workOn(deps: Deps, name: TaskName): Promise<void> {
  const until_ms = deps.now() + WORK_MS;
  let task = await claimTask(deps, name);
  while (task) {
    const step: Step = await stepOrWait(deps, task, until_ms);
    if ('result' in step) {
      await saveTask(deps, task, {status: 'done', result: step.result, busy_until_at: null});
      deps.log('INFO', `Task ${taskId(name)}: ${step.result}`, {run: task.run});
      // A resync itself registers nothing, and the next tick reads new prices.
      if (!['resync', 'prices', 'expire', 'notify'].includes(task.task)) await wake(deps.bus);
      return;
    }
    if ('waits' in step) {
      await saveTask(deps, task, {result: step.waits, busy_until_at: null});
      return;
    }
    const cursor = JSON.stringify(step.cursor);
    const isOver = deps.now() >= until_ms;
    const saved = await saveTask(deps, task, isOver ? {cursor, busy_until_at: null} : {cursor});
    if (saved && isOver) return publishTask(deps.bus, name);
    task = saved;
  }
}

/** A failed step waits until the tick republishes the task. Redelivering the message instead would add another message each minute. */
async function stepOrWait(deps: Deps, task: Task, until_ms: number): Promise<Step> {
  try {
    return await STEPS[task.task](deps, task, until_ms);
  } catch (error) {
    const {message} = error as Error;
    if (error instanceof Rejected) return {result: `refused: ${message}`};
    deps.log('ERROR', `Task ${taskId(task)} failed, and is tried again: ${message}`, {run: task.run});
    return {waits: message};
  }
}
