/**
 * Dollars for an hour. Keys are a generation, `v6e`, for one chip of it, or a type, `v6e-8`, for one node of it; and either of them in a
 * region, `v6e@europe-west4`. A type goes before its generation, and a region before everywhere. Null is one that nobody knows.
 */
export type Prices = Record<string, {usd: number; spot_usd: number} | null>;

/**
 * List prices. A generation alone is its price in the us regions, and for regions that are not named.
 *
 * All but v6e: as Google's Billing API gives them, by way of the catalog that SkyPilot makes of it (skypilot-catalog,
 * catalogs/v5/gcp/vms.csv at commit 0129130f), read on `LISTED_ON`; of v2 and v3, single hosts. Spot is 30 % of the list up to v4
 * and 50 % from v5 on. Spot prices change up to once a month: the document `prices/chips` overrides any of these, and should.
 *
 * v6e is in no source that was at hand: 2.70 is what was public in 2025, and spot the 50 % of the generation before.
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

/** Of a generation, whether its list price was compared with a public source. */
export const UNVERIFIED: ReadonlySet<string> = new Set(['v6e']);

/**
 * How many chips a type has: its number counts cores up to v4 and for v5p, of which a chip has two, and chips otherwise. Nobody makes
 * half a chip, or none.
 */
export function chipsOf(accelerator: string): {generation: string; chips: number} | undefined {
  const [, generation = '', size] = /^(v2|v3|v4|v5p|v5litepod|v6e)-([1-9]\d{0,4})$/.exec(accelerator) ?? [];
  if (!generation) return undefined;
  const chips = Number(size) / (['v5litepod', 'v6e'].includes(generation) ? 1 : 2);
  return Number.isInteger(chips) ? {generation, chips} : undefined;
}

/** The list, but for what is given: a price that names no region goes for all that are not given too. */
export function overList(given: Prices): Prices {
  const isKept = ([key]: [string, unknown]) => given[key.split('@', 1)[0] ?? key] === undefined;
  return {...Object.fromEntries(Object.entries(LIST_PRICES).filter(isKept)), ...given};
}

/** Whether anything can have its price under this key: a generation, a type, or the accelerator that is asked for, perhaps in a region. */
export function isPriceKey(key: string, accelerator: string): boolean {
  const [what = '', ...regions] = key.split('@');
  const isKnown = GENERATIONS.includes(what) || chipsOf(what) !== undefined || what === accelerator;
  return isKnown && regions.length <= 1 && regions.every(region => /^[a-z]+-[a-z]+\d+$/.test(region));
}

function priceIn(prices: Prices, what: string, zone: string): Prices[string] | undefined {
  const inRegion = prices[`${what}@${zone.slice(0, zone.lastIndexOf('-'))}`];
  return inRegion === undefined ? prices[what] : inRegion;
}

/** Whether a node's price is the list's, and not one of `prices/chips`. */
export function isListed(prices: Prices, accelerator: string, zone: string): boolean {
  const keys = [accelerator, chipsOf(accelerator)?.generation ?? ''];
  return keys.every(key => priceIn(prices, key, zone) === priceIn(LIST_PRICES, key, zone));
}

/** Dollars an hour for one node, or null when nobody knows. */
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

/** The same of a node that may be in any of the zones; zones of which nobody knows it are left out. */
export function meanUsdPerHour(
  prices: Prices,
  {zones, ...node}: {accelerator: string; spot: boolean; zones: string[]},
): number | null {
  const known = zones.map(zone => usdPerHour(prices, {...node, zone})).filter(usd => usd !== null);
  return known.length > 0 ? known.reduce((sum, usd) => sum + usd) / known.length : null;
}
