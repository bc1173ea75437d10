/** The manifest of a run, `activations/[RUN/]manifest.json`, and the stream metadata that complete it. */
import {z} from 'zod';
import {isRunId} from '../domain/names.ts';
import {
  layerName,
  type RunResult,
  runResult,
  sha256,
  short,
  streamSummary,
  total,
} from '../domain/run/result.ts';

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
      stream_offset: total,
      allow_cross_region: z.boolean().default(false),
      expire_days: total.nullable().default(null),
    })
    .optional(),
});

/** The part of `activations/[RUN/]tpu_N/metadata.json` that a manifest needs. */
export const streamMetadata = streamSummary.extend({
  schema: z.literal('gleaner/1'),
  run: z.string(),
  worker_id: total,
  spec_hash: sha256,
});

/** The result in the manifest of a completed run. */
export const completedManifest = z.object({schema: z.literal('gleaner/1'), result: runResult});

/** Drift of one `{site}.{layer}` from the reference. `worst`: the row that is farthest away; a mean of tokens has no position. */
const drift = z.object({
  relative_error: z.number(),
  cosine: z.number(),
  worst: z.object({
    stream: short,
    sample: total,
    position: total.nullable(),
    relative_error: z.number(),
  }),
});

/** Samples that `gleaner run verify --reference` computed again with transformers in fp32. */
export const comparison = z.object({
  samples: total,
  rows: total,
  versions: z.record(short, short),
  drift: z.record(layerName, drift),
});
export type Comparison = z.infer<typeof comparison>;

/** The comparison in a manifest, whose next result drops it. */
export const comparedManifest = z.object({
  schema: z.literal('gleaner/1'),
  reference: comparison.extend({at: short}),
});
export type StoredComparison = z.infer<typeof comparedManifest>['reference'];

/** Text of the manifest, with `result` once the run is completed. */
export function manifestText(
  frozen: {run: string; spec: object; spec_hash: string; placement?: object},
  result?: RunResult,
): string {
  const {run, spec, spec_hash, placement} = frozen;
  return `${JSON.stringify({schema: 'gleaner/1', run, spec, spec_hash, placement, result}, null, 2)}\n`;
}
