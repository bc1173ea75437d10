/** Plan of the fleet: slots that should have a node, and the run that pays for each. Zones, silence guards, ceilings and budgets bound it. */
import {priceOf} from '../billing/budget.ts';
import {
  assignPayers,
  costOfDeleting,
  JOBS,
  KEPT,
  payerOf,
  type ReserveBudget,
  runAtWork,
} from '../billing/cost.ts';
import {runAcceleratorProblem} from '../fleet/accelerators.ts';
import {isOpenSlot, livingAmong, slotsOf, wantedSlots} from '../fleet/slots.ts';
import {parseJobWork, parseWorkerName} from '../names.ts';
import {type Constraint, constraint} from '../records/constraint.ts';
import {keptBy} from '../records/pool.ts';
import {isRunnable} from '../records/run.ts';
import {hasEnded, isAlive, type Worker} from '../records/worker.ts';
import type {Zone} from '../records/zone.ts';
import {byPreference} from '../stream/service-order.ts';
import {isOlderThan} from '../time.ts';
import {quietestHost} from '../worker/hosts.ts';
import {isServedFor} from '../worker/served-time.ts';
import {isDue, limiterConstraint, stateOf} from '../zone/limiter.ts';
import {ALLOWS_ALL, type Allowance, allowanceOf} from '../zone/placement.ts';
import {bindingConstraints, type Constraints} from './binding.ts';
import type {Budgets} from './budgets.ts';
import {type Gathering, gatherSlots} from './gangs.ts';
import type {Orphans} from './orphans.ts';
import type {Snapshot, TickConfig} from './snapshot.ts';

export type FleetPlan = {
  wanted: ReadonlySet<string>;
  /** The run that pays for each new or idle node. */
  payers: ReadonlyMap<string, string | null>;
  /** Limit of the count of all creates, this plan's included: another tick may create nodes at the same time. */
  mostCreates: number;
  /** Creates of this plan, and the dollars that are set aside for them: later pools of the tick have the rest. */
  creates: number;
  reserved_usd: number;
  /** Dollars that the budgets of each payer have left beside these creates. */
  spare: ReadonlyMap<string, number>;
  /** Why work and zones of the pool wait: the words for what this plan withholds. */
  constraints: Constraints;
  gathering: Gathering;
};

const NO_GATHERING: Gathering = {wanted: new Set(), kept: new Map(), yielding: new Map(), vain: []};

const NO_CREATES = {mostCreates: 0, creates: 0, reserved_usd: 0, spare: new Map<string, number>()};

/** Decisions before the fleet plan: budgets, nodes without a slot, silent workers. */
type Decided = {budgets: Budgets; orphans: Orphans; silent: ReadonlySet<string>};

