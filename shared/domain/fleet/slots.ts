import {type Slot, workerName} from '../names.ts';
import {type Constraint, constraint} from '../records/constraint.ts';
import type {Pool} from '../records/pool.ts';
import type {Run} from '../records/run.ts';
import type {Phase, Worker, Workers} from '../records/worker.ts';
import {isOlderThan} from '../time.ts';
import {slotConstraint} from '../worker/tpu-constraint.ts';
import {ALLOWS_ALL, type Allowance} from '../zone/placement.ts';
import {hasSpoken} from '../zone/silence-guard.ts';

/** Slots of the pool, zone by zone, in the order in which they are filled. */
export function slotsOf({pool, zones, workers_per_zone}: Pool): (Slot & {name: string})[] {
  const numbers = Array.from({length: workers_per_zone}, (_, slot) => slot);
  const places = zones.flatMap(zone => numbers.map(slot => ({pool, zone, slot})));
  return places.map(place => ({name: workerName(place), ...place}));
}

/** Waiting streams from which on a run counts as large: the ticks of smaller runs cost little. */
export const LARGE = 1000;

/**
 * True if the last tick counted enough waiting streams of the run for every slot of the pool: although one more comes, or each TPU ends the
 * stream that it has, the next plan is the same.
 */
export function fillsPool(
  {status, affinity, streams_pending}: Run,
  {zones, workers_per_zone}: Pool,
): boolean {
  return status === 'active' && affinity === 'any' && streams_pending >= zones.length * workers_per_zone;
}

/** Zones without a slot for a canary: each slot has a worker that has sent a heartbeat, or stays empty after a `delete`. */
export function fullZones(pool: Pool, workers: Workers): Set<string> {
  const isTaken = ({name}: {name: string}) => {
    const worker = workers.get(name);
    return worker !== undefined && (worker.held || hasSpoken(worker));
  };
  const slots = Map.groupBy(slotsOf(pool), ({zone}) => zone);
  return new Set(pool.zones.filter(zone => slots.get(zone)?.every(isTaken)));
}

/**
 * Slots that may work on a run. `any`: every slot. `fixed`: stream N belongs to slot number N - stream_offset, in the order of `slotsOf`. A
 * slot keeps its stream when its TPU is recreated.
 */
export type Assignment = {affinity: 'any' | 'fixed'; stream_offset: number};

/** Slots that may work on a stream of the run. Undefined: every slot. Empty: the pool does not have the slot of the stream. */
export function slotsFor(pool: Pool, run: Assignment, worker_id: number): string[] | undefined {
  if (run.affinity === 'any') return undefined;
  const number = worker_id - run.stream_offset;
  const zone = pool.zones[Math.floor(number / pool.workers_per_zone)];
  if (number < 0 || zone === undefined) return [];
  return [workerName({pool: pool.pool, zone, slot: number % pool.workers_per_zone})];
}

/** Number of the stream that is bound to this slot, whether or not it exists. Undefined for a slot outside the pool. */
export function streamFor(pool: Pool, {stream_offset}: Assignment, worker: string): number | undefined {
  const number = slotsOf(pool).findIndex(({name}) => name === worker);
  return number < 0 ? undefined : number + stream_offset;
}

/** Order in which a shrinking pool keeps workers: the most advanced first, to lose the least work. */
const KEEP_ORDER: Record<Phase, number> = {
  working: 0,
  idle: 1,
  booting: 2,
  creating: 3,
  deleting: 4,
  gone: 4,
  draining: 5,
};

/** Rank of a slot without a node in a zone that is not open: after the empty slots of open zones. */
const LIMITED_ORDER = 4.5;

/** A requested node that no list shows blocks its work for this long; then an open zone takes the work. Older lists may leave the node out. */
const UNSHOWN_S = 90;

/** A node that is still deleting after this many seconds no longer counts for a stream: another slot takes the work. */
const STUCK_DELETE_S = 600;

export type WantedOptions = {
  /** Slots that no plan may use, for example with an invalid document, and why. */
  blocked: ReadonlyMap<string, Constraint>;
  /** Slots with an unfinished stream that is bound to them. */
  bound: ReadonlySet<string>;
  /** Creates that each zone allows now. A zone without an entry has no limit. */
  allowances: ReadonlyMap<string, Allowance>;
  most: number;
  /** Canaries that each zone is due: see silence-guard.ts. */
  canaries: ReadonlyMap<string, number>;
  /** Zones whose limiter is not open. Their slots rank after the empty slots of other zones. */
  limited: ReadonlySet<string>;
  silent: ReadonlySet<string>;
};

