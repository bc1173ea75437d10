/** Every key of `run.json`, with the form of its values and its words in the JSON Schema. */
import {z} from 'zod';
import {POOL} from '../../domain/deployment.ts';
import {nearNames} from '../near-names.ts';
import {MASK, MASK_FORMS, TOKENS, TOKENS_FORMS} from './selections.ts';
import {OTHER_NAME, OTHER_NAMES, SITES} from './site-names.ts';

const MAX_POSITIONS = 1024;
/** Names with the number of a block: some sites of some layers. */
const MOST_SITES = 256;
const MAX_LENGTH = 131_072;
/** Powers of two: the shapes of rows that the kernels take. */
const ROW_TOKENS = [256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072] as const;

/** Text without lone surrogates: JSON may have them, and documents cannot. */
const text = (max: number) =>
  z
    .string()
    .min(1)
    .max(max)
    .refine(value => value.isWellFormed(), 'is not valid Unicode');
/** Name without control characters: terminals show names. */
const name = (max: number) => text(max).regex(/^\P{Cc}*$/u, 'expected a name without control characters');
const whole = (min: number, max: number) => z.number().int().min(min).max(max);
/** List of distinct items. `contradictions` checks that; JSON Schema has the keyword `uniqueItems`. */
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
const mask = text(1100).regex(MASK, NO_MASK);
const tokens = z.union(
  [text(1100).regex(TOKENS, NO_TOKENS), list(whole(-MAX_LENGTH, MAX_LENGTH - 1), 1, MAX_POSITIONS)],
  {error: NO_TOKENS},
);

const generate = z.strictObject({
  max_new_tokens: whole(1, MAX_LENGTH - 1),
  temperature: z.literal(0, {
    error: 'expected 0: only greedy decoding gives the same tokens in every attempt',
  }),
});

/** Names the unknown keys with the keys that they may mean, and every key where one has no near name. */
function noKeysText(unknown: readonly string[], known: readonly string[]): string {
  const texts = unknown.map(key => {
    const near = nearNames(key, known).map(name => `\`${name}\``);
    return {key, near: near.length > 0 ? `, did you mean ${near.join(' or ')}?` : ''};
  });
  const list = texts.map(({key, near}) => `there is no ${key}${near}`).join('; ');
  return texts.every(({near}) => near !== '') ? list : `${list}; the keys are ${known.join(', ')}`;
}

/** Object with these keys alone, each optional. */
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
    {
      error: issue => (issue.code === 'invalid_key' ? VARIABLE : undefined),
    },
  )
  .refine(value => Object.keys(value).length <= 32, 'expected at most 32 variables');

export const recordFields = {
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
  continue_final_message: z
    .boolean()
    .meta(
      about(
        'leave the last message of {messages} open, so that the text ends where the model continues it; `continue_final_message` of a record takes precedence',
        false,
      ),
    ),
  template_kwargs: variables.meta(
    about(
      'variables of the chat template, such as {"enable_thinking": false}; `chat_template_kwargs` of a record goes before them',
      {},
    ),
  ),
};
const record = closed(recordFields);

/** Least size of a shard, 100 kB: each shard is an object and an event. */
export const LEAST_SHARD_GB = 0.0001;

/** The keys of `run.json` that the spec of an extraction has. Rules across keys or entries are in `contradictions`. */
export const specFields = {
  model: name(1024).meta(
    about('a folder in the Hugging Face layout (gs://BUCKET/PATH, or a path on the worker), or a hub id'),
  ),
  revision: name(256)
    .nullable()
    .meta(about('branch, tag or commit of a hub model; the commit is pinned for the run', null)),
  layers: layers.meta(about('the blocks to store', 'all')),
  sites: list(site, 1, MOST_SITES).meta(
    about('the places in a block to store, by our names or by those of other libraries', ['resid_post']),
  ),
  tokens: tokens.meta(about('the tokens of a sample whose activations are stored', 'all')),
  generate: generate
    .nullable()
    .meta(
      about(
        'tokens that the model appends to each prompt: max_new_tokens at most, the likeliest ones (temperature 0)',
        null,
      ),
    ),
  mask: mask
    .nullable()
    .meta(
      about('the tokens to mark in `token_mask` of the shards, beside the rows; null stores no mask', null),
    ),
  top_k: whole(1, 1024).meta(about('next tokens of a row of top_tokens and top_logprobs', 20)),
  exclude_special: z.boolean().meta(about('leave special tokens out before `tokens` chooses', false)),
  dtype: z
    .enum(['bf16', 'fp16', 'fp32', 'int8'])
    .meta(about('of the stored values; int8 has one scale for each row. Default bf16, for pkl.gz fp32')),
  compute_dtype: z
    .enum(['bf16', 'fp32'])
    .meta(about('of weights and computation; fp32 takes about 7 times the TPU time of bf16', 'bf16')),
  format: z
    .enum(['safetensors', 'safetensors.zst', 'pkl.gz'])
    .meta(about('of the shard files', 'safetensors')),
  shard_size_gb: z
    .number()
    .min(LEAST_SHARD_GB)
    .max(64)
    .meta(about('bytes of a shard before compression, in 10^9', 1)),
  max_seq_length: whole(1, MAX_LENGTH).meta(about('tokens of a sample, at most', 2048)),
  over_long: z
    .enum(['reject', 'truncate', 'chunk', 'pack'])
    .meta(
      about(
        'what becomes of a longer sample; chunk cuts it into samples, pack joins all records and cuts them into windows',
        'reject',
      ),
    ),
  context_size: whole(2, MAX_LENGTH)
    .nullable()
    .meta(about('tokens of a chunk or of a packed window, at most; null is max_seq_length', null)),
  overlap: whole(0, MAX_LENGTH - 2).meta(
    about('tokens at the end of a chunk that the next chunk repeats, with over_long "chunk"', 0),
  ),
  bos: z
    .literal(['auto', true, false])
    .meta(
      about('BOS at the beginning of a text: auto as tokenizer.json says, true always, false never', 'auto'),
    ),
  row_tokens: z
    .literal(ROW_TOKENS)
    .meta(about('tokens of a packed row, at least; a longer max_seq_length makes longer rows', 2048)),
  window_tokens: whole(1024, 1_048_576).meta(
    about('tokens of consecutive samples that are packed into rows together, at most', 65_536),
  ),
  record: record.meta(about('how a line becomes a sample')),
  keep: list(name(256), 0, 32).meta(about("fields of the record to copy into the shard's index", [])),
  seed: whole(0, 2 ** 31 - 1).meta(about('of every random choice', 42)),
};

/** Every key of `run.json`. */
export const fields = {
  ...specFields,
  pool: z
    .string()
    .regex(POOL, 'a pool: lower-case letters, digits and dashes')
    .meta(about("the TPUs to use. Default the deployment's pool, such as tpu")),
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
  expire_days: whole(1, 3650)
    .nullable()
    .meta(about('days after which the bucket deletes each shard, from its upload on; null keeps all', null)),
  allow_cross_region: z
    .boolean()
    .meta(
      about(
        'let TPUs in another region than the bucket work on the run: each GB between them costs money, and counts in budget_usd',
        false,
      ),
    ),
  budget_usd: z
    .number()
    .positive()
    .max(10_000_000)
    .nullable()
    .meta(about('dollars that TPUs and network may cost; then the run pauses. null is no limit', null)),
};

/** Values of `run.json` or of a frozen spec, each key optional. */
export type SpecValues = z.infer<ReturnType<typeof closed<typeof fields>>>;
