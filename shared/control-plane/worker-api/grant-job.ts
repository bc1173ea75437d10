import {gangSlots} from '../../domain/fleet/gangs.ts';
import type {Pool} from '../../domain/fleet/pool.ts';
import {decideJobGrant, type JobGrantState} from '../../domain/job/grant.ts';
import type {Job} from '../../domain/job/job.ts';
import {rankIn} from '../../domain/job/queue.ts';
import {jobWork, parseJobWork} from '../../domain/names.ts';
import {shuffled} from '../../domain/stream/spread.ts';
import type {Worker} from '../../domain/worker/worker.ts';
import type {Transaction} from '../../ports.ts';
import {firstWaiting} from '../caches/waiting-jobs.ts';
import type {Deps} from '../deps.ts';
import {leftAlone, skipIfInvalid, workerRecords} from '../documents/documents.ts';
import {jobRecords, membersOf} from '../documents/job-documents.ts';
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
  const {waiting, keeper} =
    own === undefined ? await waitingFor(deps, worker, pool, asker) : {waiting: [{job: own, slices: 1}]};
  let gathers: string | undefined;
  const holder = {worker: worker.name, incarnation: worker.incarnation};
  const settings = {pool, bucket: deps.objects.bucket};
  for (const {job: id, slices} of waiting.slice(0, MOST_TRIES)) {
    const names = slices > 1 ? await freeBeside(deps, worker, slices) : [];
    const grant = () =>
      transact(deps, async (tx, now) =>
        decideJobGrant(await readGrant(deps, tx, worker.name, id, names), id, holder, settings, now),
      );
    const decision = await skipIfInvalid(deps.log, grant);
    if (decision?.order) return {order: decision.order};
    gathers ??= decision?.waits;
  }
  if (keeper !== undefined)
    return {soon: gathers ?? `job ${keeper} gathers slices`, isRaced: false, isKept: true};
  if (gathers) return {soon: gathers, isRaced: false};
  return waiting.length > 0 ? {soon: 'others took the jobs: ask again', isRaced: false} : undefined;
}

/**
 * Waiting jobs in order. Each asker has an order of its own for jobs of equal rank, so that few meet. `keeper`: a job of several slices that
 * gathers this slice, which no job behind it gets.
 */
async function waitingFor(
  deps: Deps,
  worker: Worker,
  pool: Pool | undefined,
  asker: string,
): Promise<{waiting: Pick<Job, 'job' | 'slices'>[]; keeper?: string | undefined}> {
  const first = await firstWaiting(deps, worker.pool, PAGE);
  const keeper = pool && (await keeperOf(deps, worker, pool, first));
  const mine = keeper ? first.slice(0, first.indexOf(keeper) + 1) : first;
  const groups = Map.groupBy(mine, ({queue}) => rankIn(queue ?? ''));
  const waiting = [...groups.values()].flatMap(group => shuffled(group, asker, ({job}) => job));
  return {waiting, keeper: keeper?.job};
}

/** The first job for which the plan of a tick would keep the slot of this worker. A slice waits in vain for `boot_s` at most. */
async function keeperOf(
  deps: Deps,
  {name, pool: of, zone}: Worker,
  pool: Pool,
  waiting: readonly Job[],
): Promise<Job | undefined> {
  const gangs = waiting.filter(({slices}) => slices > 1);
  if (gangs.length === 0) return undefined;
  const where = [
    {field: 'pool', op: '==' as const, value: of},
    {field: 'zone', op: '==' as const, value: zone},
  ];
  const found = workerRecords.parseAll(await deps.store.query('workers', {where}), leftAlone(deps.log));
  const fleet = {pool: {...pool, zones: [zone]}, workers: new Map(found.map(each => [each.name, each]))};
  const {boot_s} = deps.config.limits;
  const keeps = (_: Job, index: number) =>
    gangSlots(fleet, gangs.slice(0, index + 1), boot_s, deps.now()).has(name);
  return gangs.find(keeps);
}

/** Names of workers that may run a job together with this one: few more than it needs, because others may take some. */
async function freeBeside({store, log}: Deps, {name, pool, zone}: Worker, slices: number): Promise<string[]> {
  const where = [
    {field: 'pool', op: '==' as const, value: pool},
    {field: 'zone', op: '==' as const, value: zone},
    {field: 'phase', op: '==' as const, value: 'idle'},
  ];
  const found = workerRecords.parseAll(
    await store.query('workers', {where, limit: 2 * slices}),
    leftAlone(log),
  );
  return found.flatMap(each => (each.name === name ? [] : each.name));
}

/** `free`: names of workers that may become members. The members of an attempt that the worker holds are read too: its end frees them. */
async function readGrant(
  deps: Deps,
  tx: Transaction,
  name: string,
  id: string,
  free: readonly string[],
): Promise<JobGrantState> {
  const job = await jobRecords.get(deps, tx, id);
  const worker = await workerRecords.get(tx, name);
  const hasOtherWork = !!worker && worker.work !== jobWork(id) && (await holdsWork(deps, tx, worker));
  const read = await Promise.all(free.map(each => workerRecords.read(deps.log, tx, each)));
  const members = job?.lease ? await membersOf(deps, tx, job, name) : [];
  return {job, worker, hasOtherWork, others: [...members, ...read.flatMap(each => each ?? [])]};
}
