import {regionOf} from '../names.ts';

/**
 * Dollars an hour. The price of a generation, `v6e`, is for one chip; the price of a type, `v6e-8`, is for one node.
 * Both may name a region, `v6e@europe-west4`. A type goes before its generation, and a region before all regions.
 * Null is an unknown price.
 */
export type Prices = Record<string, {usd: number; spot_usd: number} | null>;

/**
 * List prices. A generation without a region has the price of the us regions, and of every region that is not listed.
 *
 * Source, except for v6e: Google's Billing API by way of SkyPilot's catalog, read on `LISTED_ON`
 * (skypilot-catalog, catalogs/v5/gcp/vms.csv at commit 0129130f). v2 and v3 are prices of single hosts.
 * Spot is 30 % of the list price up to v4, and 50 % from v5 on. Spot prices change up to once a month.
 * The document `prices/chips` overrides every price here, and should.
 *
 * v6e has no verified source: 2.70 was public in 2025, and spot is 50 % as for the generation before.
 */
export const LIST_PRICES: Record<string, {usd: number; spot_usd: number}> = {
  v2: {usd: 1.125, spot_usd: 0.3375},
  'v2@europe-west4': {usd: 1.2375, spot_usd: 0.37125},
  'v2@asia-east1': {usd: 1.305, spot_usd: 0.3915},
  v3: {usd: 2, spot_usd: 0.6},
  'v3@europe-west4': {usd: 2.2, spot_usd: 0.66},
  v4: {usd: 3.22, spot_usd: 0.97},
  v5litepod: {usd: 1.2, spot_usd: 0.6},
  'v5litepod@europe-west4': {usd: 1.56, spot_usd: 0.78},
  'v5litepod@us-south1': {usd: 1.416, spot_usd: 0.708},
  v5p: {usd: 4.2, spot_usd: 2.1},
  'v5p@europe-west4': {usd: 4.2525, spot_usd: 2.1315},
  'v5p@us-south1': {usd: 4.779, spot_usd: 2.3954},
  v6e: {usd: 2.7, spot_usd: 1.35},
};

export const LISTED_ON = '2026-11-21';

export const GENERATIONS: readonly string[] = Object.keys(LIST_PRICES).filter(key => !key.includes('@'));

/** Generations with a list price that no public source confirms. */
export const UNVERIFIED: ReadonlySet<string> = new Set(['v6e']);

/**
 * Generation and chips of a type. The number of a type counts cores up to v4 and for v5p, two to a chip, and chips otherwise.
 * A type without whole chips is unknown.
 */
export function chipsOf(accelerator: string): {generation: string; chips: number} | undefined {
  const [, generation = '', size] = /^(v2|v3|v4|v5p|v5litepod|v6e)-([1-9]\d{0,4})$/.exec(accelerator) ?? [];
  if (!generation) return undefined;
  const chips = Number(size) / (['v5litepod', 'v6e'].includes(generation) ? 1 : 2);
  return Number.isInteger(chips) ? {generation, chips} : undefined;
}

/** The list prices under the given prices. A given price without a region replaces the listed prices of all regions. */
export function overList(given: Prices): Prices {
  const isKept = ([key]: [string, unknown]) => given[key.split('@', 1)[0] ?? key] === undefined;
  return {...Object.fromEntries(Object.entries(LIST_PRICES).filter(isKept)), ...given};
}

/** True if a price may have this key: a generation, a type or the pool's accelerator, with or without a region. */
export function isPriceKey(key: string, accelerator: string): boolean {
  const [what = '', ...regions] = key.split('@');
  const isKnown = GENERATIONS.includes(what) || chipsOf(what) !== undefined || what === accelerator;
  return isKnown && regions.length <= 1 && regions.every(region => /^[a-z]+-[a-z]+\d+$/.test(region));
}

function priceIn(prices: Prices, what: string, zone: string): Prices[string] | undefined {
  const inRegion = prices[`${what}@${regionOf(zone)}`];
  return inRegion === undefined ? prices[what] : inRegion;
}

/** True if a node has its list price, and `prices/chips` has no other. */
export function isListed(prices: Prices, accelerator: string, zone: string): boolean {
  const keys = [accelerator, chipsOf(accelerator)?.generation ?? ''];
  return keys.every(key => priceIn(prices, key, zone) === priceIn(LIST_PRICES, key, zone));
}

/** Dollars an hour of one node; null where the price is unknown. */
export function usdPerHour(
  prices: Prices,
  {accelerator, spot, zone}: {accelerator: string; spot: boolean; zone: string},
): number | null {
  const usd = (price: Prices[string]) => price && (spot ? price.spot_usd : price.usd);
  const whole = priceIn(prices, accelerator, zone);
  if (whole !== undefined) return usd(whole);
  const type = chipsOf(accelerator);
  const chip = type && priceIn(prices, type.generation, zone);
  const each = chip ? usd(chip) : null;
  return type && each !== null ? type.chips * each : null;
}

/** Mean dollars an hour of a node over the zones with a known price; null without such a zone. */
export function meanUsdPerHour(
  prices: Prices,
  {zones, ...node}: {accelerator: string; spot: boolean; zones: string[]},
): number | null {
  const known = zones.map(zone => usdPerHour(prices, {...node, zone})).filter(usd => usd !== null);
  return known.length > 0 ? known.reduce((sum, usd) => sum + usd) / known.length : null;
}
