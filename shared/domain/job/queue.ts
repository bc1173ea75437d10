/** Queue of a pool: waiting jobs in the order in which workers take them. One field has the whole order: queries need no composite index. */
import {type Job, waitsSince} from '../records/job.ts';

/** Greatest priority of a job; the least is its negative. */
const MAX_PRIORITY = 1000;

/** `POOL/PRIORITY/TIME/ID`, in text order: a higher priority first, then the older job. */
export function queuePlace(of: Pick<Job, 'pool' | 'priority' | 'created_at' | 'job'>): string {
  const {pool, priority, created_at, job} = of;
  return `${pool}/${rankOf(priority)}/${created_at}/${job}`;
}

const rankOf = (priority: number) => String(MAX_PRIORITY - priority).padStart(4, '0');

/** True for a job at its own place. A job whose document was edited since is not in the queue. */
export function isWaiting(job: Pick<Job, 'status' | 'queue' | 'pool' | 'priority' | 'created_at' | 'job'>) {
  return job.status === 'scheduled' && job.queue === queuePlace(job);
}

/** Jobs of a pool that wait for a worker. `first`: the first few, and `longest`: the one of them that waits longest. */
export type WaitingJobs = {
  waiting: number;
  first?: readonly Job[];
  longest?: {job: string; since_at: string} | undefined;
};

/** The job of one slice that waits longest. Jobs of several slices are left out: TPUs yield to them while they gather slots, see gangs.ts. */
export function longestWaiting(jobs: readonly Job[]): WaitingJobs['longest'] {
  const alone = jobs.filter(({slices}) => slices === 1);
  const waits = alone.map(job => ({job: job.job, since_at: waitsSince(job)}));
  return waits.sort((a, b) => a.since_at.localeCompare(b.since_at))[0];
}

/** Pool and priority of a place: jobs of equal rank may be taken in any order. */
export const rankIn = (place: string) => place.split('/', 2).join('/');
