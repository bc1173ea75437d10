/**
 * Prices of chips in the Cloud Billing Catalog. Compute Engine sells v5e, v5p and v6e by the chip and hour of a region. The service of
 * Cloud TPU sells v2 to v4 by the device and by the continent: their prices stay as they are.
 */
import {z} from 'zod';
import {iso, msOf} from '../time.ts';
import {LISTED, type Price} from './list-prices.ts';
import type {Prices} from './prices.ts';

/** Service of the catalog that sells the chips: Compute Engine. */
export const CHIP_SERVICE = '6F81-5844-456A';

/** One item of the catalog, as far as a price needs it. Google leaves out fields with the value 0, and writes 64-bit numbers as text. */
const unitPrice = z.object({
  currencyCode: z.string().default(''),
  units: z.string().default('0'),
  nanos: z.number().default(0),
});
export const sku = z.object({
  description: z.string(),
  category: z.object({usageType: z.string().default('')}),
  serviceRegions: z.array(z.string()).default([]),
  pricingInfo: z
    .array(
      z.object({
        effectiveTime: z.iso.datetime(),
        pricingExpression: z.object({
          usageUnit: z.string().default(''),
          tieredRates: z.array(z.object({unitPrice: unitPrice.prefault({})})).default([]),
        }),
      }),
    )
    .default([]),
});
export type Sku = z.infer<typeof sku>;

/** Prices that the pages of the catalog name so far. `unknown`: chips that this release does not know. */
export type Found = {
  chips: Record<string, {usd?: number; spot_usd?: number; since_at: string}>;
  unknown: string[];
};

export const NO_PRICES: Found = {chips: {}, unknown: []};

const GENERATION_OF: Record<string, string> = {TpuV5e: 'v5litepod', TpuV5p: 'v5p', TpuV6e: 'v6e'};

/**
 * Plain prices: `TpuV6e running in Columbus` and `TpuV6e attached to Spot Preemptible VMs running in Columbus`. Reservations, commitments,
 * flex-start and capacity-optimised chips start with other words and have other prices.
 */
const CHIP = /^(tpu\w+) (attached to Spot Preemptible VMs )?running in /i;

/** Adds the chips of a page. Of two prices for one chip the higher one counts: a budget must not be exceeded. */
export function addSkus(found: Found, skus: readonly Sku[], now: number): Found {
  const chips = {...found.chips};
  const unknown = new Set(found.unknown);
  for (const sku of skus) {
    const [, chip = '', spot] = CHIP.exec(sku.description) ?? [];
    const isSold = sku.category.usageType === (spot ? 'Preemptible' : 'OnDemand');
    if (!chip || !isSold) continue;
    const generation = GENERATION_OF[chip];
    const rate = rateOf(sku, now);
    if (!generation || !rate) {
      unknown.add(generation ? `${sku.description}: no price in dollars an hour` : chip);
      continue;
    }
    const which = spot ? 'spot_usd' : 'usd';
    for (const region of sku.serviceRegions) {
      const key = `${generation}@${region}`;
      const {[which]: other = 0, since_at = rate.since_at} = chips[key] ?? {};
      const later = since_at > rate.since_at ? since_at : rate.since_at;
      chips[key] = {...chips[key], [which]: Math.max(other, rate.usd), since_at: later};
    }
  }
  return {chips, unknown: [...unknown].sort()};
}

function rateOf({pricingInfo}: Sku, now: number): {usd: number; since_at: string} | undefined {
  const inForce = pricingInfo
    .filter(({effectiveTime}) => msOf(effectiveTime) <= now)
    .sort((a, b) => msOf(a.effectiveTime) - msOf(b.effectiveTime))
    .at(-1);
  const {usageUnit, tieredRates = []} = inForce?.pricingExpression ?? {};
  const prices = tieredRates.map(({unitPrice: {currencyCode, units, nanos}}) =>
    currencyCode === 'USD' ? (Number(units) * 1e9 + nanos) / 1e9 : Number.NaN,
  );
  const usd = Math.max(...prices);
  if (!inForce || usageUnit !== 'h' || !Number.isFinite(usd) || usd <= 0) return undefined;
  return {usd, since_at: iso(msOf(inForce.effectiveTime))};
}

/** The next `prices/chips`, and a line for each price that changed, and for each that the catalog does not have. */
export type Refresh = {prices: Record<string, Price>; changed: string[]; kept: string[]};

/**
 * Replaces stored prices by those of the catalog. A price that a person set stays. A price that the catalog lacks stays too and is reported,
 * so no price becomes stale silently. `stored`: the valid entries of `prices/chips`.
 */
export function refreshed(stored: Prices, {chips, unknown}: Found, now: number): Refresh {
  const prices: Record<string, Price> = {};
  const changed: string[] = [];
  const kept: string[] = unknown.map(chip => `${chip}: this release does not know this chip`);
  const isOfPerson = (key: string) => stored[key] !== undefined && stored[key]?.source !== 'catalog';
  const keys = new Set([...Object.keys(LISTED), ...Object.keys(stored), ...Object.keys(chips)]);
  for (const key of [...keys].sort()) {
    const [generation = '', region] = key.split('@');
    const before = stored[key] ?? LISTED[key];
    if (isOfPerson(key) || isOfPerson(generation)) {
      if (isOfPerson(key) || chips[key]) kept.push(`${key}: keeps the price that a person set`);
      continue;
    }
    const {usd, spot_usd, since_at} = chips[key] ?? {};
    if (usd === undefined || spot_usd === undefined) {
      if (stored[key]) prices[key] = stored[key];
      const lacks = chips[key]
        ? `the catalog has no price ${usd === undefined ? 'on demand' : 'on spot'}`
        : 'not in the catalog';
      if (region)
        kept.push(`${key}: ${lacks}${before ? `; keeps ${textOf(before)} of ${before.as_of}` : ''}`);
      continue;
    }
    const known = {usd, spot_usd, source: 'catalog' as const, as_of: iso(now).slice(0, 10), since_at};
    prices[key] = {...stored[key], ...known};
    if (before?.usd !== usd || before.spot_usd !== spot_usd)
      changed.push(`${key}: ${textOf(prices[key])}${before ? `, was ${textOf(before)}` : ''}`);
  }
  return {prices, changed, kept};
}

const textOf = ({usd, spot_usd}: Price) => `$${usd} and $${spot_usd} on spot`;
