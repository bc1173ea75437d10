import type {CloudEvent} from '@google-cloud/functions-framework';
import {readNotification, readPush} from '../shared/contracts/messages/push.ts';
import type {Deps} from '../shared/control-plane/deps.ts';
import {handleObjectEvent} from '../shared/control-plane/events/object-event.ts';

/** Handles the notification of a new object in the bucket: a stream, a spec, a shard, or an unrelated object. */
export async function onObject(deps: Deps, event: CloudEvent<unknown>): Promise<void> {
  const object = readNotification(readPush(event, 'The object event'));
  if (object?.bucket === deps.objects.bucket) await handleObjectEvent(deps, object.name);
}
