/**
 * Splits a snapshot into one for each pool, because each pool is planned alone. All pools share the ceilings of the deployment, so each part
 * also has the nodes and the money of the other pools, including what earlier plans of the tick use.
 */

import {parseWorkerName} from '../names.ts';
import {NEW_POOL, type Pool} from '../records/pool.ts';
import {managedIn, NOT_LISTED, type Nodes} from '../worker/nodes.ts';
import {orphansOf} from './orphans.ts';
import {type BudgetPlan, planBudgets, planTick} from './plan-tick.ts';
import type {
  BudgetSnapshot,
  DeploymentBudgets,
  DeploymentSnapshot,
  Snapshot,
  TickConfig,
} from './snapshot.ts';

/** A pool without a valid document. It has no zone, so its plan wants no node; it deletes no worker for lack of a slot. */
function withoutDocument(pool: string): Pool {
  const nothing = {accelerator: '', runtime_version: '', spot: false, zones: [], workers_per_zone: 0};
  return {...NEW_POOL, ...nothing, pool};
}

/** The pool of a slot, from its name only, so that node and document of a slot are always in the same part. */
const poolOfSlot = (name: string, own: string) => parseWorkerName(name)?.pool ?? own;

/** The pools of a tick in planning order: those with a document, and all others that any fact names. */
function poolsOf(all: DeploymentBudgets, others: Iterable<string> = []): Pool[] {
  const {pools, unreadable_pools, runs, ended, workers, unreadable} = all;
  const [{pool: own}] = pools;
  const named = [
    ...unreadable_pools,
    ...[...runs, ...ended].map(({pool}) => pool),
    ...[...workers.keys(), ...unreadable, ...others].map(name => poolOfSlot(name, own)),
  ];
  const byName = new Map(pools.map(pool => [pool.pool, pool]));
  for (const name of named.toSorted()) if (!byName.has(name)) byName.set(name, withoutDocument(name));
  return [...byName.values()];
}

export function budgetsByPool(all: DeploymentBudgets): BudgetSnapshot[] {
  return poolsOf(all).map(pool => budgetSnapshotOf(all, pool));
}

function budgetSnapshotOf(all: DeploymentBudgets, pool: Pool): BudgetSnapshot {
  const {pools, unreadable_pools, jobs, ...shared} = all;
  const isOf = (name: string) => poolOfSlot(name, pools[0].pool) === pool.pool;
  const workers = Map.groupBy(all.workers.values(), ({name}) => isOf(name));
  const own = new Set([...all.unreadable].filter(isOf));
  const hasDocument = pools.some(each => each.pool === pool.pool);
  return {
    ...shared,
    pool,
    isUnreadable: unreadable_pools.has(pool.pool),
    jobs: hasDocument ? jobs.get(pool.pool) : {waiting: 0},
    others: {workers: workers.get(false) ?? [], nodes: all.unreadable.size - own.size, reserved_usd: 0},
    runs: all.runs.filter(run => run.pool === pool.pool),
    ended: all.ended.filter(run => run.pool === pool.pool),
    workers: new Map((workers.get(true) ?? []).map(worker => [worker.name, worker])),
    unreadable: own,
  };
}

/** The snapshot of each pool. Nodes that fit no slot belong to the part of the deployment's own pool. */
export function snapshotsByPool(all: DeploymentSnapshot): Snapshot[] {
  const [{pool: own}] = all.pools;
  const {nodes, zones} = all;
  const marked = (zones ?? []).flatMap(({pool, orphans, silence_guard}) =>
    pool && (orphans || silence_guard) ? pool : [],
  );
  const named = poolsOf(all, managedIn(nodes ?? NOT_LISTED));
  const missing = new Set(marked.filter(name => !named.some(({pool}) => pool === name)));
  return [...named, ...[...missing].map(withoutDocument)].map(pool => ({
    ...all,
    ...budgetSnapshotOf(all, pool),
    nodes: nodes && nodesOf(nodes, pool.pool, own),
    zones: zones?.filter(zone => (zone.pool ?? own) === pool.pool),
  }));
}

function nodesOf(nodes: Nodes, pool: string, own: string): Nodes {
  const tpus = new Map([...nodes.tpus].filter(([name]) => poolOfSlot(name, own) === pool));
  return {...nodes, tpus, strays: pool === own ? nodes.strays : []};
}

export function planAllBudgets(all: DeploymentBudgets, config: TickConfig, now: number): BudgetPlan[] {
  return budgetsByPool(all).map(part => planBudgets(part, config, now));
}

/** Plans every pool in sequence: later pools get what earlier plans leave of nodes, money and creates. Late pools come first. */
export function planPools(all: DeploymentSnapshot, config: TickConfig, now: number) {
  const isLate = ({pool}: Snapshot) => all.late_pools.includes(pool.pool);
  const parts = snapshotsByPool(all).sort((one, other) => Number(isLate(other)) - Number(isLate(one)));
  const orphans = parts.map(part => orphansOf(part, now));
  const all_nodes = orphans.reduce((sum, {names}) => sum + names.length, 0);
  const all_usd = orphans.reduce((sum, {usd}) => sum + usd, 0);
  const taken = {creates: 0, usd: 0};
  return parts.map((part, index) => {
    const own = orphans[index] ?? {names: [], usd: 0};
    const others = {
      ...part.others,
      nodes: part.others.nodes + all_nodes - own.names.length + taken.creates,
      reserved_usd: all_usd - own.usd + taken.usd,
    };
    const creates = part.creates === undefined ? undefined : part.creates + taken.creates;
    const snapshot = {...part, others, creates};
    const plan = planTick(snapshot, config, now);
    taken.creates += plan.taken.creates;
    taken.usd += plan.taken.usd;
    return {snapshot, plan};
  });
}
