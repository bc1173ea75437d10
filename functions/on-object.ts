import type {CloudEvent} from '@google-cloud/functions-framework';
import {objectEvent, parseValue} from '../shared/contracts/schemas.ts';
import {handleObjectEvent} from '../shared/control-plane/handlers/object-event.ts';
import type {Deps} from '../shared/control-plane/state/deps.ts';

/** Handles an object that was finalised in the bucket: a stream, a spec, a shard, or an unrelated object. */
export async function onObject(deps: Deps, event: CloudEvent<unknown>): Promise<void> {
  const {bucket, name} = parseValue(objectEvent, event.data, 'The object event');
  if (bucket === deps.objects.bucket) await handleObjectEvent(deps, name);
}
