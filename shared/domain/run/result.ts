/** The `result` in the manifest of a completed run, folded from its streams. */
import {z} from 'zod';
import {withEntry} from '../digest.ts';
import {amount, count, emptyOf} from '../fields.ts';
import {streamIndexOf} from '../names.ts';
import type {StreamFacts} from './summarize.ts';

/** Most bytes of a manifest. It names every layer, every file of the model and, in its result, every unread stream. */
export const MAX_MANIFEST_BYTES = 8 * 1024 * 1024;

export const total = count.max(Number.MAX_SAFE_INTEGER);
export const short = z.string().max(1024);
export const sha256 = z.string().regex(/^[0-9a-f]{64}$/);

/** L2 norms of rows at the quantiles 0.01, 0.25, 0.5, 0.75 and 0.99. */
const quantiles = z.tuple([amount, amount, amount, amount, amount]);
const MOST_RANGES = 41;
/** Over 30 years. */
const MOST_SECONDS = 1e9;

/**
 * Statistics of one `{site}.{layer}`. Only int8 has the mean square before rounding and the relative L2 error. Only features have `l0`, the mean
 * number of active ones, `cut`, the share of them that is not stored, and `cut_rows`, the share of rows without some. All numbers are finite:
 * JSON has no infinity, and a stream without finite statistics fails.
 */
const stats = z.object({
  mean: z.number(),
  norm: amount,
  max_abs: amount,
  zeros: amount.max(1),
  norm_quantiles: quantiles,
  max_abs_by_position: z.array(amount).max(MOST_RANGES),
  non_finite: total,
  mean_square: amount.optional(),
  int8_error: amount.optional(),
  ...{l0: amount.optional(), cut: amount.max(1).optional(), cut_rows: amount.max(1).optional()},
});
export type Stats = z.infer<typeof stats>;
/** `{site}.{layer}`, or a reduction in place of the site. */
export const layerName = z.string().regex(/^[a-z_]{1,24}\.\d{1,4}$/);
const statsByName = z.record(layerName, stats);

/** For weights in a bucket, from its listing. */
const checksumAndSize = z.string().regex(/^crc32c:[A-Za-z0-9+/]{6}==:\d{1,15}$/);
const model = z.object({
  name: short,
  revision: short.nullable(),
  fingerprint: short,
  weights_sha256: sha256,
  tokenizer_sha256: sha256,
  files: z.record(short, sha256.or(checksumAndSize)),
  /** Keys of config.json that neither the worker nor transformers knows, at most a hundred. */
  unknown_keys: z.array(short).max(100),
});

/**
 * Uploads of shards: `bytes` in `seconds` with at least one upload. During `bound_seconds` of them every upload slot was busy, so uploads
 * were the bottleneck.
 */
const uploads = z.object({
  bytes: total,
  seconds: amount.max(MOST_SECONDS),
  bound_seconds: amount.max(MOST_SECONDS),
});
export type Uploads = z.infer<typeof uploads>;
export const NO_UPLOADS: Uploads = {bytes: 0, seconds: 0, bound_seconds: 0};

/** A stream's metadata.json, without its list of shards. `upload`: from the attempt that wrote it. */
export const streamSummary = z.object({
  total_samples: total,
  total_rejected: total,
  total_tokens: total,
  total_shards: total,
  total_truncated: total,
  total_rows: total,
  stats: statsByName,
  model,
  versions: z.record(short, short),
  code: short.nullable(),
  upload: uploads,
});
export type StreamSummary = z.infer<typeof streamSummary>;

/**
 * `streams`, `samples`, `rejected`, `tokens`, `shards`, `bytes` and `digest` come from the shards, the rest from every metadata.json.
 * `unread_streams` counts the streams without a usable metadata.json; `unread` has the reasons of the first thousand.
 */
