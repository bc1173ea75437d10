/** `run.json`: what a person may ask for, the spec that follows from it, and the hash that shards carry. */
import {createHash} from 'node:crypto';
import {z} from 'zod';
import type {Assignment} from '../domain/fleet/pool.ts';
import type {Config} from './config.ts';
import {rejectRepeatedKey} from './repeated-key.ts';
import {parseJson} from './schemas.ts';

export const SITES = ['resid_pre', 'resid_mid', 'resid_post', 'attn_out', 'mlp_out'] as const;
export const MAX_SPEC_BYTES = 64 * 1024;
const MAX_POSITIONS = 1024;
const MAX_LENGTH = 131_072;

/** Half a character, which JSON can hold, is nothing that a document can hold. */
const text = (max: number) =>
  z
    .string()
    .min(1)
    .max(max)
    .refine(value => value.isWellFormed(), 'is not valid Unicode');
/** A name is shown on terminals: it holds no control character. */
const name = (max: number) => text(max).regex(/^\P{Cc}*$/u, 'expected a name without control characters');
const whole = (min: number, max: number) => z.number().int().min(min).max(max);
/** That each is there once is for `contradictions` to check; JSON Schema has a word for it. */
const list = <T extends z.ZodType>(item: T, min: number, max: number) =>
  z.array(item).min(min).max(max).meta({uniqueItems: true});
const about = (description: string, fallback?: unknown) => ({
  description,
  ...(fallback === undefined ? {} : {default: fallback}),
});

const LAYERS = 'expected "all", a range such as "0-23", or a list of numbers';
const layers = z.union([z.string().regex(/^(all|\d{1,4}-\d{1,4})$/, LAYERS), list(whole(0, 9999), 1, 1000)], {
  error: LAYERS,
});

const TOKENS = 'expected "all", "last", "mean", a slice such as "0:16" or "-8:", or a list of positions';
const SLICE = /^(-?\d{1,6})?:(-?\d{1,6})?(?::([1-9]\d{0,5}))?$/;
const tokens = z.union(
  [
    z.string().regex(new RegExp(`^(all|last|mean|${SLICE.source.slice(1, -1)})$`), TOKENS),
    list(whole(-MAX_LENGTH, MAX_LENGTH - 1), 1, MAX_POSITIONS),
  ],
  {error: TOKENS},
);

/** An object with these keys and no others, none of them required. */
const closed = <T extends z.ZodRawShape>(shape: T) =>
  z
    .strictObject(shape, {
      error: issue =>
        issue.code === 'unrecognized_keys'
          ? `there is no ${(issue.keys as string[]).join(', no ')}; the keys are ${Object.keys(shape).join(', ')}`
          : undefined,
    })
    .partial();

/** What the worker parses; here only the outermost name is looked at. */
const ENCODERS = [
  'MinimalGridEncoder',
  'GridWithSeparationEncoder',
  'GridCodeBlockEncoder',
  'GridShapeEncoder',
  'RowNumberEncoder',
  'RepeatNumberEncoder',
  'ReplaceNumberEncoder',
];
const encoder = text(1000).regex(
  new RegExp(`^\\s*(${ENCODERS.join('|')})\\(.*\\)\\s*$`),
  `expected an encoder of grids such as RowNumberEncoder(MinimalGridEncoder()), made of ${ENCODERS.join(', ')}`,
);
const PROMPT_VERSIONS = [
  'output-from-examples-v0',
  'output-from-examples-v1',
  'input-from-inputs-v0',
  'output-from-outputs-v0',
] as const;

const record = closed({
  field: name(256).nullable().meta(about('the field that holds the text or the token ids', null)),
  template: text(16_384)
    .nullable()
    .meta(about("a Jinja template over the record's fields that makes the text", null)),
  encoder: encoder.nullable().meta(about('how the grids of an ARC task become text', null)),
  prompt_version: z
    .enum(PROMPT_VERSIONS)
    .meta(about('the words around the grids of a task', PROMPT_VERSIONS[0])),
  predictions_per_task: whole(1, 1024).meta(
    about('samples made of each record: a task is turned, mirrored and recoloured anew for each', 1),
  ),
  add_generation_prompt: z
    .boolean()
    .meta(about("end {messages} with the template's opening of an answer", false)),
});

/** What JSON Schema can say of `contradictions`: if these keys are so, then those. */
const given = (properties: object) => ({properties, required: Object.keys(properties)});
const rule = (found: object, then: object | false) => ({if: given(found), then});
const STRING = {type: 'string'};
const RECORD_RULES = [
  rule({template: STRING, field: STRING}, false),
  rule({template: STRING, encoder: STRING}, false),
  rule({template: STRING, predictions_per_task: {minimum: 2}}, false),
];
const RULES = [
  rule({stream_offset: {minimum: 1}}, given({affinity: {const: 'fixed'}})),
  rule({format: {const: 'pkl.gz'}}, {properties: {dtype: {enum: ['fp16', 'fp32']}, sites: {maxItems: 1}}}),
];

