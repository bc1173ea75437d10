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
import {whyModelRefused} from '../../domain/billing/ceilings.ts';
import {manifestObject, specObject} from '../../domain/names.ts';
import type {Run} from '../../domain/run/run.ts';
import type {Objects} from '../../ports.ts';
import {readPool, readPools} from '../caches/pool-cache.ts';
import type {Deps} from '../deps.ts';
import {skipIfInvalid} from '../documents/documents.ts';

/** A spec with exactly the keys of its manifest, maybe fewer than this release knows, and its hash. */
export type Frozen = {spec: RunSpecInput; spec_hash: string; placement?: RunPlacement};

/**
 * Freezes the spec of a run by creating its manifest. If a manifest exists, its spec counts, whatever run.json contains. `frozen_at`:
 * creation time of a manifest that existed before.
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
    // Another deployment may have written the manifest, or the documents of pools were lost.
    const pool = (await readPool(deps, placement.pool))?.pool ?? deps.config.pool.pool;
    return {...frozen, placement: {...placement, pool}, frozen_at};
  }
  const {spec, placement} = completeSpec(await readSpec(deps, run), deps.config);
  if (!(await readPool(deps, placement.pool))) throw new Rejected(await noPool(deps, run, placement.pool));
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

async function noPool(deps: Deps, run: string, name: string): Promise<string> {
  const {pools, unreadable} = await readPools(deps);
  if (unreadable.has(name)) return `${specObject(run)}: the document of pool "${name}" is invalid: mend it`;
  const names = pools.map(({pool}) => pool).join(', ');
  return `${specObject(run)}: there is no pool "${name}"; the pools are ${names}. Create one with the message {"action":"pool","pool":"${name}",…}, or name another`;
}

/** Rejects a model that the ceilings forbid: the workers' account may read more than the author of the spec. */
function requireAllowedModel({config}: Deps, {model}: RunSpecInput, object: string): void {
  const why = whyModelRefused(model ?? config.default_model, config.ceilings);
  if (why) throw new Rejected(`${object}: ${why}`);
}

async function readSpec(deps: Deps, run: string): Promise<RunSpecInput> {
  const text = await readText(deps.objects, specObject(run));
  return text === undefined ? {} : parseRunSpec(text, specObject(run));
}

/** Placement of a run whose manifest lacks it. A run.json that became invalid since does not stop the run. */
async function readPlacement(deps: Deps, run: string): Promise<RunPlacement> {
  const input = (await skipIfInvalid(deps.log, () => readSpec(deps, run))) ?? {};
  return completeSpec(input, deps.config).placement;
}

/**
 * Reads the frozen spec in the bucket, with or without a result. Returns undefined without a manifest. Throws `Rejected` if the manifest
 * belongs to another run, was edited, or has keys of a later release.
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

/** True if both specs describe the same extraction, with whatever number of keys. */
function isSameSpec(config: Config, one: RunSpecInput, other: RunSpecInput): boolean {
  return specHash(completeSpec(one, config).spec) === specHash(completeSpec(other, config).spec);
}

/** Why a `run.json` from after the freeze changes nothing; undefined if it agrees with the run. */
export function whyIgnored(config: Config, run: Run, input: RunSpecInput): string | undefined {
  if (run.spec && !isSameSpec(config, run.spec, input))
    return `the spec of run "${run.run}" was frozen when its first stream was accepted`;
  const {placement} = completeSpec(input, config);
  const others = (Object.keys(placement) as (keyof RunPlacement)[]).filter(
    key => placement[key] !== run[key],
  );
  if (others.length === 0) return undefined;
  return `run "${run.run}" keeps its ${others.join(', ')}; the message "configure" changes priority, budget_usd and allow_mixed_code`;
}

/** Reads the text of a small object; undefined if the object does not exist. */
export async function readText(
  objects: Objects,
  name: string,
  max_bytes = MAX_SPEC_BYTES,
): Promise<string | undefined> {
  const bytes = await objects.read(name, {max_bytes});
  return bytes && Buffer.from(bytes).toString('utf8');
}
