import type {CloudEvent} from '@google-cloud/functions-framework';
import type {Deps} from '../shared/control-plane/deps.ts';
import {handleJobEvent} from '../shared/control-plane/events/job-event.ts';

/** Handles the event of a new document in the collection of jobs. The event names the document; its data is not read. */
export async function onJob(deps: Deps, event: CloudEvent<unknown>): Promise<void> {
  await handleJobEvent(deps, event.subject);
}
