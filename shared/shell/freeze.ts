import {manifestObject, specObject} from '../core/names.ts';
import {Rejected} from '../errors.ts';
import {manifest, parseJson, type RunSpecInput} from '../schemas.ts';
import {
  completeSpec,
  MAX_SPEC_BYTES,
  parseRunSpec,
  type RunPlacement,
  type RunSpec,
  specHash,
} from '../spec.ts';
import type {Deps} from './deps.ts';
import {unlessBroken} from './records.ts';

export type FrozenSpec = {spec: RunSpec; spec_hash: string; placement: RunPlacement};

/** Creating the manifest is what freezes a spec: whoever is second takes the spec that is there, whatever run.json says. */
export async function freezeSpec(deps: Deps, run: string): Promise<FrozenSpec> {
  const frozen = await readManifest(deps, run);
  if (frozen) return {...frozen, placement: await readPlacement(deps, run)};
  const {spec, placement} = completeSpec(await readSpec(deps, run), deps.config);
  if (placement.pool !== deps.config.pool.pool)
    throw new Rejected(
      `${specObject(run)}: there is no pool "${placement.pool}", only "${deps.config.pool.pool}"`,
    );
  const spec_hash = specHash(spec);
  const text = `${JSON.stringify({schema: 'gleaner/1', run, spec, spec_hash}, null, 2)}\n`;
  const outcome = await deps.objects.create(manifestObject(run), Buffer.from(text), {
    content_type: 'application/json',
  });
  return {...((outcome === 'exists' && (await readManifest(deps, run))) || {spec, spec_hash}), placement};
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

async function readManifest(deps: Deps, run: string) {
  const name = manifestObject(run);
  const text = await readText(deps, name);
  if (text === undefined) return undefined;
  const frozen = parseJson(manifest, text, name);
  const kept = completeSpec(frozen.spec, deps.config);
  if (frozen.run !== run || frozen.spec_hash !== specHash(kept.spec))
    throw new Rejected(
      `${name} is not the manifest of run "${run}": move it away and drop the streams again`,
    );
  return {spec: kept.spec, spec_hash: frozen.spec_hash};
}

/** The text of a small object, or undefined when there is none. */
export async function readText(deps: Deps, name: string): Promise<string | undefined> {
  const bytes = await deps.objects.read(name, {max_bytes: MAX_SPEC_BYTES});
  return bytes && Buffer.from(bytes).toString('utf8');
}
