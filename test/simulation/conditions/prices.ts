import {LIST_PRICES} from '../../../shared/domain/billing/list-prices.ts';

/** The list price of the default accelerator. */
export const SPOT_V5E_USD = LIST_PRICES['v5litepod@us-central1']?.spot_usd ?? Number.NaN;

/** Chips of a node: one in the own pool of a world, and four of each host of a slice. Repeated here. */
export function chipsOfHosts(host_count: number): number {
  return host_count === 1 ? 1 : 4 * host_count;
}

export const RISE = 3;
