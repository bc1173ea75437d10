/** The schema of every key of `run.json`, and the forms of values that code checks. */
import {z} from 'zod';
import {POOL} from '../../domain/deployment.ts';
import {inputShape, nameText, type OwnForms, wellFormed} from '../../domain/records/field-schema.ts';
import {entryKeys, ROW_TOKENS, recordKeys, runSettings, specKeys} from '../../domain/records/spec-keys.ts';
import {nearNames} from '../near-names.ts';
import {MASK, MASK_FORMS, TOKENS, TOKENS_FORMS} from './selections.ts';
import {OTHER_NAME, OTHER_NAMES, readSite, SITES} from './site-names.ts';

const MAX_POSITIONS = 1024;
/** Names with the number of a block: some sites of some layers. */
const MOST_SITES = 256;
/** Most entries of `features` and `project` together. */
export const MOST_REDUCTIONS = 8;
const MAX_LENGTH = specKeys.max_seq_length.most;

const whole = (min: number, max: number) => z.number().int().min(min).max(max);
/** List of distinct items. `contradictions` checks that they are distinct; JSON Schema has the keyword `uniqueItems`. */
const list = <T extends z.ZodType>(item: T, min: number, max: number) =>
  z.array(item).min(min).max(max).meta({uniqueItems: true});

const LAYERS = 'expected "all", a range such as "0-23", or a list of numbers';
const layers = z.union([z.string().regex(/^(all|\d{1,4}-\d{1,4})$/, LAYERS), list(whole(0, 9999), 1, 1000)], {
  error: LAYERS,
});

const noSite = {
  error: ({input}: {input?: unknown}) => {
    const near = nearNames(String(input).slice(0, 100), [...SITES, ...Object.keys(OTHER_NAMES)]);
    return near.length > 0
      ? `expected a site, did you mean ${near.join(' or ')}?`
      : `expected a site: ${SITES.join(', ')}, or a name of another library`;
  },
};
const site = z.union([z.enum(SITES), z.string().regex(OTHER_NAME, noSite)], noSite);

const NO_TOKENS = `expected ${TOKENS_FORMS}`;
const NO_MASK = `expected ${MASK_FORMS}`;
const mask = wellFormed(1100).regex(MASK, NO_MASK);
const tokens = z.union(
  [wellFormed(1100).regex(TOKENS, NO_TOKENS), list(whole(-MAX_LENGTH, MAX_LENGTH - 1), 1, MAX_POSITIONS)],
  {error: NO_TOKENS},
);

const generate = z.strictObject({
  max_new_tokens: whole(1, MAX_LENGTH - 1),
  temperature: z.literal(0, {
    error: 'expected 0: only greedy decoding gives the same tokens in every attempt',
  }),
});

/** For each unknown key, the keys that may be meant; lists every key if one has no similar name. */
function noKeysText(unknown: readonly string[], known: readonly string[]): string {
  const texts = unknown.map(key => {
    const near = nearNames(key, known).map(name => `\`${name}\``);
    return {key, near: near.length > 0 ? `, did you mean ${near.join(' or ')}?` : ''};
  });
  const list = texts.map(({key, near}) => `there is no ${key}${near}`).join('; ');
  return texts.every(({near}) => near !== '') ? list : `${list}; the keys are ${known.join(', ')}`;
}

/** Object with only these keys, each optional. */
export const closed = <T extends z.ZodRawShape>(shape: T) =>
  z
    .strictObject(shape, {
      error: issue =>
        issue.code === 'unrecognized_keys'
          ? noKeysText(issue.keys as string[], Object.keys(shape))
          : undefined,
    })
    .partial();

