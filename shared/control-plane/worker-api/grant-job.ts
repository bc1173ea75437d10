import {rankIn} from '../../domain/job/queue.ts';
import {jobWork, parseJobWork} from '../../domain/names.ts';
import type {Pool} from '../../domain/records/pool.ts';
import type {Worker} from '../../domain/records/worker.ts';
import {decideJobGrant} from '../../domain/requests/grant-job.ts';
import {shuffled} from '../../domain/stream/spread.ts';
import {gatherSlots} from '../../domain/tick/gangs.ts';
import {iso} from '../../domain/time.ts';
import type {Transaction} from '../../ports/ports.ts';
import type {Deps} from '../deps.ts';
import {leftAlone, skipIfInvalid, workerRecords} from '../documents/documents.ts';
import {jobRecords, membersOf} from '../documents/job-documents.ts';
import {holdsWork} from '../documents/lease-documents.ts';
import {firstWaiting} from '../jobs/waiting-jobs.ts';
import {type GrantResult, jobSettingsOf} from './answers.ts';
import {transact} from './write.ts';

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
  const {waiting, keeper, fleet} =
    own === undefined
      ? await waitingFor(deps, worker, pool, asker)
      : {waiting: [{job: own, slices: 1}], fleet: []};
  let gathers: string | undefined;
  const holder = {worker: worker.name, incarnation: worker.incarnation};
  const settings = jobSettingsOf(deps, pool);
  for (const {job: id, slices} of waiting.slice(0, MOST_TRIES)) {
    const names = slices > 1 ? freeBeside(fleet, worker, slices) : [];
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
 * Waiting jobs in order. Jobs of equal rank have a different order for each asker, so that few askers collide. `keeper`: a job of several
 * slices that gathers this slice, so later jobs cannot get it. `fleet`: the workers of the pool, while such a job waits.
 */
async function waitingFor(deps: Deps, worker: Worker, pool: Pool | undefined, asker: string) {
  const first = await firstWaiting(deps, worker.pool, PAGE);
  const gangs = first.filter(({slices}) => slices > 1);
  const fleet = gangs.length > 0 ? await fleetOf(deps, worker.pool) : [];
  const workers = new Map(fleet.map(each => [each.name, each]));
  // A slice that asks is ready, although its document does not show it yet.
  if (worker.phase !== 'idle')
    workers.set(worker.name, {...worker, phase: 'idle', phase_since_at: iso(deps.now())});
  const gathering =
    pool && gatherSlots({pool, workers, silent: new Set()}, gangs, deps.config.limits.boot_s, deps.now());
  const vain = gathering?.timeouts.find(({names}) => names.includes(worker.name));
  const kept = gathering?.reservedFor.get(worker.name) ?? vain?.job;
  const keeper = first.find(({job}) => job === kept);
  const mine = keeper ? first.slice(0, first.indexOf(keeper) + 1) : first;
  const groups = Map.groupBy(mine, ({queue}) => rankIn(queue ?? ''));
  const waiting = [...groups.values()].flatMap(group => shuffled(group, asker, ({job}) => job));
  return {waiting, keeper: keeper?.job, fleet};
}

async function fleetOf({store, log}: Deps, pool: string): Promise<Worker[]> {
  const where = [{field: 'pool', op: '==' as const, value: pool}];
  return workerRecords.parseAll(await store.query('workers', {where}), leftAlone(log));
}

/** Names of workers that may run a job together with this one: a few more than it needs, because others may take some. */
function freeBeside(fleet: readonly Worker[], {name, zone}: Worker, slices: number): string[] {
  const idle = fleet.filter(each => each.phase === 'idle' && each.zone === zone && each.name !== name);
  return idle.slice(0, 2 * slices).map(each => each.name);
}

/** `free`: names of workers that may become members. Members of an attempt that the worker holds are read too, because its end frees them. */
async function readGrant(deps: Deps, tx: Transaction, name: string, id: string, free: readonly string[]) {
  const job = await jobRecords.get(deps, tx, id);
  const worker = await workerRecords.get(tx, name);
  const hasOtherWork = !!worker && worker.work !== jobWork(id) && (await holdsWork(deps, tx, worker));
  const read = await Promise.all(free.map(each => workerRecords.read(deps.log, tx, each)));
  const members = job?.lease ? await membersOf(deps, tx, job, name) : [];
  return {job, worker, hasOtherWork, others: [...members, ...read.flatMap(each => each ?? [])]};
}
