/** Checks that a budget pays for one TPU of the pool that lives shortly. */
import {leastBudget} from '../../shared/domain/billing/cost.ts';
import {type Prices, usdPerHour} from '../../shared/domain/billing/prices.ts';
import {ONE_HOST} from '../../shared/domain/fleet/accelerators.ts';
import type {Pool} from '../../shared/domain/records/pool.ts';
import type {Finding} from './findings.ts';

/** Region with the lowest prices. */
const CHEAP_ZONE = 'us-central1-a';

/** `pool`: undefined for a pool whose TPUs are as deployed, which has at least the price of the cheapest TPU. */
export function checkBudget(
  budget_usd: number,
  pool: Pick<Pool, 'accelerator' | 'spot' | 'zones'> | undefined,
  prices: Prices,
): Finding[] {
  const types = pool
    ? pool.zones.map(zone => ({...pool, zone}))
    : ONE_HOST.map(accelerator => ({accelerator, spot: true, zone: CHEAP_ZONE}));
  const known = types.flatMap(type => usdPerHour(prices, type) ?? []);
  const what = pool?.accelerator ?? 'TPU';
  if (known.length === 0)
    return [{unchecked: `the budget, because the price of ${what} is unknown: set prices/chips`}];
  const least = leastBudget(Math.min(...known));
  if (budget_usd >= least) return [];
  const enough = (Math.ceil(least * 100) / 100).toFixed(2);
  return [
    {
      problem: `a budget of $${budget_usd} pays for no ${what}: its shortest life costs $${enough}; give --budget-usd ${enough} or more`,
    },
  ];
}
