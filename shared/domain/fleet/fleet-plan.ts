/** Plan of the fleet: slots that should have a node, and the run that pays for each. Zones, brakes, ceilings and budgets bound it. */
import {type Budgets, priceOf} from '../billing/budget.ts';
import {assignPayers, costOfDeleting, JOBS, payerOf, runAtWork} from '../billing/cost.ts';
import {parseJobWork, parseWorkerName} from '../names.ts';
import {isRunnable} from '../run/run.ts';
import {byPreference} from '../stream/service-order.ts';
import type {Snapshot, TickConfig} from '../tick/snapshot.ts';
import {isOlderThan} from '../time.ts';
import {NOT_LISTED} from '../worker/nodes.ts';
import {isServedFor} from '../worker/served-time.ts';
import {hasEnded, isAlive, type Worker} from '../worker/worker.ts';
import {isDue, type Limiter, stateOf} from '../zone/limiter.ts';
import {costOfOrphans} from '../zone/orphans.ts';
import {allowance} from '../zone/placement.ts';
import {isOpenSlot, livingAmong, slotsOf, wantedSlots} from './pool.ts';

export type FleetPlan = {
  wanted: ReadonlySet<string>;
  /** The run that pays for each new or idle node. */
  payers: ReadonlyMap<string, string | null>;
  /** Limit of the count of all creates, this plan's included: another tick may create nodes at the same time. */
  mostCreates: number;
  /** Creates of this plan, and the dollars that are set aside for them: later pools of the tick have the rest. */
  creates: number;
  reserved_usd: number;
};

export function planFleet(
  snapshot: Snapshot,
  budgets: Budgets,
  orphans: readonly string[],
  config: TickConfig,
  now: number,
): FleetPlan {
  const {pool, workers, unreadable, runs, nodes, zones, others} = snapshot;
  const work = remainingWork(snapshot, budgets);
  // Without counts of streams or zones, the plan creates no node and deletes none for lack of work.
  if (!work || !zones) {
    const living = {wanted: livingNames(workers), payers: new Map<string, string | null>()};
    return {...living, mostCreates: snapshot.creates ?? 0, creates: 0, reserved_usd: 0};
  }
  const streams = work.open.reduce((sum, {streams}) => sum + streams, 0);
  const untouched = workersOfUnreadableRuns(snapshot);
  const out = new Set([
    ...unreadable,
    ...untouched,
    ...budgets.dismissed,
    ...orphans,
    ...hiddenSlots(snapshot, config, now),
    ...silentOfInactiveRuns(snapshot, config),
  ]);
  const isFree = ({name}: {name: string}) => !out.has(name) && isOpenSlot(workers.get(name), now);
  const free = new Set(slotsOf(pool).flatMap(slot => (isFree(slot) ? slot.zone : [])));
  const elsewhere = others.workers.filter(({phase}) => phase !== 'gone').length + others.nodes;
  const most = config.ceilings.max_workers - unreadable.size - orphans.length - elsewhere;
  const wanted = wantedSlots(pool, workers, streams, now, {
    broken: out,
    allowances: createsPerZone(snapshot, zone => free.has(zone), config, now),
    fixed: work.fixed,
    most,
    probes: new Map(zones.map(({zone, brake}) => [zone, brake?.probes_due ?? 0])),
    limited: new Set(
      zones.flatMap(({zone, limiter}) => (stateOf(limiter, config.bundle) === 'open' ? [] : zone)),
    ),
    silent: silentWorkers(snapshot, config.limits.silent_s),
  });
  const reserve = budgets.newReserver(costOfOrphans(snapshot, nodes ?? NOT_LISTED, orphans, now));
  const payers = assignPayers(wanted, workers, work.open, work.fixed, reserve);
  for (const [name, run] of payers) if (run === null) wanted.delete(name);
  for (const name of untouched) wanted.add(name);
  const room = most - livingAmong(workers);
  const isBudgeted = [pool, ...runs].some(({budget_usd}) => budget_usd !== null);
  const isBounded = isBudgeted || config.ceilings.max_budget_usd !== null;
  // A budget pays for the creates of this plan alone: creates of another tick take their place.
  const empty = [...wanted].filter(name => (workers.get(name)?.phase ?? 'gone') === 'gone');
  const creates = empty.length;
  // No node is created from prices, a month or a count of creates that were not read.
  if (!snapshot.prices || snapshot.month?.spent_usd === undefined || snapshot.creates === undefined)
    return {wanted, payers, mostCreates: 0, creates: 0, reserved_usd: 0};
  const priceIn = (name: string) => priceOf(snapshot.prices ?? {}, pool, parseWorkerName(name)?.zone ?? '');
  const reserved_usd = empty.reduce((sum, name) => sum + costOfDeleting(priceIn(name) ?? 0), 0);
  const mostCreates = snapshot.creates + (isBounded ? Math.min(room, creates) : room);
  return {wanted, payers, mostCreates, creates, reserved_usd};
}

/** `open`: jobs and unfinished streams for any slot, by payer in the order of service: a person waits for a job. `fixed`: the run of each slot with a bound stream. */
type Work = {open: {run: string; streams: number}[]; fixed: Map<string, string>};

