import {z} from 'zod';
import {parseValue} from '../../contracts/messages/schemas.ts';
import {type Found, type Refresh, refreshed} from '../../domain/billing/catalog.ts';
import {GENERATIONS} from '../../domain/billing/list-prices.ts';
import {isPriceKey, overList, type Prices} from '../../domain/billing/prices.ts';
import {amount, describing, stored} from '../../domain/fields.ts';
import {paths} from '../../domain/names.ts';
import type {Pool} from '../../domain/records/pool.ts';
import type {Store} from '../../ports/ports.ts';
import type {Log} from '../calls/log.ts';
import {recordsOf} from './document-kind.ts';
import {skipIfInvalid} from './documents.ts';

const price = stored({
  usd: amount,
  spot_usd: amount,
  source: describing(['catalog', 'person']).optional(),
  as_of: z.iso.date().optional(),
  since_at: z.iso.datetime().optional(),
});

/** People's entries may be invalid and are kept. Each key is a price. */
const records = recordsOf(z.record(z.string(), z.unknown()), false);

/**
 * Reads the list prices, overridden entry by entry by `prices/chips`. If an entry is invalid, its price is unknown, because an operator
 * wanted a price that differs from the list.
 */
export async function readPrices(
  {store, log}: {store: Store; log: Log},
  pools: readonly Pick<Pool, 'accelerator'>[],
): Promise<Prices> {
  const given: Prices = {};
  const accelerators = pools.map(({accelerator}) => accelerator);
  for (const [key, value] of Object.entries((await store.get(paths.prices())) ?? {})) {
    if (!isPriceKey(key, accelerators)) {
      const known = `a generation (${GENERATIONS.join(', ')}; v5e is v5litepod), a type such as v6e-8`;
      log('ERROR', `${paths.prices()} has "${key}", which has no price: write ${known}, or one with @REGION`);
      continue;
    }
    const parsed = await skipIfInvalid(log, async () => parseValue(price, value, `${paths.prices()} ${key}`));
    if (!parsed)
      log('ERROR', `The price of ${key} is unknown: write {"usd": 2.7, "spot_usd": 1.35}, for an hour`);
    given[key] = parsed ?? null;
  }
  return overList(given);
}

/** Writes the prices of the catalog into `prices/chips`; with `dry_run`, only shows what would change. People's entries are not changed. */
export async function storeCatalog(
  store: Store,
  found: Found,
  now: number,
  options: {dry_run?: boolean | undefined} = {},
): Promise<Refresh> {
  if (Object.keys(found.chips).length === 0)
    throw new Error('Failed to read the prices of the Billing Catalog: it names no price of a TPU chip');
  return store.transaction(async tx => {
    const before = (await tx.get(paths.prices())) ?? {};
    const known = Object.entries(before).map(
      ([key, value]) => [key, price.safeParse(value).data ?? null] as const,
    );
    const isOfCatalog = (key: string) =>
      known.some(([name, entry]) => name === key && entry?.source === 'catalog');
    const refresh = refreshed(Object.fromEntries(known), found, now);
    const others = Object.entries(before).filter(([key]) => !isOfCatalog(key));
    if (!options.dry_run) records.set(tx, paths.prices(), {...Object.fromEntries(others), ...refresh.prices});
    return refresh;
  });
}