/** Every key of `run.json`. What has to do with several keys, or with several entries of one, is in `contradictions`. */
const fields = {
  model: name(1024).meta(
    about('a folder in the Hugging Face layout (gs://BUCKET/PATH, or a path on the worker), or a hub id'),
  ),
  revision: name(256)
    .nullable()
    .meta(about('branch, tag or commit of a hub model; the commit is pinned for the run', null)),
  layers: layers.meta(about('the blocks to store', 'all')),
  sites: list(z.enum(SITES), 1, SITES.length).meta(about('the places in a block to store', ['resid_post'])),
  tokens: tokens.meta(about('the tokens of a sample whose activations are stored', 'all')),
  exclude_special: z.boolean().meta(about('leave special tokens out before `tokens` chooses', false)),
  dtype: z
    .enum(['bf16', 'fp16', 'fp32', 'int8'])
    .meta(about('of the stored values; int8 has one scale for each row. Default bf16, for pkl.gz fp32')),
  compute_dtype: z
    .enum(['bf16', 'fp32'])
    .meta(about('of weights and computation. Default fp32 where dtype is fp32, else bf16')),
  format: z
    .enum(['safetensors', 'safetensors.zst', 'pkl.gz'])
    .meta(about('of the shard files', 'safetensors')),
  shard_size_gb: z.number().positive().max(64).meta(about('bytes of a shard before compression, in 10^9', 1)),
  max_seq_length: whole(1, MAX_LENGTH).meta(about('tokens of a sample, at most', 2048)),
  over_long: z.enum(['reject', 'truncate']).meta(about('what becomes of a longer sample', 'reject')),
  record: record.meta({...about('how a line becomes a sample'), allOf: RECORD_RULES}),
  keep: list(name(256), 0, 32).meta(about("fields of the record to copy into the shard's index", [])),
  seed: whole(0, 2 ** 31 - 1).meta(about('of every random choice', 42)),
  pool: z
    .string()
    .regex(/^[a-z][a-z0-9-]{0,30}$/, 'a pool: lower-case letters, digits and dashes')
    .meta(about('the TPUs to use', 'tpu')),
  priority: whole(-1000, 1000).meta(about('between runs that share the TPUs; higher goes first', 0)),
  affinity: z
    .enum(['any', 'fixed'])
    .meta(
      about(
        'fixed: stream N is for the TPU with number N - stream_offset alone, counted over the zones',
        'any',
      ),
    ),
  stream_offset: whole(0, 999_999_999).meta(about('the stream of the first TPU, where affinity is fixed', 0)),
  budget_usd: z
    .number()
    .positive()
    .max(10_000_000)
    .nullable()
    .meta(about('dollars that the TPUs may cost; then the run pauses. null is no limit', null)),
};

/** A spec as some release froze it: its own rules were kept then, and no later rule undoes a run. */
export const frozenSpec = closed(fields);

/** `datasets/RUN/run.json`, as a person writes it: a closed schema, every key optional. */
export const runSpecInput = frozenSpec
  .superRefine((spec, context) => {
    for (const [path, message] of contradictions(spec)) context.addIssue({code: 'custom', path, message});
  })
  .meta({
    title: 'run.json',
    description:
      'What a run of Gleaner extracts. Every key has a default. That ranges and slices are not empty and positions lie within max_seq_length is checked when the run starts.',
    allOf: RULES,
  });

export type RunSpecInput = z.infer<typeof runSpecInput>;

type Issue = [path: (string | number)[], message: string];

function* contradictions(spec: z.infer<typeof frozenSpec>): Generator<Issue> {
  const {format, dtype, sites = [], layers, tokens, keep = [], record = {}, max_seq_length = 2048} = spec;
  const {affinity, stream_offset} = spec;
  if (format === 'pkl.gz' && (dtype === 'bf16' || dtype === 'int8'))
    yield [['dtype'], 'expected fp32 or fp16, which pkl.gz can hold'];
  if (format === 'pkl.gz' && sites.length > 1)
    yield [['sites'], 'expected one site, as pkl.gz holds no more: ask for safetensors'];
  if (typeof layers === 'string') {
    const [first = 0, last = 0] = layers.split('-').map(Number);
    if (first > last) yield [['layers'], `expected a range from low to high, "${last}-${first}"`];
  }
  for (const [key, values] of Object.entries({sites, layers, tokens, keep}))
    if (Array.isArray(values)) yield* repetitions(key, values);
  if (Array.isArray(tokens)) yield* beyond(tokens, max_seq_length);
  if (typeof tokens === 'string' && isEmptySlice(tokens, max_seq_length))
    yield [
      ['tokens'],
      `expected a slice that holds tokens of a sample of at most ${max_seq_length} (max_seq_length)`,
    ];
  if ((stream_offset ?? 0) > 0 && affinity !== 'fixed')
    yield [['stream_offset'], 'expected affinity "fixed" beside it: any TPU may have any stream otherwise'];
  if (record.field && record.template)
    yield [['record'], 'expected field or template, not both: a template names its fields itself'];
  if (record.template && (record.encoder || (record.predictions_per_task ?? 1) > 1))
    yield [
      ['record'],
      'expected a template, or encoder and predictions_per_task: those are of ARC tasks alone',
    ];
}

