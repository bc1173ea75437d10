/** Where the price of a TPU is from, and of which day. */
import {ageText, type Origin, originOf, type Prices, sinceOf} from '../../../shared/domain/billing/prices.ts';
import {regionOf} from '../../../shared/domain/names.ts';

/** `is_recorded`: of a local cloud, whose catalog is a record. `as_of` is then the day from which Google charged the price. */
type PriceOrigin = Origin & {is_recorded: boolean};

export function priceOrigin(
  prices: Prices,
  accelerator: string,
  zone: string,
  is_google: boolean,
): PriceOrigin {
  const origin = originOf(prices, accelerator, zone);
  const is_recorded = !is_google && origin.source === 'catalog';
  const since = is_recorded ? sinceOf(prices, accelerator, zone)?.slice(0, 10) : undefined;
  return {...origin, as_of: since ?? origin.as_of, is_recorded};
}

/** Source, day, and the age where it is old. */
export function pricesText(
  {source, as_of, is_highest, is_recorded}: PriceOrigin,
  zone: string,
  now: number,
): string {
  if (is_recorded) return `recorded prices of ${as_of}, because this cloud is local`;
  const age = ageText(as_of, now);
  const old = age === undefined ? '' : `, ${age}: \`gleaner prices update\` reads new ones`;
  if (source === 'person') return `prices/chips${as_of ? ` of ${as_of}` : ''}${old}`;
  if (source === 'catalog') return `Cloud Billing Catalog of ${as_of}${old}`;
  const list = is_highest
    ? `no price is listed for ${regionOf(zone)}: the highest of any region on ${as_of}`
    : `list prices of ${as_of}`;
  return `${list}${old || '; prices/chips overrides them'}`;
}
