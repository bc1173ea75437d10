/** Requests for work: leases a waiting job of its pool to the worker that asks. */

import {withFittingFields} from '../../domain/job/edits.ts';
import type {Job} from '../../domain/job/job.ts';
import {endAttempt, grantJob, isJobOf, type JobEnd, whyNotGranted} from '../../domain/job/lifecycle.ts';
import {rankIn} from '../../domain/job/queue.ts';
import {jobFolder, jobWork, parseJobWork} from '../../domain/names.ts';
import {NO_ENVIRONMENT} from '../../domain/source/source.ts';
import {shuffled} from '../../domain/stream/spread.ts';
import {iso} from '../../domain/time.ts';
import {heardFrom} from '../../domain/worker/heartbeat.ts';
import {isAlive, NO_WORK, type Worker} from '../../domain/worker/worker.ts';
import type {Transaction} from '../../ports.ts';
import {poolOf} from '../caches/pool-cache.ts';
import {queueOf} from '../caches/waiting-jobs.ts';
import type {Deps} from '../deps.ts';
import {skipIfInvalid, workerRecords} from '../documents/documents.ts';
import {recordEvent} from '../documents/event-log.ts';
import {jobOf, jobRecords, storeEnded} from '../documents/job-documents.ts';
import {workOf} from '../documents/lease-documents.ts';
import {mendJobs} from '../jobs/mend-jobs.ts';
import {type Asked, requesterOf} from './answers.ts';

type LeaseRequest = Asked<'lease'>;

/** Waiting jobs that one request reads, and jobs that it tries. */
const PAGE = 10;
const MOST_TRIES = 3;

/** The order of a job for the worker; `taken` if others took each job that it tried; undefined without a waiting job. */
export async function grantWaitingJob(
  deps: Deps,
  request: LeaseRequest,
  worker: Worker,
  asker: string,
): Promise<object | 'taken' | undefined> {
  const own = parseJobWork(worker.work);
  const waiting = own === undefined ? await waitingFor(deps, worker, asker) : [own];
  let tries = 0;
  for (const id of waiting.slice(0, MOST_TRIES)) {
    tries += 1;
    const grant = () => deps.store.transaction(tx => tryGrant(deps, tx, request, id));
    const order = await skipIfInvalid(deps.log, grant);
    if (order) return order;
  }
  return tries > 0 ? 'taken' : undefined;
}

/**
 * Ids of waiting jobs in order. Each asker has an order of its own for jobs of equal rank, so that few meet. A document with a place
 * that is not its own would keep the place for ever, so it is mended.
 */
async function waitingFor(deps: Deps, {pool}: Worker, asker: string): Promise<string[]> {
  const query = {where: queueOf(pool), order_by: {field: 'queue'}, limit: PAGE};
  const found = await deps.store.query(deps.config.jobs_collection, query);
  const unfit: string[] = [];
  const jobs = jobRecords.parseAll(found, (_, id) => unfit.push(id));
  const waiting = jobs.filter(job => job.status === 'scheduled' && withFittingFields(job) === job);
  unfit.push(...jobs.filter(job => !waiting.includes(job)).map(({job}) => job));
  await mendJobs(deps, unfit);
  const groups = Map.groupBy(waiting, ({queue}) => rankIn(queue ?? ''));
  return [...groups.values()].flatMap(group => shuffled(group, asker, ({job}) => job)).map(({job}) => job);
}

async function tryGrant(deps: Deps, tx: Transaction, request: LeaseRequest, id: string) {
  const job = await jobRecords.get(deps, tx, id);
  const worker = await workerRecords.get(tx, request.worker);
  if (!worker || worker.incarnation !== request.incarnation || !isAlive(worker)) return undefined;
  const now = deps.now();
  const holder = requesterOf(request);
  const isOwn = job !== undefined && job.status === 'running' && isJobOf(job, holder);
  if (!job || !(isOwn || job.status === 'scheduled') || job.pool !== worker.pool) {
    await clearLost(deps, tx, worker, id);
    return undefined;
  }
  // A late request: a later request of this worker has been granted work.
  const hasOther =
    worker.work !== jobWork(id) && ((await workOf(deps.log, tx, worker)) ?? (await jobOf(deps, tx, worker)));
  if (hasOther) return undefined;
  // The worker asks again, so the attempt before has ended, or never began.
  const free = isOwn ? endAttempt(job, endByRequest(worker), worker.usd_per_hour, now) : job;
  const refusal = free.status === 'scheduled' ? whyNotGranted(free, worker.usd_per_hour, now) : undefined;
  if (free.status !== 'scheduled' || refusal) {
    const ended = refusal ? endAttempt(free, refusal, worker.usd_per_hour, now) : free;
    if (worker.work === jobWork(id)) workerRecords.set(tx, {...worker, ...NO_WORK});
    storeEnded(deps, tx, job, ended, now);
    return undefined;
  }
  const pool = await poolOf(deps, worker.pool);
  const granted = grantJob(free, holder, worker.usd_per_hour, now);
  const folder = jobFolder(id, granted.epoch);
  const log_path = `gs://${deps.objects.bucket}/${folder}output/`;
  jobRecords.set(deps, tx, {...granted, log_path});
  const report = {
    ...NO_WORK,
    activity: 'loading',
    work: jobWork(id),
    epoch: granted.epoch,
    claimed_at: iso(now),
  };
  workerRecords.set(tx, heardFrom(worker, report, now));
  const text = `${worker.name} runs job ${id}, attempt ${granted.epoch}`;
  recordEvent(tx, {kind: 'job', job: id, worker: worker.name, epoch: granted.epoch, text}, now);
  return orderOf(deps, granted, pool, folder);
}

/** A restart of the host in the middle of the job may be the job's work. Without one, the answer with the lease was lost. */
function endByRequest({name, claimed_at}: Worker): JobEnd {
  return claimed_at === null
    ? {outcome: 'failed', cause: 'machine', error: `${name} restarted in the middle of it`}
    : {outcome: 'preempted', cause: 'preempted', error: `${name} asked for work again`};
}

/** Clears the work of a worker whose job was deleted, or was leased to another worker. */
async function clearLost(deps: Deps, tx: Transaction, worker: Worker, id: string): Promise<void> {
  if (worker.work === jobWork(id) && !(await jobOf(deps, tx, worker)))
    workerRecords.set(tx, {...worker, ...NO_WORK});
}

function orderOf(deps: Deps, job: Job, pool: Awaited<ReturnType<typeof poolOf>>, folder: string) {
  const {code, command, challenge_number, timeout, limits, source, environment} = job;
  return {
    action: 'job',
    lease: {job: job.job, epoch: job.epoch},
    job: {
      ...{id: job.job, code, command, challenge_number, timeout_s: timeout, limits, folder},
      source: source ?? pool?.source ?? null,
      environment: {...NO_ENVIRONMENT, ...pool?.environment, ...environment},
      source_version: source === null ? (pool?.source_version ?? 0) : null,
      bucket: deps.objects.bucket,
    },
  };
}
