/** Slots that the plan may not use, and the creates that each zone allows: each with its reason. */
import {payerOf, runAtWork} from '../billing/cost.ts';
import {isEmptySlot, slotsOf} from '../fleet/slots.ts';
import {parseJobWork, parseWorkerName} from '../names.ts';
import {type Constraint, constraint} from '../records/constraint.ts';
import {hasEnded, isAlive, type Worker, type Workers} from '../records/worker.ts';
import {isOlderThan} from '../time.ts';
import {quietestHost} from '../worker/hosts.ts';
import {isServedFor} from '../worker/served-time.ts';
import {isDue, limiterConstraint, stateOf} from '../zone/limiter.ts';
import {ALLOWS_ALL, type Allowance, allowanceOf} from '../zone/placement.ts';
import type {Budgets} from './budgets.ts';
import type {Gathering} from './gangs.ts';
import type {Orphans} from './orphans.ts';
import {rateLimit} from './shared-documents.ts';
import type {Snapshot, TickConfig} from './snapshot.ts';

/** Decisions made before the fleet plan: budgets, nodes without a slot, silent workers. */
export type Decided = {budgets: Budgets; orphans: Orphans; silent: ReadonlySet<string>};

export function blockedSlots(
  snapshot: Snapshot,
  {budgets, orphans}: Decided,
  {reservedFor, wanted}: Gathering,
  config: TickConfig,
  now: number,
): Map<string, Constraint> {
  const spared = [...reservedFor].filter(([name]) => !wanted.has(name));
  const unreadable = [...workersOfUnreadableRuns(snapshot), ...snapshot.unreadable];
  const stop = createStop(snapshot, now);
  return new Map<string, Constraint>([
    // No node is created, and existing nodes stay.
    ...slotsOf(snapshot.pool).flatMap(({name}) =>
      stop && isEmptySlot(snapshot.workers.get(name)) ? [[name, stop] as const] : [],
    ),
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

/** Why no node at all is created: a part of the snapshot is missing, or Google limits the creates of the project. */
export function createStop({prices, month, creates, creates_next_at}: Snapshot, now: number) {
  if (!prices) return constraint('not-read', 'prices/chips');
  if (month?.spent_usd === undefined) return constraint('not-read', 'system/spending');
  if (creates === undefined) return constraint('not-read', 'system/creates');
  return rateLimit(creates_next_at, now);
}

/** Living workers that work for an unreadable run, or were created for it. No other run may use them, and none is deleted for lack of work. */
export function workersOfUnreadableRuns({workers, unreadable_runs}: Snapshot): string[] {
  const isOf = (worker: Worker) => unreadable_runs.has(runAtWork(worker) ?? payerOf(worker) ?? '');
  return namesOf(workers, worker => worker.phase !== 'gone' && isOf(worker));
}

function namesOf(workers: Workers, isNamed: (worker: Worker) => boolean): string[] {
  return [...workers.values()].filter(isNamed).map(({name}) => name);
}

/** Living workers that have sent nothing for `silent_s`. */
export function silentWorkers(
  {workers, servedTime}: Pick<Snapshot, 'workers' | 'servedTime'>,
  silent_s: number,
) {
  const isSilent = (worker: Worker) =>
    isAlive(worker) && isServedFor(servedTime, quietestHost(worker).at, silent_s);
  return new Set(namesOf(workers, isSilent));
}

/** Silent workers whose run has ended or is paused. The silence guard keeps them no longer than a drain takes. Jobs have no such run. */
function silentOfInactiveRuns({workers, runs, servedTime}: Snapshot, {limits}: TickConfig): string[] {
  const active = new Set(runs.filter(({status}) => status === 'active').map(({run}) => run));
  return namesOf(workers, worker => {
    const isSilent = isAlive(worker) && worker.suspect !== null;
    const isLate = isServedFor(servedTime, worker.heartbeat_at, limits.drain_s);
    const isAtJob = parseJobWork(worker.suspect?.work ?? null) !== undefined;
    return isSilent && isLate && !isAtJob && !active.has(runAtWork(worker) ?? '');
  });
}

/** Creates that each zone allows now. A stopped pool tries one zone at a time, starting with the one that was asked longest ago. */
export function createsPerZone(
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
 * Slots that no plan may use. A slot without a document may have a node that no list shows. In an unreachable zone, neither an empty slot nor
 * a create without effect may keep work from another zone.
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
  // A list may omit an orphan: in a zone with many orphans, a slot without a document may still have a node.
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
