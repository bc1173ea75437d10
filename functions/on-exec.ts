import type {CloudEvent} from '@google-cloud/functions-framework';
import {handleExecMessage} from '../shared/control-plane/handlers/exec-message.ts';
import type {Deps} from '../shared/control-plane/state/deps.ts';

/** Runs a command of an operator on hosts: a message on topic `exec`. */
export async function onExec(deps: Deps, event: CloudEvent<unknown>): Promise<void> {
  await handleExecMessage(deps, event);
}
