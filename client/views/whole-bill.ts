/** Dollars of a run beside its TPUs: estimated from a sample before the run, and counted from the totals of the run. */
import type {z} from 'zod';
import {bytePrice, networkOf} from '../../shared/domain/billing/network.ts';
import {UNIT_PRICES} from '../../shared/domain/billing/unit-prices.ts';
import type {Run} from '../../shared/domain/records/run.ts';
import type {beside} from '../json/runs.ts';
import {type Sampled, type Span, times, weightBytes} from './assumptions.ts';

/** Operations of a stream and of a shard: creates and lists are of class A, reads are of class B. */
const OPERATIONS = {stream: {a: 5, b: 3}, shard: {a: 1, b: 1}};
const OF_STREAM = OPERATIONS.stream.a * UNIT_PRICES.class_a + OPERATIONS.stream.b * UNIT_PRICES.class_b;
const OF_SHARD = OPERATIONS.shard.a * UNIT_PRICES.class_a + OPERATIONS.shard.b * UNIT_PRICES.class_b;

/**
 * `network`: between regions; a TPU reads the weights of a bucket twice, to hash and to load them. `nat`: the weights of a hub model at
 * each start. `operations`: of Cloud Storage. `control`: functions and Firestore. `storage_month`: of the shards, in each month that they
 * stay.
 */
type WholeBill = Record<'network' | 'nat' | 'operations' | 'control' | 'storage_month', Span>;

type Place = {zone: string; region: string | null; workers: number; isHubModel: boolean};

export function estimatedBill(
  sampled: Sampled,
  stored: Span,
  tpu_hours: Span | null,
  place: Place,
): WholeBill {
  const {streams, stream_bytes, totals} = sampled;
  const weights = weightBytes(sampled) * Math.max(1, Math.min(place.workers, streams));
  const read = stream_bytes + (place.isHubModel ? 0 : 2 * weights);
  const hours = tpu_hours ?? NOTHING;
  return {
    network: times(plus(stored, read), bytePrice(place.zone, place.region)),
    nat: times(
      {...NOTHING, estimate: weights, high: weights, low: weights},
      place.isHubModel ? UNIT_PRICES.nat_byte : 0,
    ),
    operations: plus(times(totals.shards, OF_SHARD), streams * OF_STREAM),
    control: added(
      times(hours, UNIT_PRICES.control_tpu_hour),
      times(totals.shards, UNIT_PRICES.control_shard),
    ),
    storage_month: times(stored, UNIT_PRICES.storage_byte_month),
  };
}

const NOTHING: Span = {estimate: 0, low: 0, high: 0};

function plus({estimate, low, high}: Span, more: number): Span {
  return {estimate: estimate + more, low: low + more, high: high === null ? null : high + more};
}

function added(one: Span, other: Span): Span {
  const high = one.high === null || other.high === null ? null : one.high + other.high;
  return {estimate: one.estimate + other.estimate, low: one.low + other.low, high};
}

type Totals = Pick<Run, 'total_shards' | 'total_bytes' | 'cost_usd' | 'network_usd' | 'download_usd'> &
  Record<`streams_${'pending' | 'in_progress' | 'completed' | 'failed'}`, number>;

/** Dollars so far beside the TPUs, from the document of the run. `usd_per_hour`: mean price of its TPUs; null if unknown. */
export type CountedBill = z.infer<typeof beside>;

export function countedBill(run: Totals, usd_per_hour: number | null): CountedBill {
  const {total_shards, total_bytes, cost_usd} = run;
  const streams = run.streams_in_progress + run.streams_completed + run.streams_failed;
  const hours = usd_per_hour ? cost_usd / usd_per_hour : 0;
  return {
    network_usd: networkOf(run),
    operations_usd: streams * OF_STREAM + total_shards * OF_SHARD,
    control_usd: hours * UNIT_PRICES.control_tpu_hour + total_shards * UNIT_PRICES.control_shard,
    storage_usd_per_month: total_bytes * UNIT_PRICES.storage_byte_month,
  };
}
