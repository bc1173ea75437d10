import {regionOf} from '../names.ts';
import {GENERATIONS, LIST_PRICES, type Price} from './list-prices.ts';

/**
 * Dollars an hour. The price of a generation, `v6e`, is for one chip; the price of a type, `v6e-8`, is for one node.
 * Both may name a region, `v6e@europe-west4`. A type goes before its generation, and a region before all regions.
 * Null is an unknown price.
 */
export type Prices = Record<string, Price | null>;

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
  if (Object.keys(given).length === 0) return LIST_PRICES;
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

/** Origin of the price of a node: `highest` is the highest list price of any region, where the list lacks the region. */
export type Origin = 'given' | 'listed' | 'highest';

export function originOf(prices: Prices, accelerator: string, zone: string): Origin {
  const generation = chipsOf(accelerator)?.generation ?? '';
  const keys = [accelerator, generation];
  const isListed = keys.every(key => priceIn(prices, key, zone) === priceIn(LIST_PRICES, key, zone));
  if (!isListed) return 'given';
  return `${generation}@${regionOf(zone)}` in LIST_PRICES ? 'listed' : 'highest';
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
  const zonePrices = zones.map(zone => usdPerHour(prices, {...node, zone})).filter(usd => usd !== null);
  return zonePrices.length > 0 ? zonePrices.reduce((sum, usd) => sum + usd) / zonePrices.length : null;
}
