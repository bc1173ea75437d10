import type {CloudEvent} from '@google-cloud/functions-framework';
import {readPush} from '../shared/contracts/messages/push.ts';
import {parseJson, taskMessage} from '../shared/contracts/messages/schemas.ts';
import type {Deps} from '../shared/control-plane/deps.ts';
import {handleTaskMessage} from '../shared/control-plane/tasks/task-message.ts';

/** Continues a task by some pages: registers, rebuilds or finishes a run, or compares the bucket. */
export async function onTask(deps: Deps, event: CloudEvent<unknown>): Promise<void> {
  const {text} = readPush(event, 'The task event');
  await handleTaskMessage(deps, parseJson(taskMessage, text, 'The message on topic tasks'));
}
