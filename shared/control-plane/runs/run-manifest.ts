import type {Config} from '../../contracts/config.ts';
import {Rejected} from '../../contracts/errors.ts';
import {MAX_MANIFEST_BYTES, manifest, manifestText} from '../../contracts/manifest.ts';
import {parseJson, parseValue} from '../../contracts/schemas.ts';
import {
  completeSpec,
  frozenSpec,
  MAX_SPEC_BYTES,
  parseRunSpec,
  type RunPlacement,
  type RunSpecInput,
  specHash,
} from '../../contracts/spec.ts';
import {whyModelRefused} from '../../domain/ceilings.ts';
import {manifestObject, specObject} from '../../domain/names.ts';
import type {Run} from '../../domain/run/run.ts';
import type {Objects} from '../../ports.ts';
import type {Deps} from '../state/deps.ts';
import {skipIfInvalid} from '../state/documents.ts';

/** A spec exactly as its manifest has it, perhaps with fewer keys than this release knows, and its hash. */
export type Frozen = {spec: RunSpecInput; spec_hash: string; placement?: RunPlacement};

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
    requireAllowedModel(deps, frozen.spec, manifestObject(run));
    const frozen_at = (await deps.objects.head(manifestObject(run)))?.created_at ?? null;
    const placement = frozen.placement ?? (await readPlacement(deps, run));
    return {...frozen, placement: {...placement, pool: deps.config.pool.pool}, frozen_at};
  }
  const {spec, placement} = completeSpec(await readSpec(deps, run), deps.config);
  if (placement.pool !== deps.config.pool.pool)
    throw new Rejected(
      `${specObject(run)}: there is no pool "${placement.pool}", only "${deps.config.pool.pool}"`,
    );
  requireAllowedModel(deps, spec, specObject(run));
  const spec_hash = specHash(spec);
  const outcome = await deps.objects.create(
    manifestObject(run),
    Buffer.from(manifestText({run, spec, spec_hash, placement})),
    {content_type: 'application/json'},
  );
  const first = outcome === 'exists' ? await readManifest(deps, run) : undefined;
  return {spec, spec_hash, placement, ...first, frozen_at: null};
}

/** Workers read models with an account that may read more than the author of a spec. */
function requireAllowedModel({config}: Deps, {model}: RunSpecInput, object: string): void {
  const why = whyModelRefused(model ?? config.default_model, config.ceilings);
  if (why) throw new Rejected(`${object}: ${why}`);
}

async function readSpec(deps: Deps, run: string): Promise<RunSpecInput> {
  const text = await readText(deps.objects, specObject(run));
  return text === undefined ? {} : parseRunSpec(text, specObject(run));
}

/** How a run is worked on whose manifest does not say it; a run.json that went bad since is no reason to stop it. */
async function readPlacement(deps: Deps, run: string): Promise<RunPlacement> {
  const input = (await skipIfInvalid(deps.log, () => readSpec(deps, run))) ?? {};
  return completeSpec(input, deps.config).placement;
}

/**
 * The frozen spec in the bucket, if there is one, with or without a result. Throws `Rejected` for a manifest that is not this
 * run's, was changed by hand, or has keys that only a later release knows.
 */
export async function readManifest(deps: Deps, run: string): Promise<Frozen | undefined> {
  const name = manifestObject(run);
  const text = await readText(deps.objects, name, MAX_MANIFEST_BYTES);
  if (text === undefined) return undefined;
  const frozen = parseJson(manifest, text, name);
  if (frozen.run !== run || frozen.spec_hash !== specHash(frozen.spec))
    throw new Rejected(
      `${name} is not the manifest of run "${run}": move it away and drop the streams again`,
    );
  const {spec_hash, placement} = frozen;
  const spec = parseValue(frozenSpec, frozen.spec, `The spec in ${name}`);
  return {spec, spec_hash, ...(placement ? {placement} : {})};
}

/** Whether both say the same of what is extracted, in however many keys. */
function isSameSpec(config: Config, one: RunSpecInput, other: RunSpecInput): boolean {
  return specHash(completeSpec(one, config).spec) === specHash(completeSpec(other, config).spec);
}

/** Why a `run.json` that came after the spec was frozen changes nothing; undefined if it says what the run is anyway. */
export function whyIgnored(config: Config, run: Run, input: RunSpecInput): string | undefined {
  if (run.spec && !isSameSpec(config, run.spec, input))
    return `the spec of run "${run.run}" was frozen when its first stream was accepted`;
  const said = completeSpec(input, config).placement;
  const others = (Object.keys(said) as (keyof RunPlacement)[]).filter(key => said[key] !== run[key]);
  if (others.length === 0) return undefined;
  return `run "${run.run}" keeps its ${others.join(', ')}; the message "configure" changes priority and budget_usd`;
}

/** The text of a small object, or undefined when there is none. */
export async function readText(
  objects: Objects,
  name: string,
  max_bytes = MAX_SPEC_BYTES,
): Promise<string | undefined> {
  const bytes = await objects.read(name, {max_bytes});
  return bytes && Buffer.from(bytes).toString('utf8');
}
