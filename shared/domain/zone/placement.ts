import {type Constraint, constraint} from '../records/constraint.ts';
import {type Limiter, OPEN} from '../records/limiter.ts';
import type {Pool} from '../records/pool.ts';
import type {Zone} from '../records/zone.ts';
import {isOlderThan, iso, msOf} from '../time.ts';
import {isDue, limiterConstraint, stateOf} from './limiter.ts';

/** True for the stand-in of a zone whose document is invalid: no tick can record anything for it. No real zone has the cause `person`. */
export const isLeftAlone = ({limiter}: Zone) => limiter.cause === 'person';

/**
 * Seconds. `churn_window_s`: age at which losses are forgotten. `short_life_s`: a node that lives shorter is not worth its creation; one that
 * lives twice as long is. `queue_s`: the longest wait of a queued resource for its node.
 */
export const PLACEMENT = ['retry_s', 'longest_retry_s', 'churn_window_s', 'short_life_s', 'queue_s'] as const;
export type PlacementLimits = Record<(typeof PLACEMENT)[number], number>;

/** Kind of a request for one node. A queued request always expires, because a late node would serve no work. */
export type Ask = {provisioning: 'node' | 'queued-resource' | 'flex-start'; valid_until_at: string | null};

const FLEX_START_S = 7200;

export function askOf(
  provisioning: Pool['provisioning'],
  {limiter}: Zone,
  limits: PlacementLimits,
  now: number,
): Ask {
  if (provisioning === 'flex-start') {
    const wait_s = Math.min(limits.queue_s, FLEX_START_S);
    return {provisioning, valid_until_at: iso(now + wait_s * 1000)};
  }
  const isSoldOut = limiter.state === 'probing' && limiter.cause === 'no-capacity';
  const queues = provisioning === 'queued-resource' || (provisioning === 'auto' && isSoldOut);
  if (!queues) return {provisioning: 'node', valid_until_at: null};
  return {provisioning: 'queued-resource', valid_until_at: iso(now + limits.queue_s * 1000)};
}

const MOST_LOSSES = 50;
/** Fewer losses may be coincidence. */
const FEWEST_LOSSES = 3;

export function newZone(zone: string, now: number, pool: string | null = null): Zone {
  return {
    ...{zone, pool, limiter: OPEN, losses: [], silence_guard: null, orphans: null, churn: []},
    updated_at: iso(now),
  };
}

/**
 * Seconds between two requests, from the share of short lifetimes among short and long ones. 0: all wanted nodes at once. Infinity: none
 * until the losses are older. An exponential back-off would forget all losses at the first success.
 */
export function paceOf({losses}: Zone, limits: PlacementLimits, now: number): number {
  const recent = losses.filter(({ended_at}) => !isOlderThan(ended_at, limits.churn_window_s, now));
  const short = recent.filter(({lived_s}) => lived_s < limits.short_life_s).length;
  const long = recent.filter(({lived_s}) => lived_s >= 2 * limits.short_life_s).length;
  if (short + long < FEWEST_LOSSES) return 0;
  const share = short / (short + long);
  if (share < 0.2) return 0;
  if (share < 0.5) return 120;
  return share < 0.8 ? 600 : Number.POSITIVE_INFINITY;
}

/** Number of nodes that may be requested now, and why no more. */
export type Allowance = {most: number; why: Constraint | undefined};
export const ALLOWS_ALL: Allowance = {most: Number.POSITIVE_INFINITY, why: undefined};

/** Nodes that may be requested from the zone now. Canaries ignore losses and stops, because silent workers depend on their heartbeats. */
export function allowanceOf(zone: Zone, limits: PlacementLimits, bundle: string, now: number): Allowance {
  const {limiter} = zone;
  const state = stateOf(limiter, bundle);
  const areDue = isDue(limiter, bundle, now);
  const pace_s = paceOf(zone, limits, now);
  const isLate = limiter.asked_at === null || isOlderThan(limiter.asked_at, pace_s, now);
  const isInPace = pace_s === 0 || (Number.isFinite(pace_s) && isLate);
  const most = state === 'open' && pace_s === 0 ? Number.POSITIVE_INFINITY : 1;
  const nodes = areDue && isInPace ? most : 0;
  const canaries = zone.silence_guard?.canaries_due ?? 0;
  const why = isLeftAlone(zone)
    ? constraint('unreadable', `the document of zone ${zone.zone}`)
    : (limiterConstraint(zone.zone, limiter, bundle) ?? coolDown(zone, pace_s, limits, now));
  if (state === 'probing') return {most: areDue ? Math.max(nodes, Math.min(1, canaries)) : 0, why};
  return {most: Math.max(nodes, canaries), why};
}

/** The constraint of a zone that preempts its nodes soon after creating them; undefined at full pace. */
function coolDown({zone, limiter, losses}: Zone, pace_s: number, limits: PlacementLimits, now: number) {
  if (pace_s === 0) return undefined;
  const last = losses.at(-1);
  const evidence = `it preempts TPUs soon after creating them: the last one lived ${last?.lived_s ?? 0} s`;
  const asked_ms = limiter.asked_at === null ? now : msOf(limiter.asked_at);
  const forgotten = losses.find(({ended_at}) => !isOlderThan(ended_at, limits.churn_window_s, now));
  const next_ms = Number.isFinite(pace_s)
    ? asked_ms + pace_s * 1000
    : msOf(forgotten?.ended_at ?? iso(now)) + limits.churn_window_s * 1000;
  return constraint('zone', zone, evidence, {next_try_at: iso(next_ms)});
}

/** The zone with this limiter; the same object if nothing changes. */
export function withLimiter(zone: Zone, limiter: Limiter, now: number): Zone {
  return limiter === zone.limiter ? zone : {...zone, limiter, updated_at: iso(now)};
}

/** The zone after it lost a node that existed since `since`. A node that never worked (null) has lived 0 seconds. */
export function lostNode(zone: Zone, since: string | null, now: number): Zone {
  const lived_s = since === null ? 0 : Math.max(0, Math.round((now - msOf(since)) / 1000));
  const loss = {ended_at: iso(now), lived_s};
  return {...zone, losses: [...zone.losses, loss].slice(-MOST_LOSSES), updated_at: iso(now)};
}