export function planFleet(snapshot: Snapshot, decided: Decided, config: TickConfig, now: number): FleetPlan {
  const {pool, workers, zones} = snapshot;
  const {budgets, orphans, silent} = decided;
  const work = remainingWork(snapshot, decided, config, now);
  const facts = {snapshot, budgets, silent, now};
  // Without counts of streams or zones, the plan creates no node and deletes none for lack of work.
  if ('kind' in work || !zones) {
    const hole = 'kind' in work ? work : constraint('not-read', 'the documents of the zones');
    const payers = new Map<string, string | null>();
    const nothing = {withheld: new Map(), limits: new Map(), unpaid: new Set<string>()};
    const constraints = bindingConstraints({...facts, ...nothing, hole, payers});
    const mostCreates = snapshot.creates ?? 0;
    const living = namesOf(workers, ({phase}) => phase !== 'gone');
    const nodes = {wanted: new Set(living), payers, gathering: NO_GATHERING};
    return {...nodes, ...NO_CREATES, mostCreates, constraints};
  }
  const {gathering} = work;
  const most = mostNodes(snapshot, orphans, config);
  const {wanted, withheld, limits} = chooseSlots({...snapshot, zones}, decided, work, most, config, now);
  const {payers, unpaid} = payersOf(snapshot, decided, work, wanted);
  for (const [name, run] of payers) if (run === null) wanted.delete(name);
  for (const name of workersOfUnreadableRuns(snapshot)) wanted.add(name);
  const empty = [...wanted].filter(name => (workers.get(name)?.phase ?? 'gone') === 'gone');
  // No node is created from prices, a month or a count of creates that were not read.
  const hole = unreadPart(snapshot);
  if (hole) for (const name of empty) withheld.set(name, hole);
  const given = new Map([...payers].filter(([name]) => !hole || !empty.includes(name)));
  const constraints = bindingConstraints({
    ...facts,
    limits,
    hole: undefined,
    withheld,
    payers: given,
    unpaid,
  });
  if (hole || snapshot.creates === undefined) return {wanted, payers, ...NO_CREATES, constraints, gathering};
  const room = most - livingAmong(workers);
  // A budget pays for the creates of this plan alone: creates of another tick take their place.
  const mostCreates = snapshot.creates + (isBounded(snapshot, config) ? Math.min(room, empty.length) : room);
  const costOf = (slots: readonly string[]) =>
    slots.reduce((sum, name) => {
      const usd = priceOf(snapshot.prices ?? {}, pool, parseWorkerName(name)?.zone ?? '');
      return sum + costOfDeleting(usd ?? 0);
    }, 0);
  const reserved_usd = costOf(empty);
  const left_usd = budgets.left_usd - orphans.usd - reserved_usd;
  const byPayer = Map.groupBy(empty, name => payers.get(name) ?? '');
  const spare = new Map(
    [...byPayer].map(([payer, slots]) => [payer, Math.min(left_usd, budgets.leftOf(payer) - costOf(slots))]),
  );
  const creates = {mostCreates, creates: empty.length, reserved_usd, spare};
  return {wanted, payers, ...creates, constraints, gathering};
}

/** The nodes that the deployment allows the pool, beside those of other pools and nodes that no readable document has. */
function mostNodes({unreadable, others}: Snapshot, orphans: Orphans, {ceilings}: TickConfig): number {
  const elsewhere = others.workers.filter(({phase}) => phase !== 'gone').length + others.nodes;
  return ceilings.max_workers - unreadable.size - orphans.names.length - elsewhere;
}

function isBounded({pool, runs}: Snapshot, {ceilings}: TickConfig): boolean {
  return ceilings.max_budget_usd !== null || [pool, ...runs].some(({budget_usd}) => budget_usd !== null);
}

/** The slots that the work needs and its zones allow, and the creates that each zone allows. */
function chooseSlots(
  snapshot: Snapshot & {zones: readonly Zone[]},
  decided: Decided,
  work: Work,
  most: number,
  config: TickConfig,
  now: number,
) {
  const {pool, workers, zones} = snapshot;
  const broken = brokenSlots(snapshot, decided, work.gathering, config, now);
  const isFree = ({name}: {name: string}) => !broken.has(name) && isOpenSlot(workers.get(name), now);
  const free = new Set(slotsOf(pool).flatMap(slot => (isFree(slot) ? slot.zone : [])));
  const limits = createsPerZone(snapshot, zone => free.has(zone), config, now);
  const limited = zones.filter(({limiter}) => stateOf(limiter, config.bundle) !== 'open');
  const streams = work.open.reduce((sum, {streams}) => sum + streams, 0);
  const {wanted, withheld} = wantedSlots(pool, workers, streams, now, {
    broken,
    allowances: limits,
    fixed: work.fixed,
    most,
    canaries: new Map(zones.map(({zone, silence_guard}) => [zone, silence_guard?.canaries_due ?? 0])),
    limited: new Set(limited.map(({zone}) => zone)),
    silent: decided.silent,
  });
  return {wanted, withheld: new Map(withheld), limits};
}

function brokenSlots(
  snapshot: Snapshot,
  {budgets, orphans}: Decided,
  {kept, wanted}: Gathering,
  config: TickConfig,
  now: number,
): Map<string, Constraint> {
  const spared = [...kept].filter(([name]) => !wanted.has(name));
  const unreadable = [...workersOfUnreadableRuns(snapshot), ...snapshot.unreadable];
  return new Map<string, Constraint>([
    ...spared.map(
      ([name, job]) => [name, constraint('slices', `job ${job}`, `the job keeps ${name}`)] as const,
    ),
    ...silentOfInactiveRuns(snapshot, config).map(
      name => [name, constraint('away', name, 'it sends nothing')] as const,
    ),
    ...hiddenSlots(snapshot, config, now),
    ...orphans.names.map(name => [name, constraint('orphans', parseWorkerName(name)?.zone ?? name)] as const),
    ...[...budgets.dismissed].map(name => [name, constraint('away', name, 'it leaves its slot')] as const),
    ...unreadable.map(name => [name, constraint('unreadable', `the document of ${name}`)] as const),
  ]);
}