export const runResult = z.object({
  streams: total,
  samples: total,
  rejected: total,
  truncated: total,
  tokens: total,
  rows: total,
  shards: total,
  bytes: total,
  /** Digest of the digests of all streams, by name. Null without a stream. */
  digest: sha256.nullable(),
  stats: statsByName,
  model: model.nullable(),
  versions: z.record(short, z.array(short)),
  code: z.array(short),
  unread: z.record(short, short),
  unread_streams: total,
  /** Sums over the streams. */
  upload: uploads,
});
export type RunResult = z.infer<typeof runResult>;

/** More reasons would make the manifest of a large run too large to read. */
const MOST_UNREAD = 1000;

const NOTHING = {mean: 0, norm: 0, max_abs: 0, non_finite: 0, squares: 0, error: 0, zeros: 0};
/** Sums over rows, so any number of streams needs the memory of one. */
type Sums = typeof NOTHING & {quantiles: number[]; by_position: number[]; of_features?: number[]};

/** State of a fold that another process may continue. JSON represents it exactly. */
export type FoldState = {result: RunResult; sums: [string, Sums][]; isInt8: boolean};

const nothing = () => ({...emptyOf(runResult.shape), upload: NO_UPLOADS});

export class ResultFold {
  readonly #result: RunResult;
  readonly #sums: Map<string, Sums>;
  #isInt8: boolean;

  constructor(state: FoldState = {result: nothing(), sums: [], isInt8: false}) {
    this.#result = state.result;
    this.#sums = new Map(state.sums);
    this.#isInt8 = state.isInt8;
  }

  state(): FoldState {
    return {result: this.#result, sums: [...this.#sums], isInt8: this.#isInt8};
  }

  /** Adds a completed stream, with its summary or the reason for its absence. `sha256`: of metadata.json. Equal streams in equal order give equal results. */
  add(stream: StreamFacts, summary: (StreamSummary | {unread: string}) & {sha256: string}): void {
    const {total_samples_processed, rejected_samples, total_tokens, total_shards, total_bytes} = stream;
    const result = this.#result;
    const digest = withEntry(stream.digest, summary.sha256, 'metadata.json');
    result.digest = withEntry(result.digest, digest, `tpu_${streamIndexOf(stream.stream)}`);
    result.streams += 1;
    result.samples += total_samples_processed;
    result.rejected += rejected_samples;
    result.tokens += total_tokens;
    result.shards += total_shards;
    result.bytes += total_bytes;
    const unread = 'unread' in summary ? summary.unread : this.#misfit(stream, summary);
    if (unread !== undefined) this.#addUnread(stream.stream, unread);
    else if (!('unread' in summary)) this.#addSummary(summary);
  }

  #addUnread(stream: string, why: string): void {
    const {unread, unread_streams} = this.#result;
    if (unread_streams < MOST_UNREAD) unread[stream] = why;
    this.#result.unread_streams += 1;
  }

  #misfit(stream: StreamFacts, summary: StreamSummary): string | undefined {
    const says = [summary.total_samples, summary.total_rejected, summary.total_tokens, summary.total_shards];
    const {total_samples_processed, rejected_samples, total_tokens, total_shards} = stream;
    const holds = [total_samples_processed, rejected_samples, total_tokens, total_shards];
    if (says.some((value, index) => value !== holds[index]))
      return `it says samples, rejected, tokens and shards ${says.join(', ')}; the shards themselves say ${holds.join(', ')}`;
    const {model} = this.#result;
    if (!model) return undefined;
    if (model.fingerprint !== summary.model.fingerprint)
      return `it was made with model ${summary.model.fingerprint}, the streams before it with ${model.fingerprint}`;
    const names = Object.keys(summary.stats);
    if (names.length !== this.#sums.size || names.some(name => !this.#sums.has(name)))
      return 'it has statistics of other layers or sites than the streams before it';
    return undefined;
  }