/** Encoders that the worker parses. Here only the outermost name is checked. */
const ENCODERS = [
  'MinimalGridEncoder',
  'GridWithSeparationEncoder',
  'GridCodeBlockEncoder',
  'GridShapeEncoder',
  'RowNumberEncoder',
  'RepeatNumberEncoder',
  'ReplaceNumberEncoder',
];
const encoder = wellFormed(1000).regex(
  new RegExp(`^\\s*(${ENCODERS.join('|')})\\(.*\\)\\s*$`),
  `expected an encoder of grids such as RowNumberEncoder(MinimalGridEncoder()), made of ${ENCODERS.join(', ')}`,
);
/** Variables that the worker sets itself. */
const OWN_VARIABLES = ['messages', 'tools', 'add_generation_prompt', 'continue_final_message'];
const VARIABLE = `expected names of variables, other than ${OWN_VARIABLES.join(', ')}`;
const variable = z
  .string()
  .regex(new RegExp(`^(?!(${OWN_VARIABLES.join('|')})$)[A-Za-z_][A-Za-z0-9_]{0,63}$`), VARIABLE);
const exact = z
  .number()
  .refine(
    value => !Number.isInteger(value) || Number.isSafeInteger(value),
    'expected a number with fewer digits',
  );
const word = z
  .string()
  .max(16_384)
  .refine(value => value.isWellFormed(), 'is not valid Unicode');
const scalars = [word, exact, z.boolean(), z.null()] as const;
const VARIABLES = 'expected texts, numbers, true, false, null, or lists of them';
const variables = z
  .record(
    variable,
    z.union([...scalars, z.array(z.union(scalars, {error: VARIABLES})).max(64)], {error: VARIABLES}),
    {error: issue => (issue.code === 'invalid_key' ? VARIABLE : undefined)},
  )
  .refine(value => Object.keys(value).length <= 32, 'expected at most 32 variables');

const PATH = 'expected a path below `weights`, with {layer} once at most, such as resid_post/layer_{layer}';
const IS_PATH = /^(?!\/)(?!.*\/\/)(?!(?:.*\/)?\.\.?(?:\/|$))[^{}\\\p{Cc}]*(?:\{layer\}[^{}\\\p{Cc}]*)?$/u;
const siteOfEntry = z.string().refine(name => readSite(name) !== undefined, noSite);
const OF_ENTRIES = {
  ...{layers, site: siteOfEntry, sites: list(siteOfEntry, 1, MOST_SITES)},
  output: z.string().regex(/^[a-z][a-z_]{0,23}$/, 'expected at most 24 lower-case letters and underscores'),
  path: z.string().max(1024).regex(IS_PATH, PATH),
} satisfies OwnForms;

/** Objects with these keys, of which name and weights are required. */
const entries = <T extends Record<'name' | 'weights', z.ZodType<string>>>(shape: T) =>
  z.array(closed(shape).extend({name: shape.name, weights: shape.weights})).max(MOST_REDUCTIONS);

/** Smallest size of a shard, 100 kB, because each shard is an object and an event. */
export const LEAST_SHARD_GB = 0.0001;

const OWN = {
  ...{...OF_ENTRIES, tokens, mask, encoder, variables, sites: list(site, 0, MOST_SITES)},
  features: entries(inputShape(entryKeys.features, OF_ENTRIES)),
  project: entries(inputShape(entryKeys.project, OF_ENTRIES)),
  moments: closed(inputShape(entryKeys.moments, OF_ENTRIES)),
  new_tokens: generate,
  size: z.number().min(LEAST_SHARD_GB).max(64),
  when: z.literal(['auto', true, false]),
  power: z.literal(ROW_TOKENS),
  names: list(nameText(256), 0, 32),
  pool: z.string().regex(POOL, 'a pool: lower-case letters, digits and dashes'),
} satisfies Required<OwnForms>;

const {keep, seed, ...others} = inputShape(specKeys, OWN);

/** Every key of `run.json`. Rules across keys or entries are in `contradictions`. */
export const fields = {
  ...others,
  record: closed(inputShape(recordKeys, OWN)).meta({description: 'how a line becomes a sample'}),
  ...{keep, seed, ...inputShape(runSettings, OWN)},
};

/** Values of `run.json` or of a frozen spec, each key optional. */
export type SpecValues = z.infer<ReturnType<typeof closed<typeof fields>>>;
