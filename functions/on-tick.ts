import type {CloudEvent} from '@google-cloud/functions-framework';
import {readPush} from '../shared/contracts/messages/push.ts';
import type {Deps} from '../shared/control-plane/deps.ts';
import {tick} from '../shared/control-plane/tick/tick.ts';

/** Requests a tick: the Scheduler does so every minute, and an event that can change the plan at once. */
export async function onTick(deps: Deps, event: CloudEvent<unknown>): Promise<void> {
  const {attributes} = readPush(event, 'The tick event');
  const source = attributes.source === 'scheduler' ? 'scheduler' : 'wake';
  await deps.ticks.request(source, () => tick(deps));
}
