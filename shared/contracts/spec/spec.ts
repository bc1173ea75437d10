/** `run.json`: its parser, the complete spec that follows from it, and the hash that shards carry. */
import {createHash} from 'node:crypto';
import type {z} from 'zod';
import {defaultsOf, type Fields, pick} from '../../domain/records/field.ts';
import type {Placement, Run} from '../../domain/records/run.ts';
import {entryKeys, recordKeys, runChanges, runSettings, specKeys} from '../../domain/records/spec-keys.ts';
import {rejectRepeatedKey} from '../messages/repeated-key.ts';
import {parseJson} from '../messages/schemas.ts';
import type {Config} from '../settings/config.ts';
import {NOT_REDUCED, readSite, SITES, withOwnNames} from './site-names.ts';
import {contradictions} from './spec-contradictions.ts';
import {closed, fields} from './spec-forms.ts';

export const MAX_SPEC_BYTES = 64 * 1024;

/** A frozen spec of any release. The release that froze it checked its rules, so no later rule invalidates a run. */
export const frozenSpec = closed(fields);

/** `datasets/RUN/run.json` as people write it: a closed schema with optional keys. */
export const runSpecInput = frozenSpec.superRefine((spec, context) => {
  for (const [path, message] of contradictions(spec)) context.addIssue({code: 'custom', path, message});
});

export type RunSpecInput = z.infer<typeof runSpecInput>;

/** Parses the text of `run.json`. Throws `Rejected`, which names each wrong key. */
export function parseRunSpec(text: string, what: string): RunSpecInput {
  const spec = parseJson(runSpecInput, text, what);
  rejectRepeatedKey(text, what);
  return spec;
}

type Reduction = keyof typeof entryKeys;

/** The complete spec of an extraction: `run.json` over the defaults. Frozen when the first stream is accepted. */
export type RunSpec = Complete<Omit<RunSpecInput, keyof Placement | 'record' | Reduction>> &
  Pick<RunSpecInput, Reduction> & {record: Complete<NonNullable<RunSpecInput['record']>>};

type Complete<T> = {[Key in keyof T]-?: Exclude<T[Key], undefined>};

/** The deployment's values of keys that a run leaves out. */
type Defaults = Pick<Config, 'default_model'> & {pool: Pick<Config['pool'], 'pool'>};

export function completeSpec(
  input: RunSpecInput,
  {default_model, pool: {pool}}: Defaults,
): {spec: RunSpec; placement: Placement} {
  const given = withOwnNames(input);
  const reductions = completeReductions(given);
  const chosen = {
    model: given.model ?? default_model,
    sites: ordered(given.sites ?? (Object.values(reductions).some(Boolean) ? [] : specKeys.sites.default)),
    dtype: given.dtype ?? (given.format === 'pkl.gz' ? 'fp32' : 'bf16'),
    mask: given.mask ?? (given.generate && given.format !== 'pkl.gz' ? 'generated' : null),
    max_seq_length:
      given.max_seq_length ?? Math.max(specKeys.max_seq_length.default, given.context_size ?? 0),
    record: {...defaultsOf(recordKeys), ...given.record},
  };
  const values = {...defaultsOf(specKeys), ...pick(specKeys, given), ...chosen, ...reductions};
  const spec = {...pick(specKeys, values), record: chosen.record} as RunSpec;
  const placement = {...defaultsOf(runSettings), pool, ...pick(runSettings, given)} as Placement;
  return {spec, placement};
}

const ordered = (names: readonly string[]) =>
  SITES.filter(site => names.some(name => readSite(name)?.site === site));

/** The reductions with complete entries. A frozen spec leaves out those without an entry: its hash is that of earlier releases. */
export function completeReductions({features = [], project = [], moments, sites = []}: RunSpecInput) {
  const ofEach = (all: Fields, entries: readonly {site?: string | null | undefined}[]) => {
    const completed = entries.map(each => ({...defaultsOf(all), ...each, ...readSite(each.site ?? '')}));
    return completed.length > 0 ? completed : undefined;
  };
  const dense = ordered(moments?.sites ?? sites).filter(site => !NOT_REDUCED.includes(site));
  const of_moments = {sites: dense.length > 0 ? dense : specKeys.sites.default};
  return {
    features: ofEach(entryKeys.features, features),
    project: ofEach(entryKeys.project, project),
    moments: moments ? {...defaultsOf(entryKeys.moments), ...moments, ...of_moments} : undefined,
  };
}

/**
 * SHA-256 of the spec, or of another object, as JSON with sorted keys, so the order of keys does not change the hash.
 * A frozen spec is hashed as it is in its manifest: a later release may add keys, but the shards carry the hash without them.
 */
export const specHash = (spec: object) => createHash('sha256').update(canonicalJson(spec)).digest('hex');

/** JSON with sorted keys. */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) =>
    inner !== null && typeof inner === 'object' && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  );
}

/** True if the frozen spec equals what a `run.json` asks for, once both have defaults for their missing keys. */
export function isSameSpec(frozen: RunSpecInput, input: RunSpecInput, defaults: Defaults): boolean {
  const hashOf = (each: RunSpecInput) => specHash(completeSpec(each, defaults).spec);
  return hashOf(input) === hashOf(frozen);
}

/** Why a `run.json` that came after the freeze has no effect; undefined if all its keys agree with the run. */
export function laterSpecProblem(run: Run, input: RunSpecInput, defaults: Defaults): string | undefined {
  const {placement} = completeSpec(input, defaults);
  if (run.spec && !isSameSpec(run.spec, input, defaults))
    return `the spec of run "${run.run}" was frozen when its first stream was accepted`;
  const changed = (Object.keys(placement) as (keyof Placement)[]).filter(key => placement[key] !== run[key]);
  if (changed.length === 0) return undefined;
  return `run "${run.run}" keeps its ${changed.join(', ')}; the message "configure" changes ${Object.keys(runChanges).join(', ')}`;
}
