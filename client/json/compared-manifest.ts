/** The comparison of a run with the reference, as its manifest keeps it: `gleaner run verify --reference` writes it. */
import {z} from 'zod';
import {layerName, short, total} from '../../shared/domain/run/result.ts';

/** Drift of one `{site}.{layer}` from the reference. `worst`: the row that is farthest away; a mean of tokens has no position. `overlap`: of the sets of features; `reconstruction_error`: what they lose of the squares. */
const drift = z.object({
  relative_error: z.number(),
  cosine: z.number(),
  overlap: z.number().optional(),
  reconstruction_error: z.number().optional(),
  worst: z.object({stream: short, sample: total, position: total.nullable(), relative_error: z.number()}),
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
