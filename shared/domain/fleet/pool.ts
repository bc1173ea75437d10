import {workerName} from '../names.ts';
import type {Said} from '../publish-order.ts';
import {isOlderThan} from '../time.ts';
import type {Phase, Worker} from '../worker/worker.ts';
import {isBlocked} from '../worker/worker.ts';
import type {Boots} from './breakers.ts';
import type {Provisioning} from './placement.ts';

/** A set of identical TPU slots, numbered from 0 in each zone. The deployment says what it begins with; messages change it. */
export type Pool = {
  pool: string;
  accelerator: string;
  runtime_version: string;
  spot: boolean;
  provisioning: Provisioning;
  zones: string[];
  workers_per_zone: number;
  /** Grows with every message that changed it. */
  version: number;
  said: Said;
  /** Dollars that all its TPUs may cost, since ever; null is no limit. */
  budget_usd: number | null;
  /** What its TPUs that have ended cost. */
  spent_usd: number;
  boots: Boots;
  /** Seconds after which a worker without work asks again, or a little more. */
  poll_s: number;
};

/** The pool's slots, the first zone's first: the order in which they are filled. */
export function slotsOf(pool: Pool): {name: string; pool: string; zone: string; slot: number}[] {
  return pool.zones.flatMap(zone =>
    Array.from({length: pool.workers_per_zone}, (_, slot) => ({
      name: workerName({pool: pool.pool, zone, slot}),
      pool: pool.pool,
      zone,
      slot,
    })),
  );
}

/**
 * Which TPUs may work on a run. `any`: whichever is free. `fixed`: stream N is for the slot with number N - stream_offset, counted
 * over all zones as `slotsOf` has them: one stream a worker, and the same one also when its TPU was made again.
 */
export type Assignment = {affinity: 'any' | 'fixed'; stream_offset: number};

/** The slots that a stream of the run may go to: undefined is any, and none is a stream that the pool has no slot for. */
export function slotsFor(pool: Pool, run: Assignment, worker_id: number): string[] | undefined {
  if (run.affinity === 'any') return undefined;
  const number = worker_id - run.stream_offset;
  const zone = pool.zones[Math.floor(number / pool.workers_per_zone)];
  if (number < 0 || zone === undefined) return [];
  return [workerName({pool: pool.pool, zone, slot: number % pool.workers_per_zone})];
}

/** The stream of the run that is for this slot alone, whether or not there is one; undefined for a slot that is not the pool's. */
export function streamFor(pool: Pool, {stream_offset}: Assignment, worker: string): number | undefined {
  const number = slotsOf(pool).findIndex(({name}) => name === worker);
  return number < 0 ? undefined : number + stream_offset;
}

/** Those furthest on in their work are kept first, so that a shrinking pool loses what costs least to lose. */
const KEEP_ORDER: Record<Phase, number> = {
  working: 0,
  idle: 1,
  booting: 2,
  creating: 3,
  deleting: 4,
  gone: 4,
  draining: 5,
};

/** A node that takes longer than this to go away holds up its slot, and not the work. */
const STUCK_DELETE_S = 600;

export type WantedOptions = {
  /** Slots whose document cannot be read. */
  broken?: ReadonlySet<string>;
  /** Slots that have an unfinished stream which no other may work on. */
  fixed?: Pick<ReadonlySet<string>, 'has'>;
  /** How many nodes each zone may be asked for now; a zone that is not named, as many as there are. */
  allowances?: ReadonlyMap<string, number>;
  /** How many nodes may live at once, wanted or not. */
  most?: number;
  /** Probes that each zone is to be asked for: see brake.ts. */
  probes?: ReadonlyMap<string, number>;
};

/**
 * The names of the slots that should have a TPU: those with a stream that is theirs alone, as many others as there are unfinished
 * streams for anybody, and no more than there are slots.
 * A slot that is being deleted counts, for it will be made again, unless that takes too long; an empty one is
 * passed over while it waits or its zone gives none now, and so is one whose document is broken. No more are wanted than may live
 * at once, and nodes that still live take the place of new ones. A probe comes before the silent workers that wait for its word.
 */
export function wantedSlots(
  pool: Pool,
  workers: ReadonlyMap<string, Worker>,
  unfinished_streams: number,
  now: number,
  {
    broken = new Set(),
    allowances = new Map(),
    fixed = new Set(),
    most = Infinity,
    probes = new Map(),
  }: WantedOptions = {},
): Set<string> {
  const probing = new Set<string>();
  const rank = (name: string) => {
    const worker = workers.get(name);
    if (probing.has(name)) return KEEP_ORDER.booting;
    if (worker?.phase === 'deleting' && isOlderThan(worker.phase_since_at, STUCK_DELETE_S, now))
      return KEEP_ORDER.draining;
    // Its lease was taken from it, and it has said nothing since.
    if (worker?.phase === 'working' && worker.work === null) return KEEP_ORDER.creating;
    return worker ? KEEP_ORDER[worker.phase] : KEEP_ORDER.gone;
  };
  const left = new Map(allowances);
  const probesLeft = new Map(probes);
  const isEmpty = (name: string) => (workers.get(name)?.phase ?? 'gone') === 'gone';
  // What a zone gives goes first to those that nobody can stand in for.
  const inOrder = slotsOf(pool).sort((a, b) => Number(fixed.has(b.name)) - Number(fixed.has(a.name)));
  const candidates = inOrder.filter(({name, zone}) => {
    if (broken.has(name) || workers.get(name)?.held) return false;
    if (!isEmpty(name)) return true;
    if (!isOpenSlot(workers.get(name), now)) return false;
    const allowed = left.get(zone) ?? Number.POSITIVE_INFINITY;
    left.set(zone, allowed - 1);
    const due = probesLeft.get(zone) ?? 0;
    if (allowed > 0 && due > 0) probing.add(name);
    probesLeft.set(zone, due - 1);
    return allowed > 0;
  });
  const own = candidates.filter(({name}) => fixed.has(name)).map(({name}) => name);
  const sorted = candidates.filter(({name}) => !fixed.has(name)).map(({name}, order) => ({name, order}));
  sorted.sort((a, b) => rank(a.name) - rank(b.name) || a.order - b.order);
  const inNeed = [...own, ...sorted.slice(0, unfinished_streams).map(({name}) => name)];
  let creates = most - livingAmong(workers);
  return new Set(inNeed.filter(name => !isEmpty(name) || creates-- > 0).slice(0, Math.max(0, most)));
}

/** Whether a node may be asked for in the slot. */
export function isOpenSlot(worker: Worker | undefined, now: number): boolean {
  return worker === undefined || (worker.phase === 'gone' && !worker.held && !isBlocked(worker, now));
}

/** The nodes that are there or asked for, also those that are to go. */
export function livingAmong(workers: ReadonlyMap<string, Worker>): number {
  return [...workers.values()].filter(({phase}) => phase !== 'gone').length;
}
