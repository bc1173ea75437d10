import {Contradicted, Rejected} from '../../contracts/errors.ts';
import {parseJson, parseValue} from '../../contracts/messages/schemas.ts';
import {printable} from '../../contracts/printable.ts';
import {MAX_MANIFEST_BYTES, manifest, manifestText} from '../../contracts/spec/manifest.ts';
import {
  completeSpec,
  frozenSpec,
  isSameSpec,
  MAX_SPEC_BYTES,
  parseRunSpec,
  type RunSpecInput,
  specHash,
} from '../../contracts/spec/spec.ts';
import {sourcesProblem} from '../../domain/billing/ceilings.ts';
import {runAcceleratorProblem} from '../../domain/fleet/accelerators.ts';
import {manifestObject, specObject} from '../../domain/names.ts';
import type {Placement} from '../../domain/records/run.ts';
import type {Contradiction} from '../../domain/timeline.ts';
import type {Objects} from '../../ports/ports.ts';
import {missingPoolText, readPool} from '../caches/pool-cache.ts';
import type {Deps} from '../deps.ts';
import {skipIfInvalid} from '../documents/documents.ts';
import {bucketModelProblem} from './check-model.ts';

/** A spec with exactly the keys of its manifest, perhaps fewer than this release has, and its hash. */
export type Frozen = {spec: RunSpecInput; spec_hash: string; placement: Placement};

/** `found`, `made`: hashes of the spec in the manifest, and of the spec to freeze. */
function contradictionOf(object: string, found: string, made: string): Contradiction {
  return {object, found: printable(found.toWellFormed()), made};
}

/**
 * Freezes the spec of a run by creating its manifest. If a manifest exists, its spec is used, whatever run.json contains. `frozen_at`:
 * creation time of a manifest that existed already. `contradiction`: its spec differs from that of run.json.
 */
export async function freezeSpec(
  deps: Deps,
  run: string,
): Promise<Frozen & {frozen_at: string | null; contradiction: Contradiction | null}> {
  const {config, log, objects} = deps;
  const name = manifestObject(run);
  const frozen = await readManifest(deps, run);
  const readInput = async () => (await readRunSpec(objects, run)) ?? {};
  // A run.json that became invalid later does not stop the run.
  const input = frozen ? await skipIfInvalid(log, readInput) : await readInput();
  const completed = completeSpec(input ?? {}, config);
  const {spec, placement} = frozen ?? completed;
  // The workers' account may read more than the author of the spec.
  const problem = sourcesProblem({model: config.default_model, ...spec}, config.ceilings);
  if (problem) throw new Rejected(`${frozen ? name : specObject(run)}: ${problem}`);
  const pool = await readPool(deps, placement.pool);
  if (frozen) {
    const frozen_at = (await objects.head(name))?.created_at ?? null;
    // Another deployment may have written the manifest, or the documents of pools were lost.
    const asked = specHash(completed.spec);
    const isSame = input === undefined || isSameSpec(frozen.spec, input, config);
    const contradiction = isSame ? null : contradictionOf(name, `spec ${frozen.spec_hash}`, `spec ${asked}`);
    return {
      ...frozen,
      ...{placement: {...placement, pool: pool?.pool ?? config.pool.pool}, frozen_at, contradiction},
    };
  }
  if (!pool) throw new Rejected(`${specObject(run)}: ${await missingPoolText(deps, placement.pool)}`);
  const unusable =
    runAcceleratorProblem(pool.accelerator) ?? (await bucketModelProblem(objects, completed.spec));
  if (unusable) throw new Rejected(`${specObject(run)}: ${unusable}`);
  const spec_hash = specHash(spec);
  const bytes = Buffer.from(manifestText({run, spec, spec_hash, placement}));
  const outcome = await objects.create(name, bytes, {content_type: 'application/json'});
  const first = outcome === 'exists' ? await readManifest(deps, run) : undefined;
  const isOther = first !== undefined && first.spec_hash !== spec_hash;
  const contradiction = isOther
    ? contradictionOf(name, `spec ${first.spec_hash}`, `spec ${spec_hash}`)
    : null;
  return {spec, spec_hash, placement, ...first, frozen_at: null, contradiction};
}

/**
 * Reads the frozen spec in the bucket, with or without a result. Returns undefined if there is no manifest. Throws `Rejected` if the manifest
 * belongs to another run, was edited, or has keys of a later release.
 */
export async function readManifest({objects}: Deps, run: string): Promise<Frozen | undefined> {
  const name = manifestObject(run);
  const text = await readText(objects, name, MAX_MANIFEST_BYTES);
  if (text === undefined) return undefined;
  const frozen = parseJson(manifest, text, name);
  const hash = specHash(frozen.spec);
  if (frozen.run !== run || frozen.spec_hash !== hash)
    throw new Contradicted(
      `${name} is not the manifest of run "${run}": move it away and drop the streams again`,
      contradictionOf(name, `spec ${frozen.spec_hash} of run ${frozen.run}`, `spec ${hash} of run ${run}`),
    );
  const {spec_hash, placement} = frozen;
  const spec = parseValue(frozenSpec, frozen.spec, `The spec in ${name}`);
  return {spec, spec_hash, placement};
}

/** Reads the `run.json` of a run; undefined if there is none. Throws `Rejected` if it is invalid. */
export async function readRunSpec(objects: Objects, run: string): Promise<RunSpecInput | undefined> {
  const name = specObject(run);
  const text = await readText(objects, name, MAX_SPEC_BYTES);
  return text === undefined ? undefined : parseRunSpec(text, name);
}

export async function readText(
  objects: Objects,
  name: string,
  max_bytes: number,
): Promise<string | undefined> {
  const bytes = await objects.read(name, {max_bytes});
  return bytes && Buffer.from(bytes).toString('utf8');
}
