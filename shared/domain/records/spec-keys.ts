/** The keys of `run.json`, in the order of its page. `means` is also the help of the option, unless `option` is set. */
import {type Fields, flag, name, own, text, whole, word} from './field.ts';

const MAX_LENGTH = 131_072;
/** Powers of two: the lengths of rows that the kernels support. */
export const ROW_TOKENS = [256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072] as const;

/** How a line becomes a sample. */
export const recordKeys = {
  field: {...name(256), default: null, means: 'the field with the text or the token ids'},
  template: {
    ...{...text(16_384), default: null},
    means: "a Jinja template over the record's fields that makes the text",
  },
  encoder: {...own('encoder'), default: null, means: 'how the grids of an ARC task become text'},
  prompt_version: {
    ...word(
      'output-from-examples-v0',
      'output-from-examples-v1',
      'input-from-inputs-v0',
      'output-from-outputs-v0',
    ),
    default: 'output-from-examples-v0',
    means: 'wording of the prompt of an ARC task',
  },
  predictions_per_task: {
    ...{...whole(1, 1024), default: 1},
    means: 'samples of each record; an ARC task is turned, mirrored and recoloured for each',
  },
  add_generation_prompt: {
    ...{...flag, default: false},
    means: "end {messages} with the template's opening of an answer",
  },
  continue_final_message: {
    ...{...flag, default: false},
    means: 'leave the last message of {messages} open',
  },
  template_kwargs: {
    ...{...own('variables'), default: {}},
    means: 'variables of the chat template, such as {"enable_thinking": false}',
  },
} as const satisfies Fields;

const everyReduction = {
  name: {...own('output'), means: 'names the tensors: at most 24 lower-case letters and underscores'},
  weights: {...name(1024), means: 'a hub id, gs://BUCKET/PATH, or a path on the worker'},
  revision: {...name(256), default: null, means: 'branch, tag or commit of a hub id, pinned for the run'},
  path: {...own('path'), default: '', means: 'below `weights`, with {layer} for the number of each layer'},
  layers: {...own('layers'), default: null, means: 'null is `layers` of the run'},
} as const;

/** The keys of an entry of `features` and of `project`, and those of `moments`. */
export const entryKeys = {
  features: {
    ...everyReduction,
    site: {...own('site'), default: null, means: 'what the SAE reads; null is what its own config says'},
    k: {...whole(1, 1024), default: null, means: "most features of a vector; null is the SAE's k, or 64"},
  },
  project: {
    ...everyReduction,
    site: {...own('site'), default: 'resid_post', means: 'the site to project'},
    dtype: {...word('bf16', 'fp32'), default: 'fp32', means: 'type of the stored dot products'},
  },
  moments: {
    sites: {...own('sites'), default: null, means: 'null is `sites` of the run, or else resid_post'},
    layers: everyReduction.layers,
  },
} as const satisfies Record<string, Fields>;

/** Hash of the spec of an empty `run.json`. Adding a key to the spec changes the hash in every shard of new runs; nothing else may. */
export const DEFAULT_SPEC_HASH = '2ad4988eeb72cee44d11d5b5cc97387bdd9a61eb1cd4e92e1b7bebc3662390bd';

