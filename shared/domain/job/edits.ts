/** Documents of jobs that people edited. */
import type {Job} from './job.ts';
import type {JobEnd} from './lifecycle.ts';
import {queuePlace} from './queue.ts';

/** The end of an attempt without a worker that holds it: an edit of a document can cause this. */
export function endWithoutHolder({lease}: Job): JobEnd {
  const error = `${lease?.worker ?? 'its worker'} does not hold it any more`;
  return {outcome: 'preempted', cause: 'preempted', error};
}

/**
 * The job with the place, the lease and the due time that its status has: people edit documents. The same object if all fit. A lease
 * is left as it is: `endWithoutHolder` ends it.
 */
export function withFittingFields(job: Job): Job {
  const {status, queue, lease, due_at} = job;
  switch (status) {
    case 'scheduled':
      return queue === queuePlace(job) && lease === null && due_at === job.deadline_at
        ? job
        : {...job, queue: queuePlace(job), lease: null, due_at: job.deadline_at};
    case 'running':
      return queue === null ? job : {...job, queue: null};
    case 'pending':
    case 'completed':
    case 'failed':
    case 'cancelled':
      return queue === null && lease === null && due_at === null
        ? job
        : {...job, queue: null, lease: null, due_at: null};
    default:
      return status satisfies never;
  }
}
