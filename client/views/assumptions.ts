/**
 * Estimated time and cost of a run, from a sample of its streams, the TPU compiler's estimate of the program, and
 * assumptions about the machines. Every assumption stands here, and the answer names it. A measured rate replaces the assumptions of speed.
 * An earlier run replaces all assumptions.
 */
import {chipsOf} from '../../shared/domain/billing/prices.ts';
import type {UploadRate} from '../../shared/domain/fleet/upload-rates.ts';

/** `high` is null without an upper bound. */
export type Span = {estimate: number; low: number; high: number | null};

/** Bytes of a reduction: of a stored token or of a sample, and of one copy of its weights. */
type Reduced = {name: string; bytes_per_token?: number; bytes_per_sample?: number; weight_bytes: number};

/** Output of `gleaner_worker.estimate` for a run. */
export type Sampled = {
  reductions?: Reduced[];
  model: {name: string; revision: string | null; family: string; d_model: number};
  layers: number;
  deepest_layer: number;
  model_layers: number;
  row_bytes: number;
  streams: number;
  stream_bytes: number;
  exact: boolean;
  sample: {blocks: number; lines: number; bytes: number};
  totals: Record<
    'lines' | 'samples' | 'rejected' | 'truncated' | 'tokens' | 'rows' | 'shard_bytes' | 'shards',
    Span
  >;
  computed_tokens: number;
  /** Tokens that the model generates, at most; they are among the tokens too. */
  generated_tokens: number;
  operations: number;
  reject_reasons: {reason: string; samples: number}[];
  /** Disagreements of the model's files, as the worker logs them. */
  warnings: string[];
};

/**
 * Output of `gleaner_worker.preflight`: the program of a run, compiled for one type of TPU. Bytes are of one device of JAX, which is a chip, or
 * half a chip of TPU7x.
 */
export type Compiled = {
  reductions?: Reduced[];
  model: string;
  layers: number;
  accelerator: string;
  devices: number;
  hbm_limit_bytes: number;
} & (
  | {fits: false; reason: string}
  | {
      fits: true;
      /** Copies of the weights, and devices of a copy. */
      mesh: string;
      /** Rows of one device in a step, and tokens of a row. */
      shape: string;
      hbm_bytes: {arguments: number; temp: number; output: number};
      /** Of one step of all devices. */
      estimated_ms: number;
      /** Of all devices, with full rows. */
      tokens_per_s: number;
      share_of_peak: number;
      /** Null where the tokens of a sample decide which of them are stored. */
      stored_bytes_per_token: number | null;
      /** Of all devices with full batches; null for a run that generates none. */
      generated_tokens_per_s: number | null;
      compile_cpu_s: number;
    }
);

/** Peak bf16 operations a second of one chip, from the Cloud TPU documentation of its generation. */
const PEAK_OPS_PER_S: Record<string, number> = {
  v2: 45e12,
  v3: 123e12,
  v4: 275e12,
  v5litepod: 197e12,
  v5p: 459e12,
  v6e: 918e12,
  tpu7x: 2307e12,
};

/** Assumptions without a measurement on a TPU. */
export const ASSUMED = {
  /** Real speed over the compiler's estimate, which overlaps nothing. */
  compiled_speed: {estimate: 1, low: 0.5, high: 1.2},
  /** Share of the peak that a forward pass reaches, where no program was compiled. */
  utilisation: {estimate: 0.4, low: 0.15, high: 0.55},
  /** bf16 products that one fp32 product costs. */
  fp32_products: 6,
  /** Transfer from one chip to its host. PCIe has about 15 GB/s. */
  chip_to_host_bytes_per_s: {estimate: 8e9, low: 3e9, high: 15e9},
  /** Bytes before the codec that one core encodes a second, and cores that encode for each chip. */
  encode_bytes_per_s: {safetensors: 4e9, 'safetensors.zst': 0.5e9, 'pkl.gz': 37e6},
  cores_per_chip: 12,
  /** Compressed bytes over bytes: activations are hard to compress. */
  ratio: {
    safetensors: {bf16: 1, fp16: 1, fp32: 1, int8: 1},
    'safetensors.zst': {bf16: 0.78, fp16: 0.9, fp32: 0.92, int8: 0.92},
    'pkl.gz': {bf16: 0.8, fp16: 0.9, fp32: 0.93, int8: 1},
  },
  /** Time of a node from READY to its first batch, once for each worker: environment and compilation. The download of the weights is added. */
  start_s: {estimate: 300, low: 120, high: 900},
  /** Factor on TPU time for the work that preemptions lose. */
  preemption: {estimate: 1.05, low: 1, high: 1.2},
};

