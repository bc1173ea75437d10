import {isOlderThan, iso, msOf} from '../time.ts';
import type {Refusal} from '../worker/provider-states.ts';
import {type Boots, NO_BOOTS} from './breakers.ts';
import type {Brake} from './silence-brake.ts';

/** Since when a zone has more orphans than go at once, and since when lists show none of them. */
export type OrphansMark = {since_at: string; unseen_since_at: string | null};

/** How a zone has been doing lately: what it refused, how many nodes it was asked for, and how long they lived. */
export type Zone = {
  zone: string;
  /** It gets no new node until then, because it refused one. */
  blocked_until_at: string | null;
  blocked_reason: string | null;
  /** When it last had nothing to give; null since it gave a node. */
  sold_out_at: string | null;
  /** Nodes that were lost, the newest last; a node that nobody wanted any more says nothing about its zone. */
  losses: {ended_at: string; lived_s: number}[];
  /** When nodes were asked for, the newest last: those of the last hour. */
  creates: {asked_at: string}[];
  boots: Boots;
  /** Set while workers of the zone are silent. */
  brake: Brake | null;
  /** Set while many nodes of the zone have no document: see control-plane/workers/orphans.ts. */
  orphans: OrphansMark | null;
  updated_at: string;
};

export type PlacementLimits = {
  /** How long a zone is left alone after it had nothing to give, and after it was over quota. */
  retry_s: number;
  quota_s: number;
  /** Losses this old are forgotten. */
  churn_window_s: number;
  /** A node that lived shorter was not worth its making; one that lived twice as long was. */
  short_life_s: number;
  creates_per_hour: number;
  /** How long a queued resource may wait for its node. */
  queue_s: number;
};

/**
 * How a pool asks for nodes. `node`: the zone answers at once, and one that has nothing is left for the next. `queued-resource`:
 * the request waits in the zone's queue. `auto`: at once where the zone may have some, in the queue where it has just had none.
 */
export type Provisioning = 'node' | 'queued-resource' | 'auto';

/** How one node is asked for; a request in the queue always has an end, or it could be fulfilled when nobody waits any more. */
export type Ask = {provisioning: 'node' | 'queued-resource'; valid_until_at: string | null};

export function askOf(provisioning: Provisioning, zone: Zone, limits: PlacementLimits, now: number): Ask {
  const isSoldOut = zone.sold_out_at !== null && !isOlderThan(zone.sold_out_at, limits.churn_window_s, now);
  const queues = provisioning === 'queued-resource' || (provisioning === 'auto' && isSoldOut);
  if (!queues) return {provisioning: 'node', valid_until_at: null};
  return {provisioning: 'queued-resource', valid_until_at: iso(now + limits.queue_s * 1000)};
}

/** How many nodes a zone is asked for, as its losses suggest: all that are wanted, one now and then, or none for a while. */
export type Rate = 'full' | 'half' | 'tenth' | 'stopped';

const HOUR_S = 3600;
const MOST_LOSSES = 50;
/** Fewer losses are chance. */
const FEWEST_LOSSES = 3;
/** Seconds between two nodes that a churning zone is asked for. */
const EVERY_S: Record<Rate, number> = {full: 0, half: 120, tenth: 600, stopped: Number.POSITIVE_INFINITY};

export function newZone(zone: string, now: number): Zone {
  return {
    zone,
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
 * The share of short lives among the lives that were short or long decides. A plain exponential back-off, which this
 * replaces, forgets all it knows at the first success.
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

/** How many nodes the zone may be asked for now. */
export function allowance(zone: Zone | undefined, limits: PlacementLimits, now: number): number {
  if (!zone) return limits.creates_per_hour;
  if (zone.blocked_until_at !== null && !isOlderThan(zone.blocked_until_at, 0, now)) return 0;
  const left = limits.creates_per_hour - createsOfLastHour(zone, now).length;
  const rate = rateOf(zone, limits, now);
  if (rate === 'full') return Math.max(0, left);
  const last = zone.creates.at(-1)?.asked_at ?? null;
  const isTime = rate !== 'stopped' && (last === null || isOlderThan(last, EVERY_S[rate], now));
  // Probes go out also where nodes are short-lived: silent workers wait for their word.
  const probes = zone.brake?.probes_due ?? 0;
  return Math.max(0, Math.min(left, Math.max(isTime ? 1 : 0, probes)));
}

/** When the zone may be asked again that has been asked for as many nodes as one may within an hour. */
export function fullUntil(zone: Zone, limits: PlacementLimits, now: number): string | undefined {
  const [first, ...more] = createsOfLastHour(zone, now);
  return first && more.length + 1 >= limits.creates_per_hour
    ? iso(msOf(first.asked_at) + HOUR_S * 1000)
    : undefined;
}

function createsOfLastHour(zone: Zone, now: number): Zone['creates'] {
  return zone.creates.filter(({asked_at}) => !isOlderThan(asked_at, HOUR_S, now));
}

/** A node is asked for there; that the zone gives it shows later. */
export function askedFor(zone: Zone, now: number): Zone {
  return {...zone, creates: [...createsOfLastHour(zone, now), {asked_at: iso(now)}], updated_at: iso(now)};
}

/** It refused. Nothing to give and no allowance are told apart, because only the first may end by itself within minutes. */
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

/** It gave a node: whatever it refused before is over. */
export function gaveNode(zone: Zone, now: number): Zone {
  if (zone.blocked_until_at === null && zone.sold_out_at === null) return zone;
  return {...zone, blocked_until_at: null, blocked_reason: null, sold_out_at: null, updated_at: iso(now)};
}

/** A node of it was lost that had been there since `since`, or that never worked at all: then it may as well not have lived. */
export function lostNode(zone: Zone, since: string | null, now: number): Zone {
  const lived_s = since === null ? 0 : Math.max(0, Math.round((now - msOf(since)) / 1000));
  const loss = {ended_at: iso(now), lived_s};
  return {...zone, losses: [...zone.losses, loss].slice(-MOST_LOSSES), updated_at: iso(now)};
}
