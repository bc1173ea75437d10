import {isOlderThan, iso, msOf} from '../time.ts';
import type {Refusal} from '../worker/provider-states.ts';
import {type Boots, NO_BOOTS} from './breakers.ts';
import type {Brake} from './silence-brake.ts';

/** Start of a surplus of orphans that cannot go at once, and start of the time in which lists show none. */
export type OrphansMark = {since_at: string; unseen_since_at: string | null};

/**
 * Recent history of a zone for one pool: its refusals, the requests for nodes, and the lifetimes of lost nodes.
 * Fields: docs/firestore.md.
 */
export type Zone = {
  zone: string;
  /** Null: the deployment's own pool. A stock-out of one accelerator says nothing about another. */
  pool: string | null;
  blocked_until_at: string | null;
  blocked_reason: string | null;
  sold_out_at: string | null;
  /** Lost nodes, the newest last. A node that was no longer wanted is not a loss of its zone. */
  losses: {ended_at: string; lived_s: number}[];
  creates: {asked_at: string}[];
  boots: Boots;
  brake: Brake | null;
  /** Set while many nodes of the zone have no document: see control-plane/workers/orphans.ts. */
  orphans: OrphansMark | null;
  updated_at: string;
};

export type PlacementLimits = {
  /** Pause of a zone after a stock-out, and after a quota error. */
  retry_s: number;
  quota_s: number;
  /** Age at which losses are forgotten. */
  churn_window_s: number;
  /** A shorter lifetime does not pay for the creation of a node. Twice this time does. */
  short_life_s: number;
  creates_per_hour: number;
  /** Longest wait of a queued resource for its node. */
  queue_s: number;
};

/**
 * Kind of a pool's requests. `node`: the zone answers at once, and after a stock-out another zone is tried.
 * `queued-resource`: the request waits in the queue of the zone.
 * `auto`: at once, or through the queue after a recent stock-out.
 */
export type Provisioning = 'node' | 'queued-resource' | 'auto';

/** Kind of a request for one node. A request in the queue always expires: a late node would serve no work. */
export type Ask = {provisioning: 'node' | 'queued-resource'; valid_until_at: string | null};

export function askOf(provisioning: Provisioning, zone: Zone, limits: PlacementLimits, now: number): Ask {
  const isSoldOut = zone.sold_out_at !== null && !isOlderThan(zone.sold_out_at, limits.churn_window_s, now);
  const queues = provisioning === 'queued-resource' || (provisioning === 'auto' && isSoldOut);
  if (!queues) return {provisioning: 'node', valid_until_at: null};
  return {provisioning: 'queued-resource', valid_until_at: iso(now + limits.queue_s * 1000)};
}

/** Request rate of a zone, from its losses: all wanted nodes, one node now and then, or no node for a while. */
export type Rate = 'full' | 'half' | 'tenth' | 'stopped';

const HOUR_S = 3600;
const MOST_LOSSES = 50;
/** Fewer losses may be chance. */
const FEWEST_LOSSES = 3;
/** Seconds between two requests to a churning zone. */
const EVERY_S: Record<Rate, number> = {full: 0, half: 120, tenth: 600, stopped: Number.POSITIVE_INFINITY};

export function newZone(zone: string, now: number, pool: string | null = null): Zone {
  return {
    zone,
    pool,
    blocked_until_at: null,
    blocked_reason: null,
    sold_out_at: null,
    losses: [],
    creates: [],
    boots: NO_BOOTS,
    brake: null,
    orphans: null,
    updated_at: iso(now),
  };
}

/**
 * Request rate from the share of short lifetimes among short and long lifetimes.
 * An exponential back-off would forget all losses at the first success.
 */
export function rateOf(zone: Zone, limits: PlacementLimits, now: number): Rate {
  const recent = zone.losses.filter(({ended_at}) => !isOlderThan(ended_at, limits.churn_window_s, now));
  const short = recent.filter(({lived_s}) => lived_s < limits.short_life_s).length;
  const long = recent.filter(({lived_s}) => lived_s >= 2 * limits.short_life_s).length;
  if (short + long < FEWEST_LOSSES) return 'full';
  const share = short / (short + long);
  if (share < 0.2) return 'full';
  if (share < 0.5) return 'half';
  return share < 0.8 ? 'tenth' : 'stopped';
}

/** Number of nodes that may be requested from the zone now. */
export function allowance(zone: Zone | undefined, limits: PlacementLimits, now: number): number {
  if (!zone) return limits.creates_per_hour;
  if (zone.blocked_until_at !== null && !isOlderThan(zone.blocked_until_at, 0, now)) return 0;
  const remaining = limits.creates_per_hour - createsOfLastHour(zone, now).length;
  const rate = rateOf(zone, limits, now);
  if (rate === 'full') return Math.max(0, remaining);
  const last = zone.creates.at(-1)?.asked_at ?? null;
  const isTime = rate !== 'stopped' && (last === null || isOlderThan(last, EVERY_S[rate], now));
  // Probes ignore the rate: silent workers wait for their word.
  const probes = zone.brake?.probes_due ?? 0;
  return Math.max(0, Math.min(remaining, Math.max(isTime ? 1 : 0, probes)));
}

/** Time at which a zone with a full hour of requests may be asked again; undefined for other zones. */
export function fullUntil(zone: Zone, limits: PlacementLimits, now: number): string | undefined {
  const [first, ...more] = createsOfLastHour(zone, now);
  return first && more.length + 1 >= limits.creates_per_hour
    ? iso(msOf(first.asked_at) + HOUR_S * 1000)
    : undefined;
}

function createsOfLastHour(zone: Zone, now: number): Zone['creates'] {
  return zone.creates.filter(({asked_at}) => !isOlderThan(asked_at, HOUR_S, now));
}

/** The zone after a request for a node. A tick shows later whether the zone gave the node. */
export function askedFor(zone: Zone, now: number): Zone {
  return {...zone, creates: [...createsOfLastHour(zone, now), {asked_at: iso(now)}], updated_at: iso(now)};
}

/** The zone after a refusal. Stock-out and quota differ: only a stock-out may end by itself within minutes. */
export function refusedBy(
  zone: Zone,
  kind: Refusal,
  reason: string,
  limits: PlacementLimits,
  now: number,
): Zone {
  const wait_s = kind === 'quota' ? limits.quota_s : limits.retry_s;
  return {
    ...zone,
    blocked_until_at: iso(now + wait_s * 1000),
    blocked_reason: reason,
    sold_out_at: kind === 'no-capacity' ? iso(now) : zone.sold_out_at,
    updated_at: iso(now),
  };
}

/** The zone after it gave a node: earlier refusals are over. */
export function gaveNode(zone: Zone, now: number): Zone {
  if (zone.blocked_until_at === null && zone.sold_out_at === null) return zone;
  return {...zone, blocked_until_at: null, blocked_reason: null, sold_out_at: null, updated_at: iso(now)};
}

/** The zone after it lost a node that existed since `since`. A node that never worked, null, has lived 0 seconds. */
export function lostNode(zone: Zone, since: string | null, now: number): Zone {
  const lived_s = since === null ? 0 : Math.max(0, Math.round((now - msOf(since)) / 1000));
  const loss = {ended_at: iso(now), lived_s};
  return {...zone, losses: [...zone.losses, loss].slice(-MOST_LOSSES), updated_at: iso(now)};
}
