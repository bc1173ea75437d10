/**
 * Downloads that a host reports: weights and the worker environment. Each report has all bytes since the boot, so a repeated, late or lost
 * report does not change the cost. Streams and shards do not count as downloads: see network.ts.
 */

import {downloadsOf, payerOfWork} from '../billing/cost.ts';
import {type BucketRegion, bytePrice} from '../billing/network.ts';
import {chipsOf} from '../billing/prices.ts';
import {networkBytePrice, UNIT_PRICES} from '../billing/unit-prices.ts';
import {regionOf} from '../names.ts';
import type {Received, Worker} from '../records/worker.ts';
import {foundFault} from '../worker/liveness.ts';

/** Bytes of memory of a chip, from Google's pages of each generation. */
const CHIP_BYTES: Record<string, number> = {
  ...{v2: 16e9, v3: 32e9, v4: 32e9, v5litepod: 16e9, v5p: 95e9, v6e: 32e9, tpu7x: 192e9},
};
/** The host with the most memory, used for a TPU of unknown type. */
const LARGEST = {generation: 'tpu7x', chips: 4};
/** On disk, a model in fp32 takes twice the bytes that it takes as bf16 on the chips. */
const FILES_OF_MEMORY = 2;
/** A generous bound for the worker environment and the tokenizers. */
const ENVIRONMENT_BYTES = 20e9;

const NOTHING: Received = {nat_bytes: 0, bucket_bytes: 0, other_bytes: 0};

/** Dollars of a byte for each way into the zone. The region of another bucket is unknown, so its bytes have the highest price. */
function pricesOf(zone: string, region: BucketRegion): Received {
  return {
    nat_bytes: UNIT_PRICES.nat_byte,
    bucket_bytes: bytePrice(zone, region),
    other_bytes: region === null ? 0 : networkBytePrice(regionOf(zone), ''),
  };
}

/** Bytes that a host can need: its environment, and a model that fits into its chips for each run that it has worked for. */
function mostBytes({priced_as, model_loads}: Worker): number {
  const {generation, chips} = chipsOf(priced_as?.split(' ')[0] ?? '') ?? LARGEST;
  return ENVIRONMENT_BYTES + (1 + model_loads) * FILES_OF_MEMORY * chips * (CHIP_BYTES[generation] ?? 0);
}

/**
 * The worker with the cost of the bytes that its host has received since the last report. The run or the job of its lease pays for them. A
 * worker without work keeps its counts, so the first report after its next grant includes these bytes. A report of more bytes than the host
 * can need is wrong: it costs nothing, and the worker is replaced.
 */
export function withReceived(
  worker: Worker,
  host: number,
  reported: Received | undefined,
  region: BucketRegion,
): Worker {
  if (!reported || worker.fault !== null) return worker;
  const before = worker.received[host] ?? NOTHING;
  const prices = pricesOf(worker.zone, region);
  const after = {...before};
  let [usd, bytes] = [0, 0];
  for (const way of Object.keys(NOTHING) as (keyof Received)[]) {
    after[way] = Math.max(before[way], reported[way]);
    usd += (after[way] - before[way]) * prices[way];
    bytes += after[way];
  }
  const most = mostBytes(worker);
  if (bytes > most) {
    const text = `its host ${host} reports ${bytes} downloaded bytes, and its models and its environment have at most ${most}`;
    return {...worker, fault: foundFault(text)};
  }
  const payer = payerOfWork(worker.work);
  if (payer === undefined) return worker;
  const key = downloadsOf(payer);
  return {
    ...worker,
    received: {...worker.received, [host]: after},
    costs: usd > 0 ? {...worker.costs, [key]: (worker.costs[key] ?? 0) + usd} : worker.costs,
  };
}
