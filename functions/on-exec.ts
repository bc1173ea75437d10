import type {CloudEvent} from '@google-cloud/functions-framework';
import type {Deps} from '../shared/control-plane/deps.ts';
import {handleExecMessage} from '../shared/control-plane/events/operator-message.ts';

/** Runs a command of an operator on hosts: a message on topic `exec`. */
export async function onExec(deps: Deps, event: CloudEvent<unknown>): Promise<void> {
  await handleExecMessage(deps, event);
}
