/** Reads the snapshot of a tick: first the documents that budgets need, then the rest. */
import {withNetwork} from '../../domain/billing/network.ts';
import {slotsOf} from '../../domain/fleet/slots.ts';
import {paths} from '../../domain/names.ts';
import {keptBy, type Pool} from '../../domain/records/pool.ts';
import {isRunnable, type Run} from '../../domain/records/run.ts';
import type {Zone} from '../../domain/records/zone.ts';
import {otherRunsAtWork} from '../../domain/tick/plan-tick.ts';
import type {DeploymentBudgets, DeploymentSnapshot, StreamCounts} from '../../domain/tick/snapshot.ts';
import {iso} from '../../domain/time.ts';
import {incarnationsOf, managedIn, NOT_LISTED, type Nodes} from '../../domain/worker/nodes.ts';
import {NEVER_SERVED} from '../../domain/worker/served-time.ts';
import type {Filter, Stored} from '../../ports/ports.ts';
import {readOpenRuns} from '../caches/open-runs.ts';
import {readPools} from '../caches/pool-cache.ts';
import {forEachConcurrently} from '../calls/concurrency.ts';
import type {Failures} from '../calls/failures.ts';
import type {Deps} from '../deps.ts';
import {
  createsRecords,
  HELD,
  LIVING,
  leftAlone,
  runRecords,
  workerRecords,
  zoneRecords,
} from '../documents/documents.ts';
import {readPrices} from '../documents/prices.ts';
import {zoneLeftAlone} from '../documents/zones.ts';
import {countWaiting} from '../jobs/waiting-jobs.ts';
import {trafficOf} from '../runs/bill-network.ts';
import {countStreams} from '../runs/count-streams.ts';
import {findLost, proveService} from '../workers/service-proofs.ts';
import {readMonth} from './month.ts';

export async function readBudgets(deps: Deps, failures: Failures): Promise<DeploymentBudgets> {
  const {store, log} = deps;
  const read_at_ms = deps.now();
  const {pools, unreadable: unreadable_pools} = await readPools(deps);
  const prices = await failures.isolate('read the prices', () => readPrices(deps, pools));
  const month = await failures.isolate('read the spending of the month', () => readMonth(deps));
  const counted = await failures.isolate('read the count of creates', () => createsRecords.read(log, store));
  const {creates, late_pools = [], next_at: creates_next_at = null} = counted ?? {};
  const {runs: stored, unreadable: unreadable_runs} = await readOpenRuns(deps);
  const runs = await Promise.all(stored.map(run => withTraffic(deps, run, failures)));
  // Jobs are counted before the workers are read: a job that is granted in between counts twice, and none is left out.
  const jobs = await countWaiting(deps, pools, failures);
  const isAsked = (pool: Pool) => jobs.get(pool.pool)?.waiting !== 0 || keptBy(pool, read_at_ms) > 0;
  const mayCreate = runs.some(isRunnable) || pools.some(isAsked);
  const {workers, unreadable} = await readWorkers(deps, mayCreate);
  const ended: Run[] = [];
  const others = otherRunsAtWork(workers.values(), runs).filter(name => !unreadable_runs.has(name));
  await forEachConcurrently(others, async name => {
    // Only an answer proves whether the document exists.
    const answer = await failures.isolate(`read run ${name}`, async () => ({
      run: await runRecords.get(store, name),
    }));
    if (!answer) unreadable_runs.add(name);
    else if (answer.run) ended.push(answer.run);
  });
  const named = {read_at_ms, pools, unreadable_pools, jobs, prices, month, creates, late_pools, runs, ended};
  return {...named, creates_next_at, unreadable_runs, workers, unreadable};
}

/** The run with its present traffic between regions, which its budget pays for at once. */
async function withTraffic({store}: Deps, run: Run, failures: Failures): Promise<Run> {
  if (run.changed_at === null) return run;
  const traffic = await failures.isolate(`sum the traffic of run ${run.run}`, () => trafficOf(store, run));
  return traffic ? withNetwork(run, traffic).run : run;
}

