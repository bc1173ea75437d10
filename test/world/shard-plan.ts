/** Streams of a few lines and the shards that they make: shards follow from the stream alone, as for a real worker. */

import {hash} from 'node:crypto';
import {crc32} from 'node:zlib';
import {proofOf} from '../../shared/domain/digest.ts';
import {shardObject, streamIndexOf} from '../../shared/domain/names.ts';
import {NO_UPLOADS} from '../../shared/domain/run/result.ts';
import {aStats} from './builders.ts';

const LINES_PER_SHARD = 2;
/** A line that an agent rejects. */
export const BAD_LINE = 'not JSON';
/** The most plans that are kept. */
const MOST_PLANNED = 1000;

export type Plan = {shard: number; first: number; last: number; lines: string[]; final: boolean};
/** The facts of a leased stream that its shards carry. */
export type Source = {run: string; stream: string; spec_hash: string; dataset: {crc32c: string}};

/** A stream of so many lines, each unlike any other. The line `bad` is rejected. */
export function someLines(count: number, prefix = 'line', bad?: number): string {
  const line = (_: unknown, index: number) => (index === bad ? BAD_LINE : `{"text":"${prefix} ${index}"}`);
  return Array.from({length: count}, line)
    .map(text => `${text}\n`)
    .join('');
}

const planned = new Map<string, Plan[]>();

export function planShards(text: string): Plan[] {
  // The invariants ask for the plans of the same few streams at every commit.
  if (planned.size > MOST_PLANNED) planned.clear();
  const known = planned.get(text) ?? plan(text);
  planned.set(text, known);
  return known;
}

function plan(text: string): Plan[] {
  const lines = text.replace(/\n$/, '').split('\n');
  const plans: Plan[] = [];
  for (let first = 0; first < lines.length; first += LINES_PER_SHARD) {
    const part = lines.slice(first, first + LINES_PER_SHARD);
    const last = first + part.length - 1;
    plans.push({shard: plans.length + 1, first, last, lines: part, final: last === lines.length - 1});
  }
  return plans;
}

export function good(plan: Plan): string[] {
  return plan.lines.filter(line => line !== BAD_LINE);
}

export function storedText(plan: Plan): string {
  return good(plan).join('\n');
}

/** The stored lines of the bytes of a shard. */
export function linesIn(bytes: Uint8Array | undefined): string | undefined {
  const file = bytes && Buffer.from(bytes);
  return file && file.length >= 8 ? file.toString('utf8', 8 + Number(file.readBigUInt64LE())) : undefined;
}

/** A safetensors file: the facts of the shard, and its lines as one tensor. */
export function shardBytes(plan: Plan, source: Source): Buffer {
  const lines = Buffer.from(storedText(plan));
  const tensor = {dtype: 'U8', shape: [lines.length], data_offsets: [0, lines.length]};
  const header = Buffer.from(JSON.stringify({__metadata__: identityOf(plan, source), lines: tensor}));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  return Buffer.concat([length, header, lines]);
}

/** `lease_key`: of the work order of the lease; undefined for a shard without a proof. */
export function shardMetadata(
  plan: Plan,
  source: Source,
  epoch: number,
  lease_key?: string,
): Record<string, string> {
  const sha256 = hash('sha256', shardBytes(plan, source));
  const object = shardObject(source.run, source.stream, plan.shard, 'safetensors');
  const proof = lease_key === undefined ? {} : {proof: proofOf(lease_key, {object, sha256})};
  return {...identityOf(plan, source), run: source.run, sha256, epoch: String(epoch), ...proof};
}

function identityOf(plan: Plan, source: Source): Record<string, string> {
  const samples = good(plan);
  return {
    schema: 'gleaner/1',
    stream: source.stream,
    shard: String(plan.shard),
    first_sample: String(plan.first),
    last_sample: String(plan.last),
    samples: String(samples.length),
    rejected: String(plan.lines.length - samples.length),
    tokens: String(samples.join('').length),
    spec_hash: source.spec_hash,
    stream_crc32c: source.dataset.crc32c,
    tokens_sha256: String(crc32(samples.join('\n'))),
    format: 'safetensors',
    final: String(plan.final),
  };
}

/** The metadata.json of a stream of this text. Every token has one row. */
export function metadataOf({run, stream, spec_hash}: Omit<Source, 'dataset'>, text: string) {
  const plans = planShards(text);
  const samples = plans.flatMap(good);
  const tokens = samples.join('').length;
  const sha256 = 'b'.repeat(64);
  return {
    schema: 'gleaner/1',
    run,
    worker_id: streamIndexOf(stream),
    spec_hash,
    total_samples: samples.length,
    total_rejected: plans.flatMap(({lines}) => lines).length - samples.length,
    total_truncated: 0,
    total_tokens: tokens,
    total_rows: tokens,
    total_shards: plans.length,
    stats: {'resid_post.0': aStats({mean: samples.length, norm: 2, max_abs: tokens})},
    model: {
      name: 'tiny',
      revision: null,
      fingerprint: 'f'.repeat(16),
      weights_sha256: sha256,
      tokenizer_sha256: sha256,
      files: {'config.json': sha256, 'model.safetensors': 'crc32c:yZRlqg==:988097824'},
      unknown_keys: [],
    },
    versions: {jax: '0.10.2'},
    code: null,
    upload: NO_UPLOADS,
    shards: plans.map(({shard}) => ({shard_id: shard})),
  };
}
