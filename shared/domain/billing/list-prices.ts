export type PriceSource = 'list' | 'catalog' | 'person';

/**
 * Dollars an hour, on demand and on spot. A price without `source` was set by a person. `as_of`: day on which the price was read. `since_at`:
 * instant from which Google charges a price of the catalog.
 */
export type Price = {
  usd: number;
  spot_usd: number;
  source?: PriceSource | undefined;
  as_of?: string | undefined;
  since_at?: string | undefined;
};

export const LISTED_ON = '2026-11-23';

/**
 * Prices by generation and region, as `[on demand, spot]`. Each is the price of a single host, divided by its chips.
 *
 * Source: the Cloud Billing Catalog of Google by way of SkyPilot's copy, read on `LISTED_ON` (skypilot-org/skypilot-catalog,
 * catalogs/v8/gcp/vms.csv at commit 006059e0). Spot prices change up to once a month: the prices of the catalog and of people in
 * `prices/chips` go before this list. The list has no price of TPU7x, and no spot price of a region that is missing here.
 */
const BY_REGION: Record<string, Record<string, [usd: number, spot_usd: number]>> = {
  v2: {
    'us-central1': [1.125, 0.3375],
    'europe-west4': [1.2375, 0.3156],
    'asia-east1': [1.305, 0.3915],
  },
  v3: {'us-central1': [2, 0.51], 'europe-west4': [2.2, 0.561]},
  v4: {'us-central2': [3.22, 0.9215]},
  v5litepod: {
    'us-central1': [1.2, 0.24493],
    'us-east1': [1.2, 0.24493],
    'us-east4': [1.2, 0.6],
    'us-east5': [1.2, 0.6],
    'us-south1': [1.416, 0.5664],
    'us-west1': [1.2, 0.24493],
    'us-west4': [1.2, 0.48],
    'northamerica-northeast1': [1.32132, 0.36389],
    'southamerica-west1': [1.716, 0.47259],
    'europe-north1': [1.32132, 0.66066],
    'europe-west1': [1.32132, 0.52853],
    'europe-west3': [1.416, 0.38997],
    'europe-west4': [1.56, 0.44498],
    'asia-east1': [1.38948, 0.55579],
    'asia-northeast1': [1.54104, 0.4244],
    'asia-southeast1': [1.56, 0.78],
  },
  v5p: {
    'us-central1': [4.2, 0.8357],
    'us-east1': [4.2, 0.8357],
    'us-east5': [4.2, 1.68],
    'us-south1': [4.779, 1.31614],
    'europe-west1': [4.45946, 1.78378],
    'europe-west4': [4.2525, 1.34849],
  },
  v6e: {
    'us-central1': [2.7, 0.54421],
    'us-east1': [2.7, 0.54421],
    'us-east4': [2.7, 0.57766],
    'us-east5': [2.7, 1.215],
    'us-south1': [2.7, 1.35],
    'us-west1': [2.7, 0.54421],
    'europe-west4': [2.97, 1.03748],
    'asia-northeast1': [3.24, 0.94352],
    'asia-south1': [3.24, 2.27],
    'asia-southeast1': [2.97, 0.36292],
  },
};

export const GENERATIONS: readonly string[] = Object.keys(BY_REGION);

export const LISTED: Readonly<Record<string, Price>> = Object.fromEntries(
  Object.entries(BY_REGION).flatMap(([generation, regions]) =>
    Object.entries(regions).map(([region, [usd, spot_usd]]): [string, Price] => [
      `${generation}@${region}`,
      {usd, spot_usd, source: 'list', as_of: LISTED_ON},
    ]),
  ),
);

/**
 * Adds the price of each generation, `v6e`, for all regions that the list lacks: the highest price of any region, because a budget must not
 * be exceeded.
 */
export function withHighest(byRegion: Readonly<Record<string, Price>>): Record<string, Price> {
  const prices: Record<string, Price> = {...byRegion};
  for (const generation of GENERATIONS) {
    const known = Object.entries(byRegion).flatMap(([key, price]) =>
      key.startsWith(`${generation}@`) ? price : [],
    );
    const highest = (which: 'usd' | 'spot_usd') => Math.max(...known.map(price => price[which]));
    const [as_of] = known.flatMap(price => price.as_of ?? []).sort();
    prices[generation] = {usd: highest('usd'), spot_usd: highest('spot_usd'), source: 'list', as_of};
  }
  return prices;
}

export const LIST_PRICES: Readonly<Record<string, Price>> = withHighest(LISTED);