/** The payer of each new or idle node, and the payers whose budget pays for no further node. */
function payersOf(
  snapshot: Snapshot,
  {budgets, orphans}: Decided,
  {open, fixed}: Work,
  wanted: ReadonlySet<string>,
) {
  const unpaid = new Set<string>();
  const reserveOne = budgets.newReserver(orphans.usd);
  const reserve: ReserveBudget = (run, slot) => {
    const isPaid = reserveOne(run, slot);
    if (!isPaid) unpaid.add(run);
    return isPaid;
  };
  return {payers: assignPayers(wanted, snapshot.workers, open, fixed, reserve), unpaid};
}

/** The part of the snapshot without which no node is created; undefined if all were read. */
function unreadPart({prices, month, creates}: Snapshot): Constraint | undefined {
  if (!prices) return constraint('not-read', 'prices/chips');
  if (month?.spent_usd === undefined) return constraint('not-read', 'system/spending');
  return creates === undefined ? constraint('not-read', 'system/creates') : undefined;
}

/** `open`: jobs and unfinished streams for any slot, by payer in the order of service: a person waits for a job. Last, TPUs to keep beyond those. `fixed`: the run of each slot with a bound stream. */
type Work = {
  open: {run: string; streams: number}[];
  fixed: Map<string, string>;
  gathering: Gathering;
};

/** A constraint if the pool is unreadable, or if its jobs, or the streams of a run within its budget, could not be counted. */
function remainingWork(
  {pool, isUnreadable, jobs, workers, runs, streams}: Snapshot,
  {budgets: {over, whole}, silent}: Decided,
  {limits}: TickConfig,
  now: number,
): Work | Constraint {
  if (isUnreadable) return constraint('unreadable', `the document of pool ${pool.pool}`);
  if (!jobs) return constraint('not-read', `the jobs of pool ${pool.pool}`);
  const canRun = runAcceleratorProblem(pool.accelerator) === undefined;
  const served = runs
    .filter(run => canRun && isRunnable(run) && run.pool === pool.pool && !over.has(run.run))
    .sort(byPreference(null));
  const atJobs = [...workers.values()].filter(({work}) => parseJobWork(work) !== undefined).length;
  const gangs = (jobs.first ?? []).filter(({slices}) => slices > 1);
  const ofOne = jobs.waiting - gangs.length + atJobs;
  const isWithin = whole === undefined;
  const gathering = isWithin ? gatherSlots({pool, workers, silent}, gangs, limits.boot_s, now) : NO_GATHERING;
  const work: Work = {open: [], fixed: new Map(), gathering};
  if (isWithin && ofOne > 0) work.open.push({run: JOBS, streams: ofOne});
  for (const slot of gathering.wanted) work.fixed.set(slot, JOBS);
  for (const {run, affinity} of served) {
    const counts = streams.get(run);
    if (!counts) return constraint('not-read', `the streams of run ${run}`);
    if (affinity === 'any') work.open.push({run, streams: counts.unfinished});
    for (const slot of counts.slots) if (!work.fixed.has(slot)) work.fixed.set(slot, run);
  }
  const asked = work.open.reduce((sum, {streams}) => sum + streams, work.fixed.size);
  const kept = whole === undefined ? keptBy(pool, now) - asked : 0;
  if (kept > 0) work.open.push({run: KEPT, streams: kept});
  return work;
}

/** Living workers that work for an unreadable run, or were created for it. No other run counts on them, and none is deleted for lack of work. */
function workersOfUnreadableRuns({workers, unreadable_runs}: Snapshot): string[] {
  const isOf = (worker: Worker) => unreadable_runs.has(runAtWork(worker) ?? payerOf(worker) ?? '');
  return namesOf(workers, worker => worker.phase !== 'gone' && isOf(worker));
}

