/** Attempts that a tick ends: those of due jobs, of expired leases, and of jobs that no worker holds. Reports long attempts. */
import {
  endAttempt,
  endByExpiry,
  endOfDue,
  endWithoutHolder,
  waitsForOthers,
} from '../../domain/job/lifecycle.ts';
import {parseJobWork} from '../../domain/names.ts';
import type {Worker} from '../../domain/records/worker.ts';
import {hasRunOut, isHeldBy} from '../../domain/stream/lease.ts';
import type {DeploymentSnapshot} from '../../domain/tick/snapshot.ts';
import {isOlderThan, iso, utcText} from '../../domain/time.ts';
import type {Served} from '../../domain/worker/served-time.ts';
import {forEachConcurrently} from '../calls/concurrency.ts';
import type {Deps} from '../deps.ts';
import {leftAlone, skipIfInvalid, workerRecords} from '../documents/documents.ts';
import {recordEvent} from '../documents/event-log.ts';
import {jobOf, jobRecords, membersOf, storeEnded} from '../documents/job-documents.ts';
import {clearWork, holderOf} from '../documents/lease-documents.ts';
import {orderedPages, pagesOf} from '../documents/pages.ts';

/** Due jobs that one tick reads; the next tick ends the others. */
const MOST_AT_ONCE = 200;

/** Ends the jobs whose deadline, budget or timeout is over, whatever their workers report. */
export async function endDueJobs(deps: Deps): Promise<void> {
  const {config, log, store} = deps;
  const where = [{field: 'due_at', op: '<=' as const, value: iso(deps.now())}];
  const query = {field: 'due_at', where, limit: MOST_AT_ONCE};
  for await (const page of orderedPages(store, config.jobs_collection, query)) {
    let isAnyEnded = false;
    await forEachConcurrently(jobRecords.parseAll(page, leftAlone(log)), ({job}) =>
      skipIfInvalid(log, async () => {
        isAnyEnded = (await endDueJob(deps, job)) || isAnyEnded;
      }),
    );
    if (isAnyEnded) return;
  }
}

/** Returns false for a job that is not due: an edit of its document moved the time. */
function endDueJob(deps: Deps, id: string): Promise<boolean> {
  return deps.store.transaction(async tx => {
    const now = deps.now();
    const job = await jobRecords.get(deps, tx, id);
    const holder = await holderOf(deps.log, tx, job);
    const end = job && endOfDue(job, holder, deps.config.lease_s, now);
    if (!end) return false;
    const others = await membersOf(deps, tx, job, job.lease?.worker);
    storeEnded(deps, tx, job, endAttempt(job, end, holder?.usd_per_hour ?? null, now), now);
    clearWork(tx, holder, ...others);
    return true;
  });
}

/** Ends the attempts of living workers that have not renewed the lease of their job for `lease_s` nor reported its end. */
export async function endExpiredJobs(deps: Deps, names: readonly string[], served: Served): Promise<void> {
  const {lease_s} = deps.config;
  await forEachConcurrently(names, name =>
    deps.store.transaction(async tx => {
      const worker = await workerRecords.get(tx, name);
      if (!worker || parseJobWork(worker.work) === undefined || !hasRunOut(worker, lease_s, served)) return;
      const job = await jobOf(deps, tx, worker);
      if (job && waitsForOthers(job, worker)) return;
      const now = deps.now();
      const others = job ? await membersOf(deps, tx, job, name) : [];
      clearWork(tx, worker, ...others);
      if (!job) return;
      const end = endByExpiry(worker, lease_s);
      storeEnded(deps, tx, job, endAttempt(job, end, worker.usd_per_hour, now), now);
    }),
  );
}

const COMPARE_MINUTES = 15;

/** Ends the attempts that no worker holds: the worker may have ended while the document of its job was invalid. */
export async function endOrphanedJobs(
  deps: Deps,
  {workers, unreadable, read_at_ms}: Pick<DeploymentSnapshot, 'workers' | 'unreadable' | 'read_at_ms'>,
): Promise<void> {
  if (new Date(read_at_ms).getUTCMinutes() % COMPARE_MINUTES !== 0) return;
  const {config, log, store} = deps;
  const running = {where: [{field: 'status', op: '==' as const, value: 'running'}]};
  const held = new Set([...workers.values()].flatMap(({work}) => parseJobWork(work) ?? []));
  if ((await store.count(config.jobs_collection, running.where)) <= held.size) return;
  for await (const page of pagesOf(store, config.jobs_collection, running)) {
    const orphans = jobRecords.parseAll(page, leftAlone(log)).filter(job => {
      const holders = job.lease ? [job.lease, ...job.lease.members] : [];
      return holders.some(({worker}) => {
        const holder = workers.get(worker);
        return !unreadable.has(worker) && !isHeldBy(job, holder);
      });
    });
    await forEachConcurrently(orphans, ({job}) => skipIfInvalid(log, () => endOrphanedJob(deps, job)));
  }
}

async function endOrphanedJob(deps: Deps, id: string): Promise<void> {
  await deps.store.transaction(async tx => {
    const job = await jobRecords.get(deps, tx, id);
    if (job?.status !== 'running' || !job.lease) return;
    const {worker: name, members} = job.lease;
    const worker = await workerRecords.get(tx, name);
    const others = await membersOf(deps, tx, job, name);
    const isWhole = others.length === Math.max(1, members.length) - 1;
    const holder = isHeldBy(job, worker) ? worker : undefined;
    if (holder && isWhole) return;
    const now = deps.now();
    clearWork(tx, holder, ...others);
    storeEnded(deps, tx, job, endAttempt(job, endWithoutHolder(job), null, now), now);
  });
}

/** Raises one alert for each attempt that has run for `long_job_s`. */
export async function reportLongJobs(deps: Deps, workers: Iterable<Worker>): Promise<void> {
  const {long_job_s} = deps.config;
  const isLong = (worker: Worker) =>
    parseJobWork(worker.work) !== undefined &&
    worker.phase === 'working' &&
    isOlderThan(worker.phase_since_at, long_job_s, deps.now());
  await forEachConcurrently([...workers].filter(isLong), ({name}) =>
    deps.store.transaction(async tx => {
      const worker = await workerRecords.get(tx, name);
      const job = worker && (await jobOf(deps, tx, worker));
      if (!job?.started_at || !isOlderThan(job.started_at, long_job_s, deps.now())) return;
      if (job.long_epoch === job.epoch) return;
      const text = `Job ${job.job} has run for more than ${long_job_s} s on ${name}, since ${utcText(job.started_at)}`;
      deps.log('WARNING', text, {job: job.job, worker: name, signal: 'job-long'});
      recordEvent(tx, {kind: 'job', job: job.job, worker: name, epoch: job.epoch, text}, deps.now());
      jobRecords.set(deps, tx, {...job, long_epoch: job.epoch});
    }),
  );
}