type Format = keyof typeof ASSUMED.ratio;
type Dtype = keyof (typeof ASSUMED.ratio)['safetensors'];

export type Machine = {accelerator: string; workers: number};
export type Numbers = {format: Format; dtype: Dtype; compute_dtype: 'bf16' | 'fp32'};

/**
 * Tokens a second of one worker. `limit` names the slowest stage. `upload`: the bytes a second that the chips make by themselves, the share
 * of the time in which they compute, and the rate of the host.
 */
export type Rate = Span & {limit: string; upload?: Upload};
export type Upload = {bytes_per_s: number; chips_busy: number; rate: UploadRate};

/** Bytes of the shards as objects: bytes in memory, times the assumed ratio of the codec. */
export function storedBytes({totals}: Sampled, {format, dtype}: Numbers): Span {
  const likely = ASSUMED.ratio[format][dtype];
  const {estimate, low, high} = totals.shard_bytes;
  // Without a codec the size is exact. With a codec, the only certain bound is little growth.
  const [best, worst] = likely === 1 ? [1, 1] : [likely - 0.12, 1.01];
  return {estimate: estimate * likely, low: low * best, high: high === null ? null : high * worst};
}

/** Tokens a second of all chips at the assumed share of their peak; undefined for an unknown type. */
export function computedTokens(
  accelerator: string,
  operations_per_token: number,
  compute_dtype: 'bf16' | 'fp32',
): number | undefined {
  const type = chipsOf(accelerator);
  const peak = type && PEAK_OPS_PER_S[type.generation];
  const products = compute_dtype === 'fp32' ? ASSUMED.fp32_products : 1;
  return peak && (type.chips * peak * ASSUMED.utilisation.estimate) / products / operations_per_token;
}

/** Seconds of work from which on an earlier run measured speed and start; of less work, half and twice as much are likely too. */
const ENOUGH_WORK_S = 60;

/** A measurement with its range. `work_s`: the work that it is from. */
export function measuredSpan(value: number, work_s = ENOUGH_WORK_S) {
  const factor = work_s < ENOUGH_WORK_S ? 2 : 1;
  return {estimate: value, low: value / factor, high: value * factor};
}

/**
 * What an earlier run measured: tokens a second of a TPU in `work_s` seconds of work, and seconds of a TPU without work, such as its
 * start. `upload`: the rate of a host; undefined where that run did not measure it.
 */
export type Earlier = {
  run: string;
  work_s: number;
  tokens_per_s: number;
  start_s: number;
  usd_per_hour: number;
  usd_per_million_tokens: number;
  upload: UploadRate | undefined;
};

/** Bytes of the weights: about one for each operation of a token, which are two operations and two bytes a parameter. */
export function weightBytes(of: Pick<Sampled, 'operations' | 'computed_tokens'>): number {
  return of.computed_tokens > 0 ? of.operations / of.computed_tokens : 0;
}

export type Overhead = Pick<typeof ASSUMED, 'start_s' | 'preemption'>;

/** Hours of all TPUs together, and hours on the clock. No more workers than streams do work. */
export function hoursOf(
  sampled: Sampled,
  rate: Rate,
  machine: Machine,
  {start_s, preemption}: Overhead = ASSUMED,
): {tpu: Span; clock: Span} {
  const workers = Math.max(1, Math.min(machine.workers, sampled.streams));
  const {estimate, low, high} = sampled.totals.tokens;
  const hours = (tokens: number, tokens_per_s: number, which: 'estimate' | 'low' | 'high') => {
    const download_s = rate.upload ? weightBytes(sampled) / rate.upload.rate[OPPOSITE[which]] : 0;
    return ((tokens / tokens_per_s) * preemption[which] + workers * (start_s[which] + download_s)) / 3600;
  };
  const fastest = rate.high ?? rate.estimate;
  const tpu = {
    estimate: hours(estimate, rate.estimate, 'estimate'),
    low: hours(low, fastest, 'low'),
    high: high === null ? null : hours(high, rate.low, 'high'),
  };
  return {tpu, clock: times(tpu, 1 / workers)};
}

/** The shortest time has the highest rate. */
const OPPOSITE = {low: 'high', estimate: 'estimate', high: 'low'} as const;

export function times({estimate, low, high}: Span, factor: number): Span {
  return {estimate: estimate * factor, low: low * factor, high: high === null ? null : high * factor};
}
