import type {CloudEvent} from '@google-cloud/functions-framework';
import {parseValue, pubsubEvent} from '../shared/contracts/schemas.ts';
import {tick} from '../shared/control-plane/handlers/tick.ts';
import type {Deps} from '../shared/control-plane/state/deps.ts';

/** A tick is due: the Scheduler says so every minute, and an event that can change the plan says so at once. */
export async function onTick(deps: Deps, event: CloudEvent<unknown>): Promise<void> {
  const {attributes} = parseValue(pubsubEvent, event.data, 'The tick event');
  const source = attributes.source === 'scheduler' ? 'scheduler' : 'wake';
  await deps.ticks.request(source, () => tick(deps));
}
