import type {CloudEvent} from '@google-cloud/functions-framework';
import {objectEvent, parseValue} from '../shared/contracts/schemas.ts';
import type {Deps} from '../shared/control-plane/state/deps.ts';
import {takeObject} from '../shared/control-plane/streams/register-stream.ts';

/** An object was finalised in the bucket: a stream, a run's spec, a shard, or nothing of ours. */
export async function onObject(deps: Deps, event: CloudEvent<unknown>): Promise<void> {
  const {bucket, name} = parseValue(objectEvent, event.data, 'The object event');
  if (bucket === deps.objects.bucket) await takeObject(deps, name);
}
