/** The Billing Catalog of a world: items with the descriptions, units and pages of Google. */
import type {Sku} from '../../shared/domain/billing/catalog.ts';
import {LISTED, type Price} from '../../shared/domain/billing/list-prices.ts';
import type {Catalog} from '../../shared/ports/ports.ts';

const CHIP_OF: Record<string, string> = {v5litepod: 'TpuV5e', v5p: 'TpuV5p', v6e: 'TpuV6e'};
const LONG_AGO = '2025-01-01T00:00:00.000Z';

export function aSku(
  description: string,
  usageType: string,
  region: string,
  usd: number,
  effectiveTime = LONG_AGO,
): Sku {
  const units = Math.floor(usd);
  const unitPrice = {currencyCode: 'USD', units: String(units), nanos: Math.round((usd - units) * 1e9)};
  return {
    description,
    category: {usageType},
    serviceRegions: [region],
    pricingInfo: [{effectiveTime, pricingExpression: {usageUnit: 'h', tieredRates: [{unitPrice}]}}],
  };
}

/** The two items of one chip in one region. */
export function chipSkus(key: string, {usd, spot_usd}: Price, since?: string): Sku[] {
  const [generation = '', region = ''] = key.split('@');
  const chip = CHIP_OF[generation];
  if (!chip) return [];
  return [
    aSku(`${chip} running in Somewhere`, 'OnDemand', region, usd, since),
    aSku(
      `${chip} attached to Spot Preemptible VMs running in Somewhere`,
      'Preemptible',
      region,
      spot_usd,
      since,
    ),
  ];
}

/** A catalog with two pages. Without `skus` it has the prices of the list. */
export function aCatalog(skus: () => readonly Sku[] = listed): Catalog {
  return {
    page: async token => {
      const all = skus();
      const half = Math.ceil(all.length / 2);
      return token === '' ? {skus: all.slice(0, half), next: 'second'} : {skus: all.slice(half), next: ''};
    },
  };
}

function listed(): Sku[] {
  return Object.entries(LISTED).flatMap(([key, price]) => chipSkus(key, price));
}
