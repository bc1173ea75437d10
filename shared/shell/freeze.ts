import {manifestObject, specObject} from '../core/names.ts';
import {Rejected} from '../errors.ts';
import {MAX_MANIFEST_BYTES, manifest, manifestText} from '../manifest.ts';
import {parseJson, parseValue} from '../schemas.ts';
import {
  completeSpec,
  frozenSpec,
  MAX_SPEC_BYTES,
  parseRunSpec,
  type RunPlacement,
  type RunSpecInput,
  specHash,
} from '../spec.ts';
import type {Deps} from './deps.ts';
import {unlessBroken} from './records.ts';

/** A spec exactly as its manifest has it, perhaps with fewer keys than this release knows, and its hash. */
export type Frozen = {spec: RunSpecInput; spec_hash: string};

/**
 * Creating the manifest is what freezes a spec: whoever is second takes the spec that is there, whatever run.json says.
 * `frozen_at`: when the manifest was written that was there before.
 */
export async function freezeSpec(
  deps: Deps,
  run: string,
): Promise<Frozen & {placement: RunPlacement; frozen_at: string | null}> {
  const frozen = await readManifest(deps, run);
  if (frozen) {
    const frozen_at = (await deps.objects.head(manifestObject(run)))?.created_at ?? null;
    return {...frozen, placement: await readPlacement(deps, run), frozen_at};
  }
  const {spec, placement} = completeSpec(await readSpec(deps, run), deps.config);
  if (placement.pool !== deps.config.pool.pool)
    throw new Rejected(
      `${specObject(run)}: there is no pool "${placement.pool}", only "${deps.config.pool.pool}"`,
    );
  const spec_hash = specHash(spec);
  const outcome = await deps.objects.create(
    manifestObject(run),
    Buffer.from(manifestText({run, spec, spec_hash})),
    {content_type: 'application/json'},
  );
  return {
    ...((outcome === 'exists' && (await readManifest(deps, run))) || {spec, spec_hash}),
    placement,
    frozen_at: null,
  };
}

async function readSpec(deps: Deps, run: string): Promise<RunSpecInput> {
  const text = await readText(deps, specObject(run));
  return text === undefined ? {} : parseRunSpec(text, specObject(run));
}

/** How a run whose spec is frozen is worked on; a run.json that went bad since is no reason to stop it. */
async function readPlacement(deps: Deps, run: string): Promise<RunPlacement> {
  const input = (await unlessBroken(deps, () => readSpec(deps, run))) ?? {};
  return {...completeSpec(input, deps.config).placement, pool: deps.config.pool.pool};
}

/**
 * The frozen spec in the bucket, if there is one, with or without a result. Throws `Rejected` for a manifest that is not this
 * run's, was changed by hand, or has keys that only a later release knows.
 */
export async function readManifest(deps: Deps, run: string): Promise<Frozen | undefined> {
  const name = manifestObject(run);
  const text = await readText(deps, name, MAX_MANIFEST_BYTES);
  if (text === undefined) return undefined;
  const frozen = parseJson(manifest, text, name);
  if (frozen.run !== run || frozen.spec_hash !== specHash(frozen.spec))
    throw new Rejected(
      `${name} is not the manifest of run "${run}": move it away and drop the streams again`,
    );
  return {spec: parseValue(frozenSpec, frozen.spec, `The spec in ${name}`), spec_hash: frozen.spec_hash};
}

/** Whether both say the same of what is extracted, in however many keys. */
export function isSameSpec(deps: Deps, one: RunSpecInput, other: RunSpecInput): boolean {
  return specHash(completeSpec(one, deps.config).spec) === specHash(completeSpec(other, deps.config).spec);
}

/** The text of a small object, or undefined when there is none. */
export async function readText(
  deps: Deps,
  name: string,
  max_bytes = MAX_SPEC_BYTES,
): Promise<string | undefined> {
  const bytes = await deps.objects.read(name, {max_bytes});
  return bytes && Buffer.from(bytes).toString('utf8');
}