/** Undefined if the pool is unreadable, or if its jobs, or the streams of a run within its budget, could not be counted. */
function remainingWork(
  {pool, isUnreadable, jobs, workers, runs, streams}: Snapshot,
  {over, isWholeOver}: Budgets,
): Work | undefined {
  if (isUnreadable || !jobs) return undefined;
  const served = runs
    .filter(run => isRunnable(run) && run.pool === pool.pool && !over.has(run.run))
    .sort(byPreference(null));
  const atJobs = [...workers.values()].filter(({work}) => parseJobWork(work) !== undefined).length;
  const work: Work = {open: [], fixed: new Map()};
  if (!isWholeOver && jobs.waiting + atJobs > 0) work.open.push({run: JOBS, streams: jobs.waiting + atJobs});
  for (const {run, affinity} of served) {
    const counts = streams.get(run);
    if (!counts) return undefined;
    if (affinity === 'any') work.open.push({run, streams: counts.unfinished});
    for (const slot of counts.slots) if (!work.fixed.has(slot)) work.fixed.set(slot, run);
  }
  return work;
}

/** Living workers that work for an unreadable run, or were created for it. No other run counts on them, and none is deleted for lack of work. */
function workersOfUnreadableRuns({workers, unreadable_runs}: Snapshot): string[] {
  const isOf = (worker: Worker) => unreadable_runs.has(runAtWork(worker) ?? payerOf(worker) ?? '');
  return [...workers.values()].flatMap(worker =>
    worker.phase !== 'gone' && isOf(worker) ? worker.name : [],
  );
}

function livingNames(workers: ReadonlyMap<string, Worker>): Set<string> {
  return new Set([...workers.values()].filter(({phase}) => phase !== 'gone').map(({name}) => name));
}

/** Living workers that have sent nothing for `silent_s`. */
export function silentWorkers(
  {workers, served}: Pick<Snapshot, 'workers' | 'served'>,
  silent_s: number,
): Set<string> {
  const isSilent = (worker: Worker) => isAlive(worker) && isServedFor(served, worker.heartbeat_at, silent_s);
  return new Set([...workers.values()].flatMap(worker => (isSilent(worker) ? worker.name : [])));
}

/** Silent workers whose run has ended or is paused. No brake keeps them longer than a drain takes. A job has no such run. */
function silentOfInactiveRuns({workers, runs, served}: Snapshot, {limits}: TickConfig): string[] {
  const active = new Set(runs.filter(({status}) => status === 'active').map(({run}) => run));
  return [...workers.values()].flatMap(worker => {
    const isSilent = isAlive(worker) && worker.suspect !== null;
    const isLate = isServedFor(served, worker.heartbeat_at, limits.drain_s);
    const isAtJob = parseJobWork(worker.suspect?.work ?? null) !== undefined;
    return isSilent && isLate && !isAtJob && !active.has(runAtWork(worker) ?? '') ? worker.name : [];
  });
}

/** Creates that each zone allows now. A stopped pool tries one zone at a time: the zone that was asked longest ago. */
function createsPerZone(
  {pool, zones = []}: Snapshot,
  hasFreeSlot: (zone: string) => boolean,
  {bundle, placement}: TickConfig,
  now: number,
): Map<string, number> {
  const allowed = new Map(zones.map(zone => [zone.zone, allowance(zone, placement, bundle, now)]));
  if (stateOf(pool.limiter, bundle) === 'open') return allowed;
  const ready = zones.filter(({zone}) => (allowed.get(zone) ?? 0) > 0 && hasFreeSlot(zone));
  const asked = ({limiter}: {limiter: Limiter}) => limiter.asked_at ?? '';
  const [next] = isDue(pool.limiter, bundle, now)
    ? ready.sort((a, b) => asked(a).localeCompare(asked(b)))
    : [];
  for (const {zone, brake} of zones) {
    const probes = pool.limiter.cause === 'person' ? 0 : (brake?.probes_due ?? 0);
    const most = Math.max(probes, zone === next?.zone ? 1 : 0);
    allowed.set(zone, Math.min(allowed.get(zone) ?? 0, most));
  }
  return allowed;
}

/**
 * Slots that no plan may use. A slot without a document may have a node that no list shows. In an unreachable zone, an empty slot and a
 * create without effect must not keep work from another zone.
 */
function hiddenSlots(
  {pool, workers, nodes, zones = []}: Snapshot,
  {limits}: TickConfig,
  now: number,
): string[] {
  const isHopeless = (worker: Worker) => {
    if (hasEnded(worker)) return true;
    const {phase, provider_state, queue_state, asked_at} = worker;
    const isUnseen = provider_state === null && queue_state === null;
    return phase === 'creating' && isUnseen && isOlderThan(asked_at, limits.ask_again_s, now);
  };
  // A list may omit an orphan: in a zone with many orphans, a slot without a document may have a node.
  const marked = new Set(zones.flatMap(({zone, orphans}) => (orphans ? zone : [])));
  const isHidden = (name: string, zone: string) => {
    const worker = workers.get(name);
    const isUnreachable = nodes?.unreachable.includes(zone) ?? false;
    if (!worker) return !nodes || isUnreachable || marked.has(zone);
    return isUnreachable && isHopeless(worker);
  };
  return slotsOf(pool).flatMap(({name, zone}) => (isHidden(name, zone) ? name : []));
}
