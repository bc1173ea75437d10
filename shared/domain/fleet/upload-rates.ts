/** Bytes a second that one host uploads into Cloud Storage, several objects at once. */
import {chipsOf} from '../billing/prices.ts';
import type {Uploads} from '../run/result.ts';
import {hostsOfType} from './accelerators.ts';

/**
 * `measured`: a run of Gleaner reached this rate while uploads were the bottleneck. `vendor`: documented by Google. `assumed`: neither.
 * `source`: the evidence for the numbers.
 */
export type UploadRate = {
  estimate: number;
  low: number;
  high: number;
  basis: 'measured' | 'vendor' | 'assumed';
  source: string;
};

const PUBLIC = 'public measurements of one VM, 1.66 GB/s at most';
const CLAIM = 'and a page of 2024-02 that claims 8 GiB/s with parallel streams';

/**
 * Each row: GB/s low, estimate and high, and the network of the host as Google documents it, which is faster than these estimates. No run of
 * Gleaner on a real TPU has measured an upload yet, so every row is assumed: a VM of one chip has an eighth of a host and 24 or 44 vCPUs.
 */
const ROWS: Record<string, readonly [low: number, estimate: number, high: number, network: string]> = {
  'v5litepod-1': [0.3, 1, 1.7, '2 x 100 Gbit/s for 8 chips'],
  'v5litepod-4': [0.5, 1.6, 8.6, '2 x 100 Gbit/s for 8 chips'],
  'v5litepod-8': [0.5, 1.6, 8.6, '2 x 100 Gbit/s for 8 chips'],
  'v6e-1': [0.3, 1, 1.7, '4 x 200 Gbit/s for 8 chips'],
  'v6e-4': [0.5, 1.6, 8.6, '4 x 200 Gbit/s for 8 chips'],
  'v6e-8': [0.5, 1.6, 8.6, '4 x 200 Gbit/s for 8 chips'],
  'v5p-8': [0.5, 1.6, 8.6, '50 Gbit/s a chip'],
  'tpu7x-8': [0.5, 1.6, 8.6, 'not documented'],
};
const OTHERS = [0.3, 1, 1.7, 'not documented'] as const;

/** The rate of a type. A type of several hosts uploads from each of them. */
export function uploadRateOf(accelerator: string): UploadRate {
  const {generation, chips} = chipsOf(accelerator) ?? {generation: '', chips: 0};
  const hosts = hostsOfType(accelerator);
  const ofHost =
    hosts === 1 ? accelerator : `${generation}-${['v5p', 'tpu7x'].includes(generation) ? 8 : chips / hosts}`;
  const [low, estimate, high, network] = ROWS[ofHost] ?? OTHERS;
  const of = (gigabytes: number) => gigabytes * 1e9 * hosts;
  const source = `${PUBLIC}${high > 2 ? `, ${CLAIM}` : ''}; network ${network}`;
  return {low: of(low), estimate: of(estimate), high: of(high), basis: 'assumed', source};
}

/** More than any host's network: a worker that reports more is not believed. */
const MOST_BYTES_PER_S = 125e9;
/** Uploads were the bottleneck if all of them were busy for at least this share of the uploading time. */
const BOUND_SHARE = 0.5;

/**
 * The rate of a host, corrected by what a run measured. If uploads were the bottleneck, the run measured the rate itself; otherwise the host
 * has at least this rate.
 */
export function withMeasured(rate: UploadRate, uploads: Uploads, run: string): UploadRate {
  const {bytes, seconds, bound_seconds} = uploads;
  const measured = bytes / seconds;
  if (!(seconds >= 1 && measured > 0 && measured <= MOST_BYTES_PER_S)) return rate;
  const isLimit = bound_seconds >= BOUND_SHARE * seconds;
  if (!isLimit && measured <= rate.estimate) return rate;
  const range = {low: measured, estimate: measured, high: isLimit ? measured : Math.max(measured, rate.high)};
  return {...range, basis: 'measured', source: `run ${run}`};
}
