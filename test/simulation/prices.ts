import {LIST_PRICES} from '../../shared/domain/billing/list-prices.ts';

/** The list price of the default accelerator. */
export const SPOT_V5E_USD = LIST_PRICES['v5litepod@us-central1']?.spot_usd ?? Number.NaN;
