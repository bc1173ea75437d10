import type {Pool} from '../../domain/fleet/pool.ts';
import {decideJobGrant, type JobGrantState} from '../../domain/job/grant.ts';
import {rankIn} from '../../domain/job/queue.ts';
import {jobWork, parseJobWork} from '../../domain/names.ts';
import {shuffled} from '../../domain/stream/spread.ts';
import type {Worker} from '../../domain/worker/worker.ts';
import type {Transaction} from '../../ports.ts';
import {firstWaiting} from '../caches/waiting-jobs.ts';
import type {Deps} from '../deps.ts';
import {skipIfInvalid, workerRecords} from '../documents/documents.ts';
import {jobRecords} from '../documents/job-documents.ts';
import {holdsWork} from '../documents/lease-documents.ts';
import type {GrantResult} from './answers.ts';
import {transact} from './write.ts';

/** Waiting jobs that one request reads, and jobs that it tries. */
const PAGE = 10;
const MOST_TRIES = 3;

/** Leases the worker's own job again, or one of the first waiting jobs of its pool. */
export async function grantWaitingJob(
  deps: Deps,
  worker: Worker,
  pool: Pool | undefined,
  asker: string,
): Promise<GrantResult> {
  const own = parseJobWork(worker.work);
  const waiting = own === undefined ? await waitingFor(deps, worker, asker) : [own];
  const holder = {worker: worker.name, incarnation: worker.incarnation};
  const settings = {pool, bucket: deps.objects.bucket};
  for (const id of waiting.slice(0, MOST_TRIES)) {
    const grant = () =>
      transact(deps, async (tx, now) =>
        decideJobGrant(await readGrant(deps, tx, worker.name, id), id, holder, settings, now),
      );
    const order = (await skipIfInvalid(deps.log, grant))?.order;
    if (order) return {order};
  }
  return waiting.length > 0 ? {soon: 'others took the jobs: ask again', isRaced: false} : undefined;
}

/** Ids of waiting jobs in order. Each asker has an order of its own for jobs of equal rank, so that few meet. */
async function waitingFor(deps: Deps, {pool}: Worker, asker: string): Promise<string[]> {
  const waiting = await firstWaiting(deps, pool, PAGE);
  const groups = Map.groupBy(waiting, ({queue}) => rankIn(queue ?? ''));
  return [...groups.values()].flatMap(group => shuffled(group, asker, ({job}) => job)).map(({job}) => job);
}

async function readGrant(deps: Deps, tx: Transaction, name: string, id: string): Promise<JobGrantState> {
  const job = await jobRecords.get(deps, tx, id);
  const worker = await workerRecords.get(tx, name);
  const hasOtherWork = !!worker && worker.work !== jobWork(id) && (await holdsWork(deps, tx, worker));
  return {job, worker, hasOtherWork};
}