/** Reads the living workers. `mayCreate`: also gone ones whose slot stays empty, because a message deleted them or their zone refused them. */
async function readWorkers(deps: Deps, mayCreate: boolean) {
  const {store, now, slotsLeftAlone} = deps;
  const blocked: Filter = {field: 'blocked_until_at', op: '>', value: iso(now())};
  const filters = mayCreate ? [LIVING, HELD, blocked] : [LIVING];
  const queries = await Promise.all(filters.map(filter => store.query('workers', {where: [filter]})));
  const stored = new Map(queries.flat().map(each => [each.id, each]));
  for (const id of slotsLeftAlone.keys()) {
    const path = paths.worker(id);
    const data = stored.get(id)?.data ?? (await store.get(path));
    if (data) stored.set(id, {path, id, data});
  }
  slotsLeftAlone.clear();
  const unreadable = new Set<string>();
  return {workers: parseWorkers(deps, [...stored.values()], unreadable), unreadable};
}

function parseWorkers({log, slotsLeftAlone}: Deps, stored: Stored[], unreadable: Set<string>) {
  const parsed = workerRecords.parseAll(stored, (error, name) => {
    unreadable.add(name);
    slotsLeftAlone.set(name, error.document);
    leftAlone(log)(error);
  });
  return new Map(parsed.map(worker => [worker.name, worker]));
}

/** Reads the rest of the snapshot. `listing` started before the documents of the budgets were read. */
export async function readSnapshot(
  deps: Deps,
  budgets: DeploymentBudgets,
  listing: Promise<Nodes | undefined>,
  failures: Failures,
): Promise<DeploymentSnapshot> {
  const {store, log} = deps;
  const streams = await countAll(deps, budgets, failures);
  const zones = await failures.isolate('read the zones', async () => {
    const alone: Zone[] = [];
    const understood = zoneRecords.parseAll(await store.query('zones'), (error, id) => {
      leftAlone(log)(error);
      const [zone = '', pool = null] = id.split('.').reverse();
      alone.push(zoneLeftAlone(zone, pool, deps.now()));
    });
    return [...understood, ...alone];
  });
  const nodes = await listing;
  const {workers, unreadable} = await withListed(
    deps,
    budgets,
    nodes,
    markedSlots(budgets.pools, zones ?? []),
  );
  const proving = () => proveService(deps, workers);
  const served = (await failures.isolate('prove that worker-api works', proving)) ?? NEVER_SERVED;
  const lost = await findLost(deps, workers, {now: deps.now(), servedTime: served}, failures);
  return {...budgets, workers, unreadable, nodes, zones, servedTime: served, streams, lostWorkers: lost};
}

async function countAll(deps: Deps, budgets: DeploymentBudgets, failures: Failures) {
  const counted = new Map<string, StreamCounts>();
  const {runs, pools, workers} = budgets;
  const byName = new Map(pools.map(pool => [pool.pool, pool]));
  await forEachConcurrently(runs, async run => {
    const count = () => countStreams(deps, run, byName.get(run.pool), workers);
    const counts = await failures.isolate(`count the streams of run ${run.run}`, count);
    if (counts) counted.set(run.run, counts);
  });
  return counted;
}

/** Slots of zones with many orphans: only the document of such a slot proves that it is empty. */
function markedSlots(pools: readonly [Pool, ...Pool[]], zones: readonly Zone[]): string[] {
  const [own] = pools;
  const marked = new Set(
    zones.flatMap(({zone, pool, orphans}) => (orphans ? `${pool ?? own.pool} ${zone}` : [])),
  );
  return pools.flatMap(slotsOf).flatMap(({name, pool, zone}) => (marked.has(`${pool} ${zone}`) ? name : []));
}

/**
 * Adds the workers of `marked` slots, and of listed nodes that the query for living workers missed or found at an earlier incarnation. Such a
 * node, and its document, may be newer than the query.
 */
async function withListed(
  deps: Deps,
  budgets: DeploymentBudgets,
  nodes: Nodes = NOT_LISTED,
  marked: readonly string[],
): Promise<Pick<DeploymentBudgets, 'workers' | 'unreadable'>> {
  const workers = new Map(budgets.workers);
  const unreadable = new Set(budgets.unreadable);
  const isNewer = (name: string) => {
    const newest = workers.get(name)?.incarnation ?? -1;
    const node = nodes.tpus.get(name);
    return (
      node !== undefined && (newest < 0 || incarnationsOf(node).some(incarnation => incarnation > newest))
    );
  };
  const missing = marked.filter(name => !workers.has(name));
  await forEachConcurrently([...new Set([...managedIn(nodes).filter(isNewer), ...missing])], async name => {
    if (unreadable.has(name)) return;
    const data = await deps.store.get(`workers/${name}`);
    const stored = data ? [{path: `workers/${name}`, id: name, data}] : [];
    for (const [found, worker] of parseWorkers(deps, stored, unreadable)) workers.set(found, worker);
  });
  return {workers, unreadable};
}
