/** The Cloud Billing Catalog: the items of Compute Engine that name TPU chips, and a few that resemble them. */
import {ApiError} from '../http/errors.ts';
import type {Route} from '../http/http.ts';
import type {JsonObject} from '../http/json.ts';

const SERVICE = '6F81-5844-456A';
const MOST_ITEMS = 5000;

type Item = [id: string, description: string, usage: string, region: string, usd: number, group?: string];

/** Descriptions and prices were recorded from the live catalog in 2026 by other people's programs; the ids of the items are made up. */
// biome-ignore format: an item a line
const ITEMS: readonly Item[] = [
  ['A007-0011-00B1', 'TpuV5e running in Iowa', 'OnDemand', 'us-central1', 1.2],
  ['A00E-0012-00B2', 'TpuV5e attached to Spot Preemptible VMs running in Iowa', 'Preemptible', 'us-central1', 0.24493],
  ['A015-0013-00B3', 'TpuV6e running in Iowa', 'OnDemand', 'us-central1', 2.7],
  ['A01C-0014-00B4', 'TpuV6e attached to Spot Preemptible VMs running in Iowa', 'Preemptible', 'us-central1', 0.65],
  ['A023-0015-00B5', 'TpuV6e running in Columbus', 'OnDemand', 'us-east5', 2.7],
  ['A02A-0016-00B6', 'TpuV6e attached to Spot Preemptible VMs running in Columbus', 'Preemptible', 'us-east5', 1.4033],
  ['A031-0017-00B7', 'TpuV6e running in Netherlands', 'OnDemand', 'europe-west4', 2.9699999999999998],
  ['A038-0018-00B8', 'TpuV6e attached to Spot Preemptible VMs running in Netherlands', 'Preemptible', 'europe-west4', 1.782],
  ['A03F-0019-00B9', 'DWS Defined Duration V6e running in Columbus', 'OnDemand', 'us-east5', 1.35],
  ['A046-001A-00BA', 'Capacity Optimized TpuV6e running in Columbus', 'OnDemand', 'us-east5', 2.7],
  ['A04D-001B-00BB', 'Reserved V6e TPU in Columbus in Calendar Mode', 'OnDemand', 'us-east5', 1.8900000000000001],
  ['A054-001C-00BC', 'Commitment v1: TpuV6e running in Columbus for 1 Year', 'Commit1Yr', 'us-east5', 1.8900000000000001],
  ['A05B-001D-00BD', 'TpuV6e running in Tokyo', 'OnDemand', 'asia-northeast1', 3.24],
  ['A062-001E-00BE', 'Tpu7x running in Iowa', 'OnDemand', 'us-central1', 12],
  ['A069-001F-00BF', 'E2 Instance Core running in Iowa', 'OnDemand', 'us-central1', 0.021811, 'CPU'],
];

/** An item with the fields of Google's answers. */
function skuOf([id, description, usageType, region, usd, resourceGroup = 'TPU']: Item): JsonObject {
  const units = Math.floor(usd);
  const unitPrice = {currencyCode: 'USD', units: String(units), nanos: Math.round((usd - units) * 1e9)};
  const pricingExpression = {
    ...{usageUnit: 'h', displayQuantity: 1, tieredRates: [{startUsageAmount: 0, unitPrice}]},
    ...{usageUnitDescription: 'hour', baseUnit: 's', baseUnitDescription: 'second'},
    baseUnitConversionFactor: 3600,
  };
  return {
    ...{name: `services/${SERVICE}/skus/${id}`, skuId: id, description},
    category: {serviceDisplayName: 'Compute Engine', resourceFamily: 'Compute', resourceGroup, usageType},
    serviceRegions: [region],
    pricingInfo: [
      {summary: '', pricingExpression, currencyConversionRate: 1, effectiveTime: '2026-10-01T07:00:00.000Z'},
    ],
    serviceProviderName: 'Google',
    geoTaxonomy: {type: 'REGIONAL', regions: [region]},
  };
}

export function catalogRoutes(): Route[] {
  return [['GET', '/v1/services/{service}/skus', ({params, query}) => ({json: page(params.service, query)})]];
}

function page(service: string | undefined, query: URLSearchParams): JsonObject {
  if (service !== SERVICE) throw new ApiError(404, `Requested entity was not found: services/${service}`);
  const size = Number(query.get('pageSize') ?? MOST_ITEMS);
  const first = Number(query.get('pageToken') || 0);
  const currency = query.get('currencyCode') || 'USD';
  if (!Number.isInteger(size) || size < 0 || size > MOST_ITEMS)
    throw new ApiError(400, `Page size must be between 0 and ${MOST_ITEMS}`);
  if (!Number.isInteger(first) || first < 0) throw new ApiError(400, 'Invalid page token');
  if (currency !== 'USD') throw new ApiError(400, `The local cloud has no exchange rate for ${currency}`);
  const end = first + (size || MOST_ITEMS);
  return {skus: ITEMS.slice(first, end).map(skuOf), nextPageToken: end < ITEMS.length ? String(end) : ''};
}
