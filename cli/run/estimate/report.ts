import type {CloudOptions} from '../../../client/connection/connect.ts';
import {
  ASSUMED,
  type Compiled,
  type Earlier,
  hoursOf,
  measuredSpan,
  type Numbers,
  type Overhead,
  type Rate,
  type Sampled,
  storedBytes,
  times,
} from '../../../client/views/assumptions.ts';
import {estimatedBill} from '../../../client/views/whole-bill.ts';
import type {RunSpec} from '../../../shared/contracts/spec/spec.ts';
import {type Prices, usdPerHour} from '../../../shared/domain/billing/prices.ts';
import type {UploadRate} from '../../../shared/domain/fleet/upload-rates.ts';
import {regionOf} from '../../../shared/domain/names.ts';
import {isHubModel} from '../../models/mirror.ts';
import type {SpecOptions} from '../spec/spec.ts';
import {priceOrigin} from './price-origin.ts';
import {helpsOf, rateOfStages, workOf} from './stages.ts';

export type Report = ReturnType<typeof reportOn>;

export type EstimateOptions = CloudOptions &
  SpecOptions & {
    accelerator?: string;
    zone?: string;
    region?: string;
    workers?: number;
    sample_bytes: number;
    tokens_per_second?: number;
    compile?: boolean;
    like?: string;
  };

/** TPUs of an estimate. `is_google`: false for a local cloud, whose prices are recorded ones. */
type Machines = {accelerator: string; zone: string; workers: number; is_google?: boolean};
/** What is known of speed. `upload`: the rate of a host. */
type Known = {earlier?: Earlier | undefined; compiled?: Compiled | undefined; upload: UploadRate};

export function reportOn(
  what: string,
  spec: RunSpec,
  sampled: Sampled,
  options: Machines & Pick<Partial<EstimateOptions>, 'region' | 'tokens_per_second'>,
  prices: Prices,
  {earlier, compiled, upload}: Known,
) {
  const {accelerator, zone, workers, region = regionOf(zone), tokens_per_second, is_google = true} = options;
  const {format, dtype, compute_dtype} = spec;
  const numbers = {format, dtype, compute_dtype} as Numbers;
  const machine = {accelerator, workers};
  const stored = storedBytes(sampled, numbers);
  const {samples, tokens} = sampled.totals;
  const work = workOf(sampled, numbers, {accelerator, upload, compiled});
  const isMeasured = earlier !== undefined || tokens_per_second !== undefined;
  const rate =
    earlier && tokens.estimate > 0
      ? rateLike(earlier, stored.estimate / tokens.estimate)
      : tokens_per_second !== undefined
        ? {...measuredSpan(tokens_per_second), limit: 'the measured --tokens-per-second'}
        : work && rateOfStages(work);
  const overhead = earlier
    ? {start_s: measuredSpan(earlier.start_s, earlier.work_s), preemption: measuredSpan(1)}
    : ASSUMED;
  const hours = rate && hoursOf(sampled, rate, machine, overhead);
  const usd_per_hour = (spot: boolean) => usdPerHour(prices, {accelerator, spot, zone});
  const dollars = (spot: boolean) => {
    const usd = usd_per_hour(spot);
    return usd === null || !hours ? null : times(hours.tpu, usd);
  };
  return {
    what,
    spec,
    ...sampled,
    stored_bytes: stored,
    machine: {...machine, zone, spot_usd_per_hour: usd_per_hour(true)},
    program: compiled ?? null,
    tokens_per_second: rate ?? null,
    helps:
      work && !isMeasured
        ? helpsOf(
            work,
            {...spec, layers: sampled.layers},
            {tokens_per_sample: tokens.estimate / samples.estimate, usd_per_hour: usd_per_hour(true)},
          )
        : [],
    tpu_hours: hours?.tpu ?? null,
    clock_hours: hours?.clock ?? null,
    usd: {spot: dollars(true), on_demand: dollars(false)},
    beside_usd: estimatedBill(sampled, stored, hours?.tpu ?? null, {
      ...{zone, region, workers},
      isHubModel: isHubModel(spec.model ?? ''),
    }),
    prices_are: priceOrigin(prices, accelerator, zone, is_google),
    earlier: earlier ?? null,
    assumed: assumptionsOf(rate !== undefined && !isMeasured, earlier),
  };
}

/** The speed of an earlier run, bounded by an upload that was its limit: this run may store more for a token. */
function rateLike({run, tokens_per_s, work_s, upload}: Earlier, bytes_per_token: number): Rate {
  const uploading = upload ? upload.high / bytes_per_token : Number.POSITIVE_INFINITY;
  if (!upload || uploading >= tokens_per_s)
    return {...measuredSpan(tokens_per_s, work_s), limit: `the speed of run ${run}`};
  const made = {bytes_per_s: tokens_per_s * bytes_per_token, chips_busy: uploading / tokens_per_s};
  return {...measuredSpan(uploading, work_s), limit: 'the upload', upload: {...made, rate: upload}};
}

/** Assumptions of an estimate: none with an earlier run, only the overhead with a measured rate. */
function assumptionsOf(
  isSpeedAssumed: boolean,
  earlier: Earlier | undefined,
): typeof ASSUMED | Overhead | null {
  if (earlier) return null;
  const {start_s, preemption} = ASSUMED;
  return isSpeedAssumed ? ASSUMED : {start_s, preemption};
}
