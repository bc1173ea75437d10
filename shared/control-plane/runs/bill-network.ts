/** The bill of traffic between regions: streams count it, and the totals of their run add it to the pool and to the month. */
import {unpaidText} from '../../domain/billing/bills.ts';
import {monthOf} from '../../domain/billing/monthly-spending.ts';
import {TRAFFIC, type Traffic, withNetwork} from '../../domain/billing/network.ts';
import {paths} from '../../domain/names.ts';
import type {Run} from '../../domain/records/run.ts';
import {iso} from '../../domain/time.ts';
import type {Store, Transaction} from '../../ports/ports.ts';
import type {Deps} from '../deps.ts';
import {LEFT_ALONE, poolRecords, skipIfInvalid, spendingRecords} from '../documents/documents.ts';

/** Traffic of the streams of a run. A run that never crossed a region has none and needs no read. */
export async function trafficOf(store: Store, run: Run): Promise<Traffic> {
  const {network_bytes, network_usd, allow_cross_region} = run;
  if (!allow_cross_region && network_usd === 0) return {network_bytes, network_usd};
  return store.sum(paths.streams(run.run), TRAFFIC);
}

/** Reads the payers of new traffic. Returns the run with the traffic, and the write of its payers. */
export async function readNetworkBill(
  {log, config}: Deps,
  tx: Transaction,
  before: Run,
  traffic: Traffic,
  now: number,
): Promise<{run: Run; write: () => void}> {
  const {run, usd} = withNetwork(before, traffic);
  if (usd === 0) return {run, write: () => {}};
  const pool = await skipIfInvalid(log, () => poolRecords.find(tx, run.pool, config.pool));
  const spending = await skipIfInvalid(log, () => spendingRecords.get(tx));
  const month = monthOf(now);
  return {
    run: {...run, updated_at: iso(now)},
    write: () => {
      for (const [payer, document] of Object.entries({'the pool': pool, 'the months': spending}))
        if (!document) log('ERROR', unpaidText(payer, usd), LEFT_ALONE);
      const spent_usd = (pool?.spent_usd ?? 0) + usd;
      if (pool) poolRecords.set(tx, {...pool, spent_usd});
      if (!spending) return;
      const {months} = spending;
      spendingRecords.set(tx, {...spending, months: {...months, [month]: (months[month] ?? 0) + usd}});
    },
  };
}
