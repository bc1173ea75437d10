/**
 * Downloads that a host reports: weights and the worker environment. A report has all bytes since the boot, so a repeated, late or lost
 * report changes no cost. Streams and shards are no downloads: see network.ts.
 */
import {regionOf} from '../names.ts';
import {msOf} from '../time.ts';
import type {Received, Worker} from '../worker/worker.ts';
import {downloadsOf, payerOf} from './cost.ts';
import {type BucketRegion, bytePrice} from './network.ts';
import {networkBytePrice, UNIT_PRICES} from './unit-prices.ts';

/** The fastest network card of a TPU VM has 200 Gbit/s: more bytes are a wrong report, and no host can pay for them. */
const MOST_BYTES_PER_S = 25e9;

const NOTHING: Received = {nat_bytes: 0, bucket_bytes: 0, other_bytes: 0};

/** Dollars of a byte by its way to the zone. The region of another bucket is unknown, so its byte has the highest price. */
function pricesOf(zone: string, region: BucketRegion): Received {
  return {
    nat_bytes: UNIT_PRICES.nat_byte,
    bucket_bytes: bytePrice(zone, region),
    other_bytes: region === null ? 0 : networkBytePrice(regionOf(zone), ''),
  };
}

/**
 * The worker with the cost of the bytes that its host has received since the last report. They belong to the run that the worker works
 * for. A worker without a payer keeps its counts: the report after its first work has these bytes too.
 */
export function withReceived(
  worker: Worker,
  host: number,
  reported: Received | undefined,
  region: BucketRegion,
  now: number,
): Worker {
  const payer = payerOf(worker);
  if (!reported || payer === null) return worker;
  const before = worker.received[host] ?? NOTHING;
  const lived_s = Math.max(0, now - msOf(worker.born_at ?? worker.created_at)) / 1000;
  const prices = pricesOf(worker.zone, region);
  const after = {...before};
  let usd = 0;
  for (const way of Object.keys(NOTHING) as (keyof Received)[]) {
    after[way] = Math.max(before[way], Math.min(reported[way], Math.floor(lived_s * MOST_BYTES_PER_S)));
    usd += (after[way] - before[way]) * prices[way];
  }
  const key = downloadsOf(payer);
  return {
    ...worker,
    received: {...worker.received, [host]: after},
    costs: usd > 0 ? {...worker.costs, [key]: (worker.costs[key] ?? 0) + usd} : worker.costs,
  };
}
