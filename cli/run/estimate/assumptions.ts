/**
 * Estimated time and cost of a run, from a sample of its streams, the TPU compiler's estimate of the program, and
 * assumptions about the machines. Every assumption stands here, and the answer names it. A measured rate replaces the assumptions of speed.
 * An earlier run replaces all assumptions.
 */
import {chipsOf} from '../../../shared/domain/billing/prices.ts';

/** `high` is null without an upper bound. */
export type Span = {estimate: number; low: number; high: number | null};

/** Output of `gleaner_worker.estimate` for a run. */
export type Sampled = {
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
  model: string;
  /** Number of the stored layers. */
  layers: number;
  accelerator: string;
  devices: number;
  /** Rows of one device in a step, and tokens of a row. */
  shape: string;
  hbm_limit_bytes: number;
} & (
  | {fits: false; reason: string}
  | {
      fits: true;
      /** Copies of the weights, and devices of a copy. */
      mesh: string;
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
  /** Upload from one VM into Cloud Storage, several objects at once. */
  upload_bytes_per_s: {estimate: 1e9, low: 0.3e9, high: 1.7e9},
  /** Bytes before the codec that one core encodes a second, and cores that encode for each chip. */
  encode_bytes_per_s: {safetensors: 4e9, 'safetensors.zst': 0.5e9, 'pkl.gz': 37e6},
  cores_per_chip: 12,
  /** Compressed bytes over bytes: activations are hard to compress. */
  ratio: {
    safetensors: {bf16: 1, fp16: 1, fp32: 1, int8: 1},
    'safetensors.zst': {bf16: 0.78, fp16: 0.9, fp32: 0.92, int8: 0.92},
    'pkl.gz': {bf16: 0.8, fp16: 0.9, fp32: 0.93, int8: 1},
  },
  /** Time of a node from READY to its first batch, once for each worker: environment, weights, compilation. */
  start_s: {estimate: 300, low: 120, high: 900},
  /** Factor on TPU time for the work that preemptions lose. */
  preemption: {estimate: 1.05, low: 1, high: 1.2},
};

/** No additions: hours of an earlier run include starts and preemptions. */
export const NOTHING_MORE = {
  start_s: {estimate: 0, low: 0, high: 0},
  preemption: {estimate: 1, low: 1, high: 1},
};

type Format = keyof typeof ASSUMED.ratio;
type Dtype = keyof (typeof ASSUMED.ratio)['safetensors'];

export type Machine = {accelerator: string; workers: number};
export type Numbers = {format: Format; dtype: Dtype; compute_dtype: 'bf16' | 'fp32'};

/** Tokens a second of one worker. `limit` names the slowest stage, and `computing` is the rate of the chips alone. */
export type Rate = Span & {limit: string; computing?: number};

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

/** Rate of the slowest stage: computing, transfer to the host, encoding, or upload. Undefined for a program that does not fit. */
export function assumedRate(
  sampled: Sampled,
  numbers: Numbers,
  machine: Machine,
  compiled?: Compiled,
): Rate | undefined {
  const type = chipsOf(machine.accelerator);
  const tokens = sampled.totals.tokens.estimate;
  if (!type || tokens === 0 || compiled?.fits === false) return undefined;
  const {chips} = type;
  const per_token = sampled.operations / tokens;
  const assumed = computedTokens(machine.accelerator, per_token, numbers.compute_dtype);
  if (assumed === undefined) return undefined;
  const raw = sampled.totals.shard_bytes.estimate / tokens;
  const stored = storedBytes(sampled, numbers).estimate / tokens;
  const encode = ASSUMED.encode_bytes_per_s[numbers.format] * ASSUMED.cores_per_chip * chips;
  const decoding = compiled?.generated_tokens_per_s;
  if (sampled.generated_tokens > 0 && !decoding) return undefined;
  const computing = (which: 'estimate' | 'low' | 'high') =>
    compiled
      ? (ASSUMED.compiled_speed[which] * tokens) /
        (sampled.computed_tokens / compiled.tokens_per_s + sampled.generated_tokens / (decoding ?? 1))
      : (assumed * ASSUMED.utilisation[which]) / ASSUMED.utilisation.estimate;
  const at = (which: 'estimate' | 'low' | 'high') => {
    const stages: [string, number][] = [
      [sampled.generated_tokens > 0 ? 'computing and decoding' : 'computing', computing(which)],
      ['the way from the chips to the host', (chips * ASSUMED.chip_to_host_bytes_per_s[which]) / raw],
      ['encoding', encode / raw],
      ['the upload', ASSUMED.upload_bytes_per_s[which] / stored],
    ];
    return stages.reduce((slowest, stage) => (stage[1] < slowest[1] ? stage : slowest));
  };
  const [limit, estimate] = at('estimate');
  return {estimate, low: at('low')[1], high: at('high')[1], limit, computing: computing('estimate')};
}

export function measuredRate(tokens_per_s: number, limit: string): Rate {
  return {estimate: tokens_per_s, low: tokens_per_s, high: tokens_per_s, limit};
}

/** Cost of a million tokens of an earlier run, and of an hour of one of its TPUs. */
export type Earlier = {run: string; usd_per_million_tokens: number; usd_per_hour: number};

/** Tokens per paid second of the earlier run. */
export function rateLike({run, usd_per_million_tokens, usd_per_hour}: Earlier): Rate {
  const tokens_per_hour = (usd_per_hour / usd_per_million_tokens) * 1e6;
  return measuredRate(tokens_per_hour / 3600, `what run ${run} did for its money`);
}

/** Hours of all TPUs together, and hours on the clock. No more workers than streams do work. */
export function hoursOf(
  sampled: Sampled,
  rate: Rate,
  machine: Machine,
  {start_s, preemption}: typeof NOTHING_MORE = ASSUMED,
): {tpu: Span; clock: Span} {
  const workers = Math.max(1, Math.min(machine.workers, sampled.streams));
  const {estimate, low, high} = sampled.totals.tokens;
  const hours = (tokens: number, tokens_per_s: number, which: 'estimate' | 'low' | 'high') =>
    ((tokens / tokens_per_s) * preemption[which] + workers * start_s[which]) / 3600;
  const fastest = rate.high ?? rate.estimate;
  const tpu = {
    estimate: hours(estimate, rate.estimate, 'estimate'),
    low: hours(low, fastest, 'low'),
    high: high === null ? null : hours(high, rate.low, 'high'),
  };
  return {tpu, clock: times(tpu, 1 / workers)};
}

export function times({estimate, low, high}: Span, factor: number): Span {
  return {estimate: estimate * factor, low: low * factor, high: high === null ? null : high * factor};
}
