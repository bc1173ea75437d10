import {regionOf} from '../names.ts';
import {msOf} from '../time.ts';
import {GENERATIONS, LIST_PRICES, LISTED, type Price, type PriceSource, withHighest} from './list-prices.ts';

/**
 * Dollars an hour. The price of a generation, `v6e`, is for one chip; the price of a type, `v6e-8`, is for one node.
 * Both may name a region, `v6e@europe-west4`. A type takes precedence over its generation, and a region over all regions.
 * Null is an unknown price.
 */
export type Prices = Record<string, Price | null>;

/**
 * Generation and chips of a type. The number of a type counts chips of v5e and v6e, and cores of the others, two to a chip.
 * A type without whole chips is unknown.
 */
export function chipsOf(accelerator: string): {generation: string; chips: number} | undefined {
  const [, generation = '', size] =
    /^(v2|v3|v4|v5p|v5litepod|v6e|tpu7x)-([1-9]\d{0,4})$/.exec(accelerator) ?? [];
  if (!generation) return undefined;
  const chips = Number(size) / (['v5litepod', 'v6e'].includes(generation) ? 1 : 2);
  return Number.isInteger(chips) ? {generation, chips} : undefined;
}

/**
 * Merges the built-in list, the prices of the catalog and those that people set; each replaces the ones before. A person's price without a region
 * replaces the prices of all regions.
 */
export function overList(given: Prices): Prices {
  const isOfCatalog = ([, price]: [string, Prices[string]]) => price?.source === 'catalog';
  const ofCatalog = Object.entries(given).filter(isOfCatalog);
  const ofPeople = Object.entries(given).filter(entry => !isOfCatalog(entry));
  const known =
    ofCatalog.length === 0
      ? LIST_PRICES
      : withHighest({...LISTED, ...Object.fromEntries(ofCatalog as [string, Price][])});
  if (ofPeople.length === 0) return known;
  const persons = Object.fromEntries(ofPeople);
  const isKept = ([key]: [string, unknown]) => persons[key.split('@', 1)[0] ?? key] === undefined;
  return {...Object.fromEntries(Object.entries(known).filter(isKept)), ...persons};
}

/** Generations whose chips may have a price. The list has none of TPU7x. */
const PRICED: readonly string[] = [...GENERATIONS, 'tpu7x'];

/** True if a price may have this key: a generation, a type or the accelerator of a pool, with or without a region. */
export function isPriceKey(key: string, accelerators: readonly string[]): boolean {
  const [what = '', ...regions] = key.split('@');
  const isKnown = PRICED.includes(what) || chipsOf(what) !== undefined || accelerators.includes(what);
  return isKnown && regions.length <= 1 && regions.every(region => /^[a-z]+-[a-z]+\d+$/.test(region));
}

function priceIn(prices: Prices, what: string, zone: string): Prices[string] | undefined {
  const inRegion = prices[`${what}@${regionOf(zone)}`];
  return inRegion === undefined ? prices[what] : inRegion;
}

/** Origin of the price of a node. `is_highest`: the highest price of any region, because the region has none. */
export type Origin = {source: PriceSource; as_of: string | null; is_highest: boolean};

export function originOf(prices: Prices, accelerator: string, zone: string): Origin {
  const generation = chipsOf(accelerator)?.generation ?? '';
  const price = priceIn(prices, accelerator, zone) ?? priceIn(prices, generation, zone);
  const source = price?.source ?? 'person';
  const is_highest = source === 'list' && prices[`${generation}@${regionOf(zone)}`] === undefined;
  return {source, as_of: price?.as_of ?? null, is_highest};
}

export function sinceOf(prices: Prices, accelerator: string, zone: string): string | undefined {
  const generation = chipsOf(accelerator)?.generation ?? '';
  return (priceIn(prices, accelerator, zone) ?? priceIn(prices, generation, zone))?.since_at;
}

/** Days after which every text about money says how old its prices are. */
const FRESH_DAYS = 7;

/** `24 days old`; undefined for a price that is fresh or has no known day. */
export function ageText(as_of: string | null | undefined, now: number): string | undefined {
  const days = as_of ? Math.floor((now - msOf(`${as_of}T00:00:00.000Z`)) / 86_400_000) : 0;
  return days > FRESH_DAYS ? `${days} days old` : undefined;
}

export function oldestDay(prices: Prices, accelerator: string, zones: readonly string[]): string | null {
  const days = zones.flatMap(zone => originOf(prices, accelerator, zone).as_of ?? []);
  return days.sort()[0] ?? null;
}

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
