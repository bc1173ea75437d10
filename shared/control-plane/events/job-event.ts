import {Rejected} from '../../contracts/errors.ts';
import {wake} from '../calls/wake.ts';
import type {Deps} from '../deps.ts';
import {scheduleNewJob} from '../jobs/schedule-jobs.ts';

/** `documents/jobs/ID`: the form in which Eventarc names a document of Firestore. */
const SUBJECT = /^documents\/([^/]+)\/([^/]+)$/;

/** Schedules a new job, and requests a tick because its pool may have to grow. */
export async function handleJobEvent(deps: Deps, subject: string | undefined): Promise<void> {
  const [, collection, id] = SUBJECT.exec(subject ?? '') ?? [];
  if (!id) throw new Rejected(`The event names no document of a job, but "${subject}"`);
  if (collection !== deps.config.jobs_collection) return;
  if (await scheduleNewJob(deps, id)) await wake(deps.bus);
}
