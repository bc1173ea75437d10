import type {CloudEvent} from '@google-cloud/functions-framework';
import {parseValue, pubsubEvent} from '../shared/contracts/schemas.ts';
import {tick} from '../shared/control-plane/handlers/tick.ts';
import type {Deps} from '../shared/control-plane/state/deps.ts';

/** Requests a tick: the Scheduler does so every minute, and an event that can change the plan at once. */
export async function onTick(deps: Deps, event: CloudEvent<unknown>): Promise<void> {
  const {attributes} = parseValue(pubsubEvent, event.data, 'The tick event');
  const source = attributes.source === 'scheduler' ? 'scheduler' : 'wake';
  await deps.ticks.request(source, () => tick(deps));
}
