/** The Cloud Billing Catalog: the items of Compute Engine that name TPU chips, and a few that resemble them. */
import {readFileSync} from 'node:fs';
import {ApiError} from '../http/errors.ts';
import type {Route} from '../http/http.ts';
import type {JsonObject} from '../http/json.ts';

const SERVICE = '6F81-5844-456A';
const MOST_ITEMS = 5000;

/**
 * Items with the fields of Google's answers. Descriptions and prices were recorded from the live catalog in 2026 by other people's programs;
 * the ids of the items are made up.
 */
const FILE = new URL('./skus.json', import.meta.url);

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
  const {skus} = JSON.parse(readFileSync(FILE, 'utf8')) as {skus: JsonObject[]};
  const end = first + (size || MOST_ITEMS);
  return {skus: skus.slice(first, end), nextPageToken: end < skus.length ? String(end) : ''};
}
