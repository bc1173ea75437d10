/** The keys of `run.json`, in the order of its page. `means` is also the help of the option, unless `option` is set. */
import {type Fields, flag, name, own, text, whole, word} from './field.ts';

const MAX_LENGTH = 131_072;
/** Powers of two: the lengths of rows that the kernels support. */
export const ROW_TOKENS = [256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072] as const;

/** How a line becomes a sample. */
export const recordKeys = {
  field: {...name(256), default: null, means: 'the field that holds the text or the token ids'},
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
    means: 'the words around the grids of a task',
  },
  predictions_per_task: {
    ...{...whole(1, 1024), default: 1},
    means: 'samples made of each record: a task is turned, mirrored and recoloured anew for each',
  },
  add_generation_prompt: {
    ...{...flag, default: false},
    means: "end {messages} with the template's opening of an answer",
  },
  continue_final_message: {
    ...{...flag, default: false},
    means:
      'leave the last message of {messages} open, so that the text ends where the model continues it; `continue_final_message` of a record takes precedence',
  },
  template_kwargs: {
    ...{...own('variables'), default: {}},
    means:
      'variables of the chat template, such as {"enable_thinking": false}; `chat_template_kwargs` of a record goes before them',
  },
} as const satisfies Fields;

/** Hash of the spec of an empty `run.json`. Adding a key to the spec changes the hash in every shard of new runs; nothing else may. */
export const DEFAULT_SPEC_HASH = '2ad4988eeb72cee44d11d5b5cc97387bdd9a61eb1cd4e92e1b7bebc3662390bd';

/** The keys that the spec of an extraction has, beside `record`. */
export const specKeys = {
  model: {
    ...name(1024),
    means: 'a folder in the Hugging Face layout (gs://BUCKET/PATH, or a path on the worker), or a hub id',
  },
  revision: {
    ...{...name(256), default: null},
    means: 'branch, tag or commit of a hub model; the commit is pinned for the run',
  },
  layers: {
    ...{...own('layers'), default: 'all', means: 'the blocks to store'},
    option: 'all, a range such as 0-23, or a list such as 0,6,12',
  },
  sites: {
    ...{...own('sites'), default: ['resid_post']},
    means: 'the places in a block to store, by our names or by those of other libraries',
  },
  tokens: {
    ...{...own('tokens'), default: 'all', means: 'the tokens of a sample whose activations are stored'},
    option:
      'all, last, mean, max, assistant, turns, generated, field:NAME, regex:PATTERN, the last five after last:, mean: or max:, random:N, a slice such as 0:16, or positions such as 0,-1',
  },
  generate: {
    ...{...own('new_tokens'), default: null},
    means:
      'tokens that the model appends to each prompt: max_new_tokens at most, the likeliest ones (temperature 0)',
    option: 'tokens that the model appends to each prompt, at most',
  },
  mask: {
    ...{...own('mask'), default: null},
    means: 'the tokens to mark in `token_mask` of the shards, beside the rows; null stores no mask',
    option: 'tokens to mark: assistant, turns, generated, field:NAME or regex:PATTERN',
  },
  top_k: {...whole(1, 1024), default: 20, means: 'next tokens of a row of top_tokens and top_logprobs'},
  exclude_special: {...flag, default: false, means: 'leave special tokens out before `tokens` chooses'},
  dtype: {
    ...word('bf16', 'fp16', 'fp32', 'int8'),
    means: 'of the stored values; int8 has one scale for each row. Default bf16, for pkl.gz fp32',
  },
  compute_dtype: {
    ...{...word('bf16', 'fp32'), default: 'bf16'},
    means: 'of weights and computation; fp32 takes about 7 times the TPU time of bf16',
  },
  format: {
    ...{...word('safetensors', 'safetensors.zst', 'pkl.gz'), default: 'safetensors'},
    means: 'of the shard files',
  },
  shard_size_gb: {...own('size'), default: 1, means: 'bytes of a shard before compression, in 10^9'},
  max_seq_length: {...whole(1, MAX_LENGTH), default: 2048, means: 'tokens of a sample, at most'},
  over_long: {
    ...{...word('reject', 'truncate', 'chunk', 'pack'), default: 'reject'},
    means:
      'what becomes of a longer sample; chunk cuts it into samples, pack joins all records and cuts them into windows',
  },
  context_size: {
    ...{...whole(2, MAX_LENGTH), default: null},
    means: 'tokens of a chunk or of a packed window, at most; null is max_seq_length',
  },
  overlap: {
    ...{...whole(0, MAX_LENGTH - 2), default: 0},
    means: 'tokens at the end of a chunk that the next chunk repeats, with over_long "chunk"',
  },
  bos: {
    ...{...own('when'), default: 'auto'},
    means: 'BOS at the beginning of a text: auto as tokenizer.json says, true always, false never',
  },
  row_tokens: {
    ...{...own('power'), default: 2048},
    means: 'tokens of a packed row, at least; a longer max_seq_length makes longer rows',
  },
  window_tokens: {
    ...{...whole(1024, 1_048_576), default: 65_536},
    means: 'tokens of consecutive samples that are packed into rows together, at most',
  },
  keep: {...own('names'), default: [], means: "fields of the record to copy into the shard's index"},
  seed: {...whole(0, 2 ** 31 - 1), default: 42, means: 'of every random choice'},
} as const satisfies Fields;

/** Where a run works and what it may cost: never the content of its shards. */
export const runSettings = {
  pool: {
    ...own('pool'),
    means: 'Pool whose TPUs work on the run. Default: that of the deployment, such as `tpu`.',
    option: "pool (default: the deployment's own)",
  },
  priority: {
    ...{...whole(-1000, 1000), default: 0},
    means: 'Order between runs that share TPUs: the higher number goes first.',
    option: 'higher goes first, -1000 to 1000',
  },
  affinity: {
    ...{...word('any', 'fixed'), default: 'any'},
    means:
      '`any`: every TPU takes every stream. `fixed`: stream N is for the TPU with number N - `stream_offset` alone, counted over the zones.',
    option: 'fixed: stream N is for one TPU alone',
  },
  stream_offset: {
    ...{...whole(0, 999_999_999), default: 0},
    means: 'Number of the stream of the first TPU, with `affinity: fixed`.',
    option: 'stream of the first TPU, with --affinity fixed',
  },
  expire_days: {
    ...{...whole(1, 3650), default: null},
    means:
      'Days after which the bucket deletes each shard of the run, from its upload on. Null: it keeps them.',
    option: 'days after which the bucket deletes each shard',
  },
  allow_cross_region: {
    ...{...flag, default: false},
    means:
      'True: TPUs in another region than the bucket may work on the run. Each GB between them costs money, and counts in `budget_usd`.',
    option: 'let TPUs in another region than the bucket work on the run',
  },
  budget_usd: {
    ...{kind: 'number', above: 0, most: 10_000_000, default: null},
    means: 'Dollars that TPUs and network of the run may cost; then it pauses. Null: no limit of its own.',
    option: 'dollars that TPUs and network of the run may cost',
  },
} as const satisfies Fields;

const {priority, budget_usd, allow_cross_region} = runSettings;

/** The settings that the message `configure` changes. */
export const runChanges = {priority, budget_usd, allow_cross_region};
