/** The manifest of a run, `activations/[RUN/]manifest.json`, and the stream metadata that complete it. */
import {z} from 'zod';
import {withEntry} from '../../domain/digest.ts';
import {isRunId} from '../../domain/names.ts';
import {storedShape} from '../../domain/records/field-schema.ts';
import {runSettings} from '../../domain/records/spec-keys.ts';
import {type RunResult, sha256, streamSummary, total} from '../../domain/run/result.ts';
import {specHash} from './spec.ts';

export {MAX_MANIFEST_BYTES} from '../../domain/run/result.ts';

/**
 * The frozen spec of a run. Users of the spec check its keys; the hash proves that we wrote them.
 * `placement` has the other values of run.json at the time of the freeze.
 */
export const manifest = z.object({
  schema: z.literal('gleaner/1'),
  run: z.string().refine(isRunId),
  spec: z.record(z.string(), z.unknown()),
  spec_hash: sha256,
  placement: z.object(storedShape(runSettings)),
});

/** The part of `activations/[RUN/]tpu_N/metadata.json` that a manifest needs. */
export const streamMetadata = streamSummary.extend({
  schema: z.literal('gleaner/1'),
  run: z.string(),
  worker_id: total,
  spec_hash: sha256,
});

/**
 * `result`: includes the digest of its streams. The digest in the text covers `model_sha256`, which is that of model.json, and all other
 * values of the manifest.
 */
export function manifestText(
  frozen: {run: string; spec: object; spec_hash: string; placement: object},
  result?: RunResult,
  model_sha256?: string,
): string {
  const {run, spec, spec_hash, placement} = frozen;
  const manifest = {schema: 'gleaner/1', run, spec, spec_hash, placement, result};
  if (result) {
    const model = model_sha256 ? withEntry(result.digest, model_sha256, 'model.json') : result.digest;
    const values = specHash({...manifest, result: {...result, digest: undefined}});
    manifest.result = {...result, digest: withEntry(model, values, 'manifest.json')};
  }
  return `${JSON.stringify(manifest, null, 2)}\n`;
}
