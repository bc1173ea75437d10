/**
 * Downloads that a host reports: weights and the worker environment. A report has all bytes since the boot, so a repeated, late or lost
 * report changes no cost. Streams and shards are no downloads: see network.ts.
 */

import {downloadsOf, payerOfWork} from '../billing/cost.ts';
import {type BucketRegion, bytePrice} from '../billing/network.ts';
import {chipsOf} from '../billing/prices.ts';
import {networkBytePrice, UNIT_PRICES} from '../billing/unit-prices.ts';
import {regionOf} from '../names.ts';
import type {Received, Worker} from '../records/worker.ts';
import {foundFault} from '../worker/liveness.ts';

/** Bytes of memory of a chip, as Google's pages of each generation give them. */
const CHIP_BYTES: Record<string, number> = {
  ...{v2: 16e9, v3: 32e9, v4: 32e9, v5litepod: 16e9, v5p: 95e9, v6e: 32e9, tpu7x: 192e9},
};
/** Chips of the largest memory in one host, for a TPU of unknown type. */
const LARGEST = {generation: 'tpu7x', chips: 4};
/** Files of a model in fp32 have twice the bytes of its weights on the chips, which are bf16. */
const FILES_OF_MEMORY = 2;
/** The worker environment and the tokenizers, many times over. */
const ENVIRONMENT_BYTES = 20e9;

const NOTHING: Received = {nat_bytes: 0, bucket_bytes: 0, other_bytes: 0};

/** Dollars of a byte by its way to the zone. The region of another bucket is unknown, so its byte has the highest price. */
function pricesOf(zone: string, region: BucketRegion): Received {
  return {
    nat_bytes: UNIT_PRICES.nat_byte,
    bucket_bytes: bytePrice(zone, region),
    other_bytes: region === null ? 0 : networkBytePrice(regionOf(zone), ''),
  };
}

/** Bytes that a host can need: its environment, and the model of each run that it has worked for, which fits into its chips. */
function mostBytes({priced_as, model_loads}: Worker): number {
  const {generation, chips} = chipsOf(priced_as?.split(' ')[0] ?? '') ?? LARGEST;
  return ENVIRONMENT_BYTES + (1 + model_loads) * FILES_OF_MEMORY * chips * (CHIP_BYTES[generation] ?? 0);
}

/**
 * The worker with the cost of the bytes that its host has received since the last report. They belong to the run or the job of its lease. A
 * worker without work keeps its counts: the report after its next grant has these bytes too. More bytes than the host can need cost nothing:
 * the report is wrong, and the worker is replaced.
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
