import {isWaiting, longestWaiting, type WaitingJobs} from '../../domain/job/queue.ts';
import type {Job} from '../../domain/records/job.ts';
import type {Pool} from '../../domain/records/pool.ts';
import type {Filter} from '../../ports/ports.ts';
import type {Failures} from '../calls/failures.ts';
import type {Deps} from '../deps.ts';
import {leftAlone} from '../documents/documents.ts';
import {jobRecords} from '../documents/job-documents.ts';
import {orderedPages} from '../documents/pages.ts';

/** Filter for the places in the queue of a pool, `POOL/PRIORITY/TIME/ID`. `0` is the character after `/`. */
function queueOf(pool: string): Filter[] {
  return [
    {field: 'queue', op: '>=', value: `${pool}/`},
    {field: 'queue', op: '<', value: `${pool}0`},
  ];
}

/** One page of the first waiting jobs of a pool. An invalid document keeps its place in the queue but does not hide the jobs after it. */
export async function firstWaiting(deps: Deps, pool: string, limit: number): Promise<Job[]> {
  return (await readFirst(deps, pool, limit)).waiting;
}

/** `alone`: documents before the last of these jobs that no worker can run. */
async function readFirst({store, config, log}: Deps, pool: string, limit: number) {
  let alone = 0;
  const query = {field: 'queue', where: queueOf(pool), limit};
  for await (const page of orderedPages(store, config.jobs_collection, query)) {
    const jobs = jobRecords.parseAll(page, leftAlone(log));
    for (const {job} of jobs.filter(job => !isWaiting(job)))
      log('ERROR', `Job ${job} is skipped: its place in the queue does not match its fields`, {job});
    const waiting = jobs.filter(isWaiting);
    alone += page.length - waiting.length;
    if (waiting.length > 0) return {waiting, alone};
  }
  return {waiting: [], alone};
}

/** Waiting jobs that a tick reads to find documents that no worker can run. */
const FEW = 10;

/** Counts the waiting jobs of each pool and finds the longest wait. Pools whose count failed are missing. Without waiting jobs: one count. */
export async function countWaiting(
  deps: Deps,
  pools: readonly Pool[],
  failures: Failures,
): Promise<Map<string, WaitingJobs>> {
  const {store, config} = deps;
  const count = (where: Filter[]) =>
    failures.isolate('count the waiting jobs', () => store.count(config.jobs_collection, where));
  const all = await count([{field: 'queue', op: '>', value: ''}]);
  const waiting = new Map<string, WaitingJobs>();
  for (const {pool} of pools) {
    const places = all === 0 ? 0 : await count(queueOf(pool));
    if (places === undefined) continue;
    const read = async () => (places === 0 ? {waiting: [], alone: 0} : await readFirst(deps, pool, FEW));
    const first = await failures.isolate('read the waiting jobs', read);
    // Invalid documents need no node: they count only if a valid job waits.
    if (!first) continue;
    const jobs = first.waiting.length === 0 ? 0 : Math.max(0, places - first.alone);
    waiting.set(pool, {waiting: jobs, first: first.waiting, longest: longestWaiting(first.waiting)});
  }
  return waiting;
}
