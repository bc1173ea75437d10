import type {CloudEvent} from '@google-cloud/functions-framework';
import {readPush} from '../shared/contracts/messages/push.ts';
import {parseJson, tpuMessage} from '../shared/contracts/messages/schemas.ts';
import type {Deps} from '../shared/control-plane/deps.ts';
import {handleTpuMessage} from '../shared/control-plane/workers/tpu-operations.ts';

/** Creates or deletes the TPU of a slot. */
export async function onTpu(deps: Deps, event: CloudEvent<unknown>): Promise<void> {
  const {text} = readPush(event, 'The tpu event');
  await handleTpuMessage(deps, parseJson(tpuMessage, text, 'The message on topic tpu'));
}