/** `wanted`: slots that should have a TPU. `withheld`: slots that get none although work may wait for them, with the reason. */
export type ChosenSlots = {wanted: Set<string>; withheld: ReadonlyMap<string, Constraint>};

/**
 * Chooses the slots that should have a TPU: each slot with a bound stream, and a slot for each other unfinished stream.
 * - A deleting slot counts, because its TPU will be created again, but only for `STUCK_DELETE_S`.
 * - An empty slot is left out if it is blocked itself, is in `blocked`, or its zone allows no create.
 * - Living nodes count against `most` before new nodes.
 * - A canary comes before the silent workers that depend on its first heartbeat.
 */
export function wantedSlots(
  pool: Pool,
  workers: Workers,
  unfinished_streams: number,
  now: number,
  {blocked, allowances, bound, most, canaries, limited, silent}: WantedOptions,
): ChosenSlots {
  const probing = new Set<string>();
  const rank = ({name, zone}: {name: string; zone: string}) => {
    const worker = workers.get(name);
    if (probing.has(name)) return KEEP_ORDER.booting;
    if (worker?.phase === 'deleting' && isOlderThan(worker.phase_since_at, STUCK_DELETE_S, now))
      return KEEP_ORDER.draining;
    // The lease of this worker was revoked, and it has sent nothing since.
    if (silent.has(name) || (worker?.phase === 'working' && worker.work === null)) return KEEP_ORDER.creating;
    if (limited.has(zone) && isWithoutNode(worker, now)) return LIMITED_ORDER;
    return worker ? KEEP_ORDER[worker.phase] : KEEP_ORDER.gone;
  };
  const createsLeft = new Map(allowances);
  const canariesLeft = new Map(canaries);
  const isEmpty = (name: string) => isEmptySlot(workers.get(name));
  // A zone creates nodes for slots with a bound stream first, because no other slot can replace them.
  const inOrder = slotsOf(pool).sort((a, b) => Number(bound.has(b.name)) - Number(bound.has(a.name)));
  const whyNot = ({name, zone}: {name: string; zone: string}): Constraint | undefined => {
    const own = blocked.get(name) ?? slotConstraint(workers.get(name), now);
    if (own || !isEmpty(name)) return own;
    const allowed = createsLeft.get(zone) ?? ALLOWS_ALL;
    createsLeft.set(zone, {...allowed, most: allowed.most - 1});
    const due = canariesLeft.get(zone) ?? 0;
    if (allowed.most > 0 && due > 0) probing.add(name);
    canariesLeft.set(zone, due - 1);
    return allowed.most > 0 ? undefined : (allowed.why ?? constraint('unreadable', `zone ${zone}`));
  };
  const withheld = new Map<string, Constraint>();
  const candidates = inOrder.filter(slot => {
    const why = whyNot(slot);
    if (why) withheld.set(slot.name, why);
    return !why;
  });
  const own = candidates.filter(({name}) => bound.has(name)).map(({name}) => name);
  const sorted = candidates
    .filter(({name}) => !bound.has(name))
    .map(({name, zone}, order) => ({name, zone, order}));
  sorted.sort((a, b) => rank(a) - rank(b) || a.order - b.order);
  const inNeed = [...own, ...sorted.slice(0, unfinished_streams).map(({name}) => name)];
  let creates = most - livingAmong(workers);
  const within = inNeed.filter(name => !isEmpty(name) || creates-- > 0).slice(0, Math.max(0, most));
  const wanted = new Set(within);
  const ceiling = constraint(
    'ceiling',
    `only ${most === 1 ? '1 TPU' : `${Math.max(0, most)} TPUs`} of pool ${pool.pool}`,
    'GLEANER_MAX_WORKERS counts the TPUs of all pools',
  );
  for (const name of inNeed) if (!wanted.has(name)) withheld.set(name, ceiling);
  return {wanted, withheld};
}

function isWithoutNode(worker: Worker | undefined, now: number): boolean {
  if (!worker || worker.phase === 'gone') return true;
  const isShown = worker.provider_state !== null || worker.queue_state !== null;
  return worker.phase === 'creating' && !isShown && isOlderThan(worker.asked_at, UNSHOWN_S, now);
}

/** True for a slot without a node, whether or not it has a document. */
export const isEmptySlot = (worker: Worker | undefined) => (worker?.phase ?? 'gone') === 'gone';

export function isOpenSlot(worker: Worker | undefined, now: number): boolean {
  return worker === undefined || (worker.phase === 'gone' && !slotConstraint(worker, now));
}

/** Count of nodes that exist or were requested, including those being deleted. */
export function livingAmong(workers: Workers): number {
  return [...workers.values()].filter(({phase}) => phase !== 'gone').length;
}