  #addSummary({total_truncated, total_rows, stats, model, versions, code, upload}: StreamSummary): void {
    const result = this.#result;
    result.truncated += total_truncated;
    result.rows += total_rows;
    result.model ??= model;
    for (const [name, of] of Object.entries(stats)) this.#addStats(name, of, total_rows);
    for (const [name, version] of Object.entries(versions))
      result.versions[name] = withOne(result.versions[name] ?? [], version);
    if (code !== null) result.code = withOne(result.code, code);
    result.upload = sumOf(result.upload, upload);
  }

  /** Weighs means by rows, and the int8 error, a ratio of energies, by rows and mean square. Workers combine shards in the same way. */
  #addStats(name: string, of: Stats, rows: number): void {
    const sums: Sums = {...NOTHING, quantiles: [0, 0, 0, 0, 0], by_position: [], ...this.#sums.get(name)};
    sums.mean += rows * of.mean;
    sums.norm += rows * of.norm;
    sums.max_abs = Math.max(sums.max_abs, of.max_abs);
    sums.non_finite += of.non_finite;
    if (of.int8_error !== undefined && of.mean_square !== undefined) {
      this.#isInt8 = true;
      const energy = rows * of.mean_square;
      sums.squares += energy;
      sums.error += energy * of.int8_error ** 2;
    }
    const {l0, cut = 0, cut_rows = 0} = of;
    const {of_features: before = [0, 0, 0]} = sums;
    if (l0 !== undefined)
      sums.of_features = [l0, l0 * cut, cut_rows].map((each, at) => (before[at] ?? 0) + rows * each);
    sums.zeros += rows * of.zeros;
    sums.quantiles = of.norm_quantiles.map((norm, index) => (sums.quantiles[index] ?? 0) + rows * norm);
    sums.by_position = largestOfBoth(sums.by_position, of.max_abs_by_position);
    this.#sums.set(name, sums);
  }

  result(): RunResult {
    const rows = Math.max(this.#result.rows, 1);
    const stats = Object.fromEntries(
      [...this.#sums].map(([name, sums]) => [name, statsOf(sums, rows, this.#isInt8)]),
    );
    return {...this.#result, stats};
  }
}

function largestOfBoth(one: readonly number[], other: readonly number[]): number[] {
  return Array.from({length: Math.max(one.length, other.length)}, (_, index) =>
    Math.max(one[index] ?? 0, other[index] ?? 0),
  );
}

function statsOf(sums: Sums, rows: number, isInt8: boolean): Stats {
  const {mean, norm, max_abs, zeros, by_position, non_finite, squares, error, of_features} = sums;
  const [active = 0, cut = 0, cut_rows = 0] = of_features ?? [];
  const shares = {cut: rounded(cut / (active || 1)), cut_rows: rounded(cut_rows / rows)};
  const int8 = {
    mean_square: rounded(squares / rows),
    int8_error: rounded(squares > 0 ? Math.sqrt(error / squares) : 0),
  };
  return {
    mean: rounded(mean / rows),
    norm: rounded(norm / rows),
    max_abs: rounded(max_abs),
    ...(isInt8 ? int8 : {}),
    zeros: rounded(zeros / rows),
    norm_quantiles: quantiles.parse(sums.quantiles.map(each => rounded(each / rows))),
    max_abs_by_position: by_position,
    non_finite,
    ...(of_features && {l0: rounded(active / rows), ...shares}),
  };
}

function sumOf(one: Uploads, other: Uploads): Uploads {
  const [bytes, seconds, bound_seconds] = (['bytes', 'seconds', 'bound_seconds'] as const).map(key =>
    Math.min(one[key] + other[key], key === 'bytes' ? Number.MAX_SAFE_INTEGER : MOST_SECONDS),
  ) as [number, number, number];
  return {bytes, seconds, bound_seconds};
}

/** Rounds to the seven digits that a sum of fp32 values has. */
const rounded = (value: number) => Number(value.toPrecision(7));

/** The distinct values in order, at most 20, because people read the versions. */
function withOne(values: readonly string[], value: string): string[] {
  return [...new Set([...values, value])].sort().slice(0, 20);
}
