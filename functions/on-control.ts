import type {CloudEvent} from '@google-cloud/functions-framework';
import type {Deps} from '../shared/control-plane/deps.ts';
import {handleControlMessage} from '../shared/control-plane/events/operator-message.ts';

/** Handles a command of an operator: a message of `docs/control.schema.json`. */
export async function onControl(deps: Deps, event: CloudEvent<unknown>): Promise<void> {
  await handleControlMessage(deps, event);
}