function namesOf(workers: ReadonlyMap<string, Worker>, isNamed: (worker: Worker) => boolean): string[] {
  return [...workers.values()].filter(isNamed).map(({name}) => name);
}

/** Living workers that have sent nothing for `silent_s`. */
export function silentWorkers({workers, served}: Pick<Snapshot, 'workers' | 'served'>, silent_s: number) {
  const isSilent = (worker: Worker) =>
    isAlive(worker) && isServedFor(served, quietestHost(worker).at, silent_s);
  return new Set(namesOf(workers, isSilent));
}

/** Silent workers whose run has ended or is paused. No silence guard keeps them longer than a drain takes. A job has no such run. */
function silentOfInactiveRuns({workers, runs, served}: Snapshot, {limits}: TickConfig): string[] {
  const active = new Set(runs.filter(({status}) => status === 'active').map(({run}) => run));
  return namesOf(workers, worker => {
    const isSilent = isAlive(worker) && worker.suspect !== null;
    const isLate = isServedFor(served, worker.heartbeat_at, limits.drain_s);
    const isAtJob = parseJobWork(worker.suspect?.work ?? null) !== undefined;
    return isSilent && isLate && !isAtJob && !active.has(runAtWork(worker) ?? '');
  });
}

/** Creates that each zone allows now. A stopped pool tries one zone at a time: the zone that was asked longest ago. */
function createsPerZone(
  {pool, zones = []}: Snapshot,
  hasFreeSlot: (zone: string) => boolean,
  {bundle, placement}: TickConfig,
  now: number,
): Map<string, Allowance> {
  const known = new Map(zones.map(zone => [zone.zone, zone]));
  const allowanceIn = (name: string) => {
    const zone = known.get(name);
    return zone ? allowanceOf(zone, placement, bundle, now) : ALLOWS_ALL;
  };
  const allowed = new Map(pool.zones.map(zone => [zone, allowanceIn(zone)]));
  if (stateOf(pool.limiter, bundle) === 'open') return allowed;
  const why = limiterConstraint(`pool ${pool.pool}`, pool.limiter, bundle);
  const ready = pool.zones.filter(zone => (allowed.get(zone)?.most ?? 0) > 0 && hasFreeSlot(zone));
  const asked = (zone: string) => known.get(zone)?.limiter.asked_at ?? '';
  const [next] = isDue(pool.limiter, bundle, now)
    ? ready.sort((a, b) => asked(a).localeCompare(asked(b)))
    : [];
  for (const [zone, {most}] of allowed) {
    const canaries =
      pool.limiter.cause === 'person' ? 0 : (known.get(zone)?.silence_guard?.canaries_due ?? 0);
    const least = Math.max(canaries, zone === next ? 1 : 0);
    allowed.set(zone, {most: Math.min(most, least), why});
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
): [string, Constraint][] {
  const isHopeless = (worker: Worker) => {
    if (hasEnded(worker)) return true;
    const {phase, provider_state, queue_state, asked_at} = worker;
    const isUnseen = provider_state === null && queue_state === null;
    return phase === 'creating' && isUnseen && isOlderThan(asked_at, limits.ask_again_s, now);
  };
  // A list may omit an orphan: in a zone with many orphans, a slot without a document may have a node.
  const marked = new Set(zones.flatMap(({zone, orphans}) => (orphans ? zone : [])));
  const whyHidden = (name: string, zone: string): Constraint | undefined => {
    const worker = workers.get(name);
    const isUnreachable = nodes?.unreachable.includes(zone) ?? false;
    const isHidden = worker
      ? isUnreachable && isHopeless(worker)
      : !nodes || isUnreachable || marked.has(zone);
    if (!isHidden) return undefined;
    if (isUnreachable) return constraint('zone', zone, 'Cloud TPU does not answer');
    return nodes ? constraint('orphans', zone) : constraint('not-read', 'the list of nodes');
  };
  return slotsOf(pool).flatMap(({name, zone}) => {
    const why = whyHidden(name, zone);
    return why ? [[name, why]] : [];
  });
}
