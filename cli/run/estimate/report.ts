import type {RunSpec} from '../../../shared/contracts/spec.ts';
import {originOf, type Prices, usdPerHour} from '../../../shared/domain/billing/prices.ts';
import {regionOf} from '../../../shared/domain/names.ts';
import type {CloudOptions} from '../../cloud/connect.ts';
import {estimatedBill} from '../whole-bill.ts';
import {
  ASSUMED,
  assumedRate,
  type Compiled,
  type Earlier,
  hoursOf,
  measuredRate,
  NOTHING_MORE,
  type Numbers,
  type Rate,
  rateLike,
  type Sampled,
  storedBytes,
  times,
} from './assumptions.ts';
import {uploadOf} from './upload-share.ts';

export type Report = ReturnType<typeof reportOn>;

export type EstimateOptions = CloudOptions & {
  spec?: string;
  model?: string;
  accelerator: string;
  zone: string;
  region?: string;
  workers: number;
  sample_bytes: number;
  tokens_per_second?: number;
  quick?: boolean;
  like?: string;
};

/** True for a model that TPUs download from a hub, unless it is mirrored. */
function isHubId(model: string): boolean {
  return /^[A-Za-z0-9][\w.-]*\/[\w.-]+$/.test(model);
}

/** Estimate of a run from the sample of its streams. */
export function reportOn(
  what: string,
  spec: RunSpec,
  sampled: Sampled,
  options: EstimateOptions,
  prices: Prices,
  earlier: Earlier | undefined,
  compiled: Compiled | undefined,
) {
  const {accelerator, zone, workers, region = regionOf(zone)} = options;
  const {format, dtype, compute_dtype} = spec;
  const numbers = {format, dtype, compute_dtype} as Numbers;
  const machine = {accelerator, workers};
  const rate = rateOf(sampled, numbers, options, earlier, compiled);
  const hours = rate && hoursOf(sampled, rate, machine, earlier ? NOTHING_MORE : ASSUMED);
  const dollars = (spot: boolean) => {
    const usd = usdPerHour(prices, {accelerator, spot, zone});
    return usd === null || !hours ? null : times(hours.tpu, usd);
  };
  return {
    what,
    spec,
    ...sampled,
    stored_bytes: storedBytes(sampled, numbers),
    machine: {
      accelerator,
      zone,
      workers,
      spot_usd_per_hour: usdPerHour(prices, {accelerator, spot: true, zone}),
    },
    program: compiled ?? null,
    tokens_per_second: rate ?? null,
    upload:
      rate?.computing === undefined
        ? null
        : uploadOf(rate.computing, storedBytes(sampled, numbers).estimate / sampled.totals.tokens.estimate),
    tpu_hours: hours?.tpu ?? null,
    clock_hours: hours?.clock ?? null,
    usd: {spot: dollars(true), on_demand: dollars(false)},
    beside_usd: estimatedBill(sampled, storedBytes(sampled, numbers), hours?.tpu ?? null, {
      ...{zone, region, workers},
      isHubModel: isHubId(spec.model ?? ''),
    }),
    prices_are: originOf(prices, accelerator, zone),
    earlier: earlier ?? null,
    assumed: assumptionsOf(rate, options, earlier),
  };
}

type Overhead = Pick<typeof ASSUMED, 'start_s' | 'preemption'>;

/** Assumptions of an estimate: none with an earlier run, only the overhead with a measured rate. */
function assumptionsOf(
  rate: Rate | undefined,
  {tokens_per_second}: EstimateOptions,
  earlier: Earlier | undefined,
): typeof ASSUMED | Overhead | null {
  if (earlier) return null;
  const {start_s, preemption} = ASSUMED;
  return rate && tokens_per_second === undefined ? ASSUMED : {start_s, preemption};
}

function rateOf(
  sampled: Sampled,
  numbers: Numbers,
  {accelerator, workers, tokens_per_second}: EstimateOptions,
  earlier: Earlier | undefined,
  compiled: Compiled | undefined,
): Rate | undefined {
  if (tokens_per_second !== undefined)
    return measuredRate(tokens_per_second, 'the measured --tokens-per-second');
  if (earlier) return rateLike(earlier);
  return assumedRate(sampled, numbers, {accelerator, workers}, compiled);
}
