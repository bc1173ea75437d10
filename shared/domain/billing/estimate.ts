/**
 * How long a run will take and what it will cost, from what a sample of its streams says and what is assumed of the machines. Every
 * assumption is named here and told with the answer; a measured rate replaces those of speed, and an earlier run all of them.
 */
import {chipsOf} from './prices.ts';

/** `high` is null where nothing bounds it. */
export type Span = {estimate: number; low: number; high: number | null};

/** What `gleaner_worker.estimate` says of a run. */
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
  operations: number;
  reject_reasons: {reason: string; samples: number}[];
};

/** Peak bf16 operations a second of one chip, as the Cloud TPU documentation of each generation has it. */
const PEAK_OPS_PER_S: Record<string, number> = {
  v2: 45e12,
  v3: 123e12,
  v4: 275e12,
  v5litepod: 197e12,
  v5p: 459e12,
  v6e: 918e12,
};

/** Nothing of this was measured on a TPU. */
export const ASSUMED = {
  /** Of the peak, by a forward pass over batches of 2,048 tokens a chip. */
  utilisation: {estimate: 0.4, low: 0.15, high: 0.55},
  /** bf16 products for one in fp32. */
  fp32_products: 6,
  /** From one chip to its host; PCIe has about 15 GB/s. */
  chip_to_host_bytes_per_s: {estimate: 8e9, low: 3e9, high: 15e9},
  /** From one VM into Cloud Storage, several objects at once. */
  upload_bytes_per_s: {estimate: 1e9, low: 0.3e9, high: 1.7e9},
  /** Encoding by one core, of bytes before the codec; cores of a VM for each chip, of which so many encode. */
  encode_bytes_per_s: {safetensors: 4e9, 'safetensors.zst': 0.5e9, 'pkl.gz': 37e6},
  cores_per_chip: 12,
  /** What a codec leaves of the bytes: activations are hard to compress. */
  ratio: {
    safetensors: {bf16: 1, fp16: 1, fp32: 1, int8: 1},
    'safetensors.zst': {bf16: 0.78, fp16: 0.9, fp32: 0.92, int8: 0.92},
    'pkl.gz': {bf16: 0.8, fp16: 0.9, fp32: 0.93, int8: 1},
  },
  /** A node from READY to its first batch, once for each worker: environment, weights, compiling. */
  start_s: {estimate: 300, low: 120, high: 900},
  /** More TPU time for what preemptions cost. */
  preemption: {estimate: 1.05, low: 1, high: 1.2},
};

/** Of hours that were paid for: to start and to be preempted is in them. */
export const NOTHING_MORE = {
  start_s: {estimate: 0, low: 0, high: 0},
  preemption: {estimate: 1, low: 1, high: 1},
};

type Format = keyof typeof ASSUMED.ratio;
type Dtype = keyof (typeof ASSUMED.ratio)['safetensors'];

export type Machine = {accelerator: string; workers: number};
export type Numbers = {format: Format; dtype: Dtype; compute_dtype: 'bf16' | 'fp32'};

/** Tokens a second of one worker. `limit` is what keeps it from being more. */
export type Rate = Span & {limit: string};

/** Bytes of the shards as objects: what is in memory, times what the codec is assumed to leave. */
export function storedBytes({totals}: Sampled, {format, dtype}: Numbers): Span {
  const likely = ASSUMED.ratio[format][dtype];
  const {estimate, low, high} = totals.shard_bytes;
  // Without a codec a byte is a byte; with one, nothing is sure but that it does not grow by much.
  const [best, worst] = likely === 1 ? [1, 1] : [likely - 0.12, 1.01];
  return {estimate: estimate * likely, low: low * best, high: high === null ? null : high * worst};
}

/** The slowest of what every token passes through: computing, the way to the host, encoding, the way to the bucket. */
export function assumedRate(sampled: Sampled, numbers: Numbers, machine: Machine): Rate | undefined {
  const type = chipsOf(machine.accelerator);
  const peak = type && PEAK_OPS_PER_S[type.generation];
  const tokens = sampled.totals.tokens.estimate;
  if (!type || !peak || tokens === 0) return undefined;
  const {chips} = type;
  const per_token = sampled.operations / tokens;
  const raw = sampled.totals.shard_bytes.estimate / tokens;
  const stored = storedBytes(sampled, numbers).estimate / tokens;
  const products = numbers.compute_dtype === 'fp32' ? ASSUMED.fp32_products : 1;
  const encode = ASSUMED.encode_bytes_per_s[numbers.format] * ASSUMED.cores_per_chip * chips;
  const at = (which: 'estimate' | 'low' | 'high') => {
    const stages: [string, number][] = [
      ['computing', (chips * peak * ASSUMED.utilisation[which]) / products / per_token],
      ['the way from the chips to the host', (chips * ASSUMED.chip_to_host_bytes_per_s[which]) / raw],
      ['encoding', encode / raw],
      ['the upload', ASSUMED.upload_bytes_per_s[which] / stored],
    ];
    return stages.reduce((slowest, stage) => (stage[1] < slowest[1] ? stage : slowest));
  };
  const [limit, estimate] = at('estimate');
  return {estimate, low: at('low')[1], high: at('high')[1], limit};
}

export function measuredRate(tokens_per_s: number, limit: string): Rate {
  return {estimate: tokens_per_s, low: tokens_per_s, high: tokens_per_s, limit};
}

/** What a million tokens of an earlier run cost, and an hour of each of its TPUs. */
export type Earlier = {run: string; usd_per_million_tokens: number; usd_per_hour: number};

/** Tokens for each second that was paid for. */
export function rateLike({run, usd_per_million_tokens, usd_per_hour}: Earlier): Rate {
  const tokens_per_hour = (usd_per_hour / usd_per_million_tokens) * 1e6;
  return measuredRate(tokens_per_hour / 3600, `what run ${run} did for its money`);
}

/** Hours of all TPUs together, and on the clock with so many workers, of which none works where there is no stream for it. */
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
