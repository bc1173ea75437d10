/** The manifest of a run, `activations/[RUN/]manifest.json`, and the stream metadata that complete it. */
import {z} from 'zod';
import {isRunId} from '../domain/names.ts';
import type {RunResult} from '../domain/run/result.ts';

const count = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const sha256 = z.string().regex(/^[0-9a-f]{64}$/);
const short = z.string().max(1024);

/** Limit of a manifest. With its result it names every layer, every file of the model and every unread stream. */
export const MAX_MANIFEST_BYTES = 8 * 1024 * 1024;

/**
 * The frozen spec of a run. Users of the spec check its keys; the hash proves that we wrote them.
 * `placement` has the other values of run.json at the time of freezing. Manifests of the first release lack it.
 */
export const manifest = z.object({
  schema: z.literal('gleaner/1'),
  run: z.string().refine(isRunId),
  spec: z.record(z.string(), z.unknown()),
  spec_hash: sha256,
  placement: z
    .object({
      pool: short,
      priority: z.number().int(),
      budget_usd: z.number().nullable(),
      affinity: z.enum(['any', 'fixed']),
      stream_offset: count,
      allow_cross_region: z.boolean().default(false),
      expire_days: count.nullable().default(null),
    })
    .optional(),
});

/** Statistics of activations are finite: JSON has no infinity, and a stream without finite statistics fails. */
const stats = z.object({
  mean: z.number(),
  norm: z.number().min(0),
  max_abs: z.number().min(0),
  non_finite: count,
  mean_square: z.number().min(0).optional(),
  int8_error: z.number().min(0).optional(),
});

const model = z.object({
  name: short,
  revision: short.nullable(),
  fingerprint: short,
  weights_sha256: sha256,
  tokenizer_sha256: sha256,
  files: z.record(short, sha256),
});
const statsByName = z.record(z.string().regex(/^[a-z_]{1,20}\.\d{1,4}$/), stats);

/** The part of `activations/[RUN/]tpu_N/metadata.json` that a manifest needs. */
export const streamMetadata = z.object({
  schema: z.literal('gleaner/1'),
  run: z.string(),
  worker_id: count,
  spec_hash: sha256,
  total_samples: count,
  total_rejected: count,
  total_tokens: count,
  total_shards: count,
  total_truncated: count,
  total_rows: count,
  stats: statsByName,
  model,
  versions: z.record(short, short),
  code: short.nullable(),
});

/** The result in the manifest of a completed run. */
export const completedManifest = z.object({
  schema: z.literal('gleaner/1'),
  result: z.object({
    streams: count,
    samples: count,
    rejected: count,
    truncated: count,
    tokens: count,
    rows: count,
    shards: count,
    bytes: count,
    stats: statsByName,
    model: model.nullable(),
    versions: z.record(short, z.array(short)),
    code: z.array(short),
    unread: z.record(short, short),
    /** Manifests of the first release lack it. */
    unread_streams: count.default(0),
  }) satisfies z.ZodType<RunResult>,
});

/** Text of the manifest, with `result` once the run is completed. */
export function manifestText(
  frozen: {run: string; spec: object; spec_hash: string; placement?: object},
  result?: RunResult,
): string {
  const {run, spec, spec_hash, placement} = frozen;
  return `${JSON.stringify({schema: 'gleaner/1', run, spec, spec_hash, placement, result}, null, 2)}\n`;
}
