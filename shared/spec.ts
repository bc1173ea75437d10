import {createHash} from 'node:crypto';
import type {Config} from './config.ts';
import {parseJson, type RunSpecInput, runSpecInput} from './schemas.ts';

/** What a run extracts, complete: `run.json` over the defaults. Frozen when the first stream of the run is accepted. */
export type RunSpec = {
  model: string;
  revision: string | null;
  layers: 'all' | string | number[];
  sites: 'resid_post'[];
  tokens: 'all';
  dtype: 'bf16' | 'fp32';
  format: 'safetensors' | 'pkl.gz';
  shard_size_gb: number;
  max_seq_length: number;
  over_long: 'reject' | 'truncate';
  record: {field: string | null};
  seed: number;
};

/** How a run is worked on: it may change what a run costs, never what its shards hold. */
export type RunPlacement = {pool: string; priority: number; budget_usd: number | null};

export const MAX_SPEC_BYTES = 64 * 1024;

/** Parses the text of `run.json`; throws `Rejected` naming the key. */
export function parseRunSpec(text: string, what: string): RunSpecInput {
  return parseJson(runSpecInput, text, what);
}

export function completeSpec(input: RunSpecInput, config: Config): {spec: RunSpec; placement: RunPlacement} {
  const {pool = 'tpu', priority = 0, budget_usd = null, ...given} = input;
  const format = given.format ?? 'safetensors';
  const spec: RunSpec = {
    model: given.model ?? config.default_model,
    revision: given.revision ?? null,
    layers: given.layers ?? 'all',
    sites: given.sites ?? ['resid_post'],
    tokens: given.tokens ?? 'all',
    dtype: given.dtype ?? (format === 'pkl.gz' ? 'fp32' : 'bf16'),
    format,
    shard_size_gb: given.shard_size_gb ?? 1,
    max_seq_length: given.max_seq_length ?? 2048,
    over_long: given.over_long ?? 'reject',
    record: given.record ?? {field: null},
    seed: given.seed ?? 42,
  };
  return {spec, placement: {pool, priority, budget_usd}};
}

/** SHA-256 of the spec as JSON with sorted keys: equal specs have equal hashes, however they were written. */
export function specHash(spec: RunSpec): string {
  return createHash('sha256').update(canonicalJson(spec)).digest('hex');
}

function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) =>
    inner !== null && typeof inner === 'object' && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  );
}