function* repetitions(key: string, values: readonly (string | number)[]): Generator<Issue> {
  const again = values.findIndex((value, index) => values.indexOf(value) < index);
  if (again >= 0) yield [[key, again], 'expected one that was not named before'];
}

function* beyond(positions: readonly number[], max_seq_length: number): Generator<Issue> {
  const index = positions.findIndex(position => position >= max_seq_length || position < -max_seq_length);
  if (index >= 0)
    yield [
      ['tokens', index],
      `expected a position from -${max_seq_length} to ${max_seq_length - 1}, as samples have at most ${max_seq_length} tokens (max_seq_length)`,
    ];
}

/** Whether a slice as Python writes it is empty for every sample of up to `length` tokens. */
function isEmptySlice(tokens: string, length: number): boolean {
  const match = SLICE.exec(tokens);
  if (!match) return false;
  const start = Number(match[1] ?? 0);
  if (start >= length) return true;
  if (match[2] === undefined) return false;
  const stop = Number(match[2]);
  return stop === 0 || stop <= -length || (start < 0 === stop < 0 && start >= stop);
}

/** Parses the text of `run.json`; throws `Rejected` naming the key. */
export function parseRunSpec(text: string, what: string): RunSpecInput {
  const spec = parseJson(runSpecInput, text, what);
  rejectRepeatedKey(text, what);
  return spec;
}

/** How a run is worked on: it may change what a run costs, never what its shards hold. */
export type RunPlacement = {pool: string; priority: number; budget_usd: number | null} & Assignment;

/** What a run extracts, complete: `run.json` over the defaults. Frozen when the first stream of the run is accepted. */
export type RunSpec = Required<Omit<RunSpecInput, keyof RunPlacement | 'record'>> & {
  record: Required<NonNullable<RunSpecInput['record']>>;
};

export function completeSpec(
  input: RunSpecInput,
  {default_model}: Pick<Config, 'default_model'>,
): {spec: RunSpec; placement: RunPlacement} {
  const {pool = 'tpu', priority = 0, budget_usd = null, ...others} = input;
  const {affinity = 'any', stream_offset = 0, ...given} = others;
  const {format = 'safetensors', record = {}} = given;
  const dtype = given.dtype ?? (format === 'pkl.gz' ? 'fp32' : 'bf16');
  const spec: RunSpec = {
    model: given.model ?? default_model,
    revision: given.revision ?? null,
    layers: given.layers ?? 'all',
    sites: SITES.filter(site => (given.sites ?? ['resid_post']).includes(site)),
    tokens: given.tokens ?? 'all',
    exclude_special: given.exclude_special ?? false,
    dtype,
    compute_dtype: given.compute_dtype ?? (dtype === 'fp32' ? 'fp32' : 'bf16'),
    format,
    shard_size_gb: given.shard_size_gb ?? 1,
    max_seq_length: given.max_seq_length ?? 2048,
    over_long: given.over_long ?? 'reject',
    record: {
      field: record.field ?? null,
      template: record.template ?? null,
      encoder: record.encoder ?? null,
      prompt_version: record.prompt_version ?? 'output-from-examples-v0',
      predictions_per_task: record.predictions_per_task ?? 1,
      add_generation_prompt: record.add_generation_prompt ?? false,
    },
    keep: given.keep ?? [],
    seed: given.seed ?? 42,
  };
  return {spec, placement: {pool, priority, budget_usd, affinity, stream_offset}};
}

/**
 * SHA-256 of the spec as JSON with sorted keys: equal specs have equal hashes, however they were written. A frozen spec is
 * hashed as its manifest has it: an earlier release knew fewer keys, and its shards carry the hash of those.
 */
export function specHash(spec: object): string {
  return createHash('sha256').update(canonicalJson(spec)).digest('hex');
}

function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) =>
    inner !== null && typeof inner === 'object' && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  );
}

/** `docs/run.schema.json`: what an editor needs to know of `run.json`. */
export function runSpecJsonSchema(): object {
  return z.toJSONSchema(runSpecInput, {io: 'input'});
}
