/** Documents that decisions about several slots share: zones, pool and runs. Each decision changes them for those after it. */
import type {Payers} from '../billing/bills.ts';
import {runAtWork} from '../billing/cost.ts';
import {type Constraint, constraint} from '../records/constraint.ts';
import type {Limiter} from '../records/limiter.ts';
import type {Pool} from '../records/pool.ts';
import type {Stream} from '../records/stream.ts';
import type {Worker} from '../records/worker.ts';
import type {Zone} from '../records/zone.ts';
import {afterMachineDeath, afterMachineFailedStream} from '../run/machine-deaths.ts';
import {iso, msOf} from '../time.ts';
import type {Death} from '../worker/liveness.ts';
import {afterAsk, afterFailedBoot, afterLostTry, isDue, type RetryLimits, stateOf} from '../zone/limiter.ts';
import {isLeftAlone, type PlacementLimits} from '../zone/placement.ts';
import {
  afterCreate,
  afterLostCanary,
  afterUnheard,
  decideSilence,
  type Verdict,
} from '../zone/silence-guard.ts';
import type {ZoneSettings} from '../zone/zone-changes.ts';
import type {PlanInputs} from './slots.ts';

/** `pool`: undefined if its document is invalid. Then no node is created until an operator fixes the document. */
export type SharedDocuments = Payers & {
  zones: Map<string, Zone>;
  /** Count of all creates ever requested; undefined if no create is decided. */
  creates: Creates | undefined;
};

export type Creates = {creates: number; late_pools: string[]; next_at: string | null};

/** Earliest time of the next create after the answer that the project creates too many: Google counts creates by the minute. */
export const nextAfterRate = (now: number) => iso(now + 60_000);

/** Why no pool may request a node now: Google answered that the project creates too many a minute. Undefined once the pause is over. */
export function rateLimit(next_at: string | null, now: number): Constraint | undefined {
  if (next_at === null || msOf(next_at) <= now) return undefined;
  return constraint('rate', 'the project', null, {next_try_at: next_at});
}

/**
 * Verdict of the zone's silence guard on a silent worker; undefined for any other worker. If the zone's document is invalid, the share
 * already replaced is unknown, so the guard holds every worker that is not lost.
 */
export function judgeSilence(
  {zones}: SharedDocuments,
  {before, death}: {before: Worker; death?: Death},
  {fullZones, speakersByZone, lostWorkers, read_at_ms, servedTime}: PlanInputs,
  silent_s: number,
  now: number,
): Verdict | undefined {
  const zone = zones.get(before.zone);
  if (death?.kind !== 'silent' || !zone) return undefined;
  const isLost = lostWorkers.has(before.name);
  if (isLeftAlone(zone)) return isLost ? 'ends' : 'held';
  // A slot that was emptied since the snapshot has room for a canary.
  const replaced_at = zone.silence_guard?.replaced_at ?? null;
  const isCrowded = fullZones.has(zone.zone) && (replaced_at === null || msOf(replaced_at) < read_at_ms);
  const silent = {worker: before, speakers: speakersByZone.get(zone.zone) ?? 0, isCrowded, isLost, silent_s};
  const {verdict, silence_guard} = decideSilence(zone.silence_guard, silent, {now, servedTime});
  zones.set(zone.zone, {...zone, silence_guard});
  return verdict;
}

/**
 * Lets a new node boot: a canary always, others unless the pool stops creates. Undefined: no node may boot. Canaries and the tries of a stop
 * are fixed when they are requested, so a refused incarnation that is requested again counts for the present stop.
 */
export function grantBoot(
  shared: SharedDocuments,
  name: string,
  {placement, bundle}: ZoneSettings,
  now: number,
): (Pick<Worker, 'is_canary' | 'bundle'> & Partial<Worker>) | undefined {
  const {pool, zones} = shared;
  const zone = zones.get(name);
  if (!zone || !pool || pool.limiter.cause === 'person') return undefined;
  const {silence_guard} = zone;
  const born_at = iso(now);
  if (silence_guard !== null && silence_guard.canaries_due > 0) {
    zones.set(name, {...zone, silence_guard: afterCreate(silence_guard)});
    return {is_canary: true, bundle, born_at};
  }
  if (!isDue(pool.limiter, bundle, now)) return undefined;
  const boot = {is_canary: false, bundle};
  const [ofPool, ofZone] = [pool, zone].map(({limiter}) => stateOf(limiter, bundle));
  if (ofPool !== 'stopped') return ofZone === 'stopped' ? {...boot, born_at} : boot;
  shared.pool = {...pool, limiter: afterAsk(pool.limiter, bundle, placement, now)};
  return {...boot, born_at};
}