/** The keys that the spec of an extraction has, beside `record`. */
export const specKeys = {
  model: {
    ...name(1024),
    means: 'a hub id, or a folder in the Hugging Face layout (gs://BUCKET/PATH, or a path on the worker)',
  },
  revision: {...name(256), default: null, means: 'branch, tag or commit of a hub model, pinned for the run'},
  layers: {
    ...{...own('layers'), default: 'all', means: 'the blocks to store'},
    option: 'all, a range such as 0-23, or a list such as 0,6,12',
  },
  sites: {
    ...{...own('sites'), default: ['resid_post']},
    means: 'what to store of a block, by our names or those of other libraries',
  },
  features: {...own('features'), default: [], means: 'SAEs whose strongest features are stored'},
  project: {...own('project'), default: [], means: 'matrices whose dot products are stored'},
  moments: {...own('moments'), default: null, means: 'sums of the vectors of a sample, and of their squares'},
  tokens: {
    ...{...own('tokens'), default: 'all', means: 'the tokens of a sample to store'},
    option:
      'all, last, mean, max, assistant, turns, generated, field:NAME, regex:PATTERN, the last five after last:, mean: or max:, random:N, a slice such as 0:16, or positions such as 0,-1',
  },
  generate: {
    ...{...own('new_tokens'), default: null},
    means: 'answers of at most max_new_tokens, at temperature 0',
    option: 'tokens that the model appends to each prompt, at most',
  },
  mask: {
    ...{...own('mask'), default: null},
    means: 'spans whose tokens are marked in `token_mask` of the shards',
    option: 'tokens to mark: assistant, turns, generated, field:NAME or regex:PATTERN',
  },
  top_k: {...whole(1, 1024), default: 20, means: 'next tokens that top_tokens and top_logprobs store'},
  exclude_special: {...flag, default: false, means: 'leave special tokens out before `tokens` chooses'},
  dtype: {
    ...word('bf16', 'fp16', 'fp32', 'int8'),
    means: 'type of the stored values, by default bf16, for pkl.gz fp32',
  },
  compute_dtype: {
    ...{...word('bf16', 'fp32'), default: 'bf16'},
    means: 'type of weights and computation; fp32 takes about 7 times as long',
  },
  format: {
    ...{...word('safetensors', 'safetensors.zst', 'pkl.gz'), default: 'safetensors'},
    means: 'format of the shard files',
  },
  shard_size_gb: {...own('size'), default: 1, means: 'size of a shard before compression, in 10^9 bytes'},
  max_seq_length: {...whole(1, MAX_LENGTH), default: 2048, means: 'most tokens of a sample'},
  over_long: {
    ...{...word('reject', 'truncate', 'chunk', 'pack'), default: 'reject'},
    means: 'what becomes of a longer record; pack joins all records and cuts windows',
  },
  context_size: {
    ...{...whole(2, MAX_LENGTH), default: null},
    means: 'most tokens of a chunk or window; null is max_seq_length',
  },
  overlap: {
    ...{...whole(0, MAX_LENGTH - 2), default: 0},
    means: 'tokens that a chunk repeats of the chunk before',
  },
  bos: {...own('when'), default: 'auto', means: 'BOS before a text: as tokenizer.json says, always or never'},
  row_tokens: {
    ...{...own('power'), default: 2048},
    means: 'least tokens of a packed row; a longer max_seq_length makes longer rows',
  },
  window_tokens: {
    ...{...whole(1024, 1_048_576), default: 65_536},
    means: 'most tokens of samples that are packed into rows together',
  },
  keep: {...own('names'), default: [], means: "fields of the record to copy into the shard's index"},
  seed: {...whole(0, 2 ** 31 - 1), default: 42, means: 'seed of every random choice'},
} as const satisfies Fields;

/** Where a run works and what it may cost: never the content of its shards. */
export const runSettings = {
  pool: {
    ...own('pool'),
    means: "Pool whose TPUs work on the run. Default: the deployment's own.",
    option: "pool (default: the deployment's own)",
  },
  priority: {
    ...{...whole(-1000, 1000), default: 0},
    means: 'Order between runs that share TPUs: the higher number goes first.',
    option: 'higher goes first, -1000 to 1000',
  },
  affinity: {
    ...{...word('any', 'fixed'), default: 'any'},
    means: '`fixed`: stream N is only for TPU number N - `stream_offset`, counted over the zones.',
    option: 'fixed: stream N is for one TPU alone',
  },
  stream_offset: {
    ...{...whole(0, 999_999_999), default: 0},
    means: 'Number of the stream of the first TPU, with `affinity: fixed`.',
    option: 'stream of the first TPU, with --affinity fixed',
  },
  expire_days: {
    ...{...whole(1, 3650), default: null},
    means: 'Days after which the bucket deletes a shard. Null: never.',
    option: 'days after which the bucket deletes each shard',
  },
  allow_cross_region: {
    ...{...flag, default: false},
    means:
      'Allows TPUs in other regions than the bucket. Each GB between them costs money, which counts in `budget_usd`.',
    option: 'let TPUs in another region than the bucket work on the run',
  },
  budget_usd: {
    ...{kind: 'number', above: 0, most: 10_000_000, default: null},
    means: 'Dollars that TPUs and network of the run may cost before it pauses. Null: no limit of its own.',
    option: 'dollars that TPUs and network of the run may cost',
  },
} as const satisfies Fields;

const {priority, budget_usd, allow_cross_region} = runSettings;

/** The settings that the message `configure` changes. */
export const runChanges = {priority, budget_usd, allow_cross_region};