/** Zone and pool after a node that was refused or ended before its agent sent anything: it proves nothing about boots. */
export function afterLostBoot(
  zone: Zone,
  pool: Pool | undefined,
  worker: Worker,
  placement: PlacementLimits,
  now: number,
): {zone: Zone; pool: Pool | undefined} {
  const silence_guard = zone.silence_guard && afterLostCanary(zone.silence_guard, worker);
  const due = silence_guard === zone.silence_guard ? zone : {...zone, silence_guard};
  return {
    zone: withoutTry(due, worker, placement, now),
    pool: pool && withoutTry(pool, worker, placement, now),
  };
}

/** Returns the same object if nothing changes, because an unchanged document is not written. */
function withoutTry<T extends {limiter: Limiter}>(
  document: T,
  worker: Worker,
  limits: RetryLimits,
  now: number,
): T {
  const limiter = afterLostTry(document.limiter, worker, limits, now);
  return limiter === document.limiter ? document : {...document, limiter};
}

/** Takes back the try of a node that ended before its agent sent anything. */
export function giveBootBack(
  shared: SharedDocuments,
  worker: Worker,
  placement: PlacementLimits,
  now: number,
): void {
  const before = shared.zones.get(worker.zone);
  if (!before) return;
  const {zone, pool} = afterLostBoot(before, shared.pool, worker, placement, now);
  shared.zones.set(worker.zone, zone);
  shared.pool = pool;
}

/**
 * Counts a node that was READY and whose agent never sent anything. Returns texts about the pool or zone whose creates stop with this node. A
 * node whose agent was up before a restart, or that ran an earlier bundle, proves nothing about boots.
 */
export function countFailedBoot(
  shared: SharedDocuments,
  worker: Worker,
  {kind, cause}: Death,
  bundle: string,
  now: number,
): string[] {
  const stops: string[] = [];
  const isEvidence = worker.agent_at === null && (worker.bundle ?? bundle) === bundle;
  const count = <T extends Zone | Pool>(name: string, document: T): T => {
    if (!isEvidence) return document;
    const limiter = afterFailedBoot(document.limiter, bundle, cause, now);
    if (limiter.cause === 'boots' && stateOf(document.limiter, bundle) !== 'stopped')
      stops.push(
        `Creates of ${name} stop: ${limiter.failed_boots} boots in a row failed, the last because ${cause}; one an hour is tried; deploy a bundle that works, or send {"action":"resume","pool":"${worker.pool}"}`,
      );
    return {...document, limiter};
  };
  const {pool, zones} = shared;
  const zone = zones.get(worker.zone);
  if (zone) {
    const silence_guard =
      zone.silence_guard && kind === 'unheard'
        ? afterUnheard(zone.silence_guard, worker)
        : zone.silence_guard;
    zones.set(worker.zone, count(`zone ${zone.zone}`, {...zone, silence_guard}));
  }
  shared.pool = pool && count(`pool ${pool.pool}`, pool);
  return stops;
}

/** Counts a machine that died while working on a run, and the stream that failed with it, if any. `shardsByRun`: stored shards. */
export function countMachineDeath(
  {runs}: SharedDocuments,
  {before, verdict}: {before: Worker; verdict?: Verdict | undefined},
  death: Death,
  failed: Stream | undefined,
  shardsByRun: ReadonlyMap<string, number>,
  now: number,
): void {
  const run = runs.get(runAtWork(before) ?? '');
  if (!run) return;
  const machine = {worker: before.name, cause: death.cause, is_judged: verdict !== 'ends'};
  const counted = afterMachineDeath(run, {...machine, total_shards: shardsByRun.get(run.run) ?? 0}, now);
  runs.set(run.run, failed ? afterMachineFailedStream(counted, failed.stream, now) : counted);
}
