/** An option for each key of run.json. */
import {SITES} from '../../shared/contracts/spec/site-names.ts';
import {
  dollars,
  jsonObject,
  modelName,
  natural,
  orNone,
  poolName,
  positive,
  priority,
  shardSize,
  text,
  whole,
  words,
} from '../terminal/arguments.ts';
import type {GleanerCommand} from '../terminal/command.ts';

/** Adds the options. `cli/run/spec/spec.ts` turns them into a spec, and its schema checks their values. */
export function addSpecOptions(command: GleanerCommand): GleanerCommand {
  return command
    .option('--spec <file>', 'run.json to start from; the options below come on top of it', text)
    .option('--model <model>', 'hub id, gs://BUCKET/PATH, or a folder on the TPU VM', modelName)
    .option('--revision <name>', 'branch, tag or commit of a hub model', text)
    .option('--layers <layers>', 'all, a range such as 0-23, or a list such as 0,6,12', text)
    .option(
      '--sites <sites>',
      `${SITES.join(', ')}, or names of TransformerLens, SAELens or nnsight, with commas between`,
      words,
    )
    .option(
      '--tokens <tokens>',
      'all, last, mean, max, assistant, turns, generated, field:NAME, regex:PATTERN, the last five after last:, mean: or max:, random:N, a slice such as 0:16, or positions such as 0,-1',
      text,
    )
    .option(
      '--mask <spans>',
      'tokens to mark: assistant, turns, generated, field:NAME or regex:PATTERN',
      text,
    )
    .option('--generate <n>', 'tokens that the model appends to each prompt, at most', whole(1, 131_071))
    .option('--top-k <n>', 'next tokens of a row of top_tokens and top_logprobs', whole(1, 1024))
    .option('--exclude-special', 'leave special tokens out before --tokens chooses')
    .choice('--dtype <dtype>', 'of the stored values', ['bf16', 'fp16', 'fp32', 'int8'])
    .choice('--compute-dtype <dtype>', 'of weights and computation', ['bf16', 'fp32'])
    .choice('--format <format>', 'of the shards', ['safetensors', 'safetensors.zst', 'pkl.gz'])
    .option('--shard-size <size>', 'such as 1GB or 500MB', shardSize)
    .option('--max-seq-length <n>', 'tokens of a sample, at most', whole(1, 999_999))
    .option('--row-tokens <n>', 'tokens of a packed row, a power of two', whole(256, 131_072))
    .option('--window-tokens <n>', 'tokens that are packed together, at most', whole(1024, 1_048_576))
    .choice('--over-long <action>', 'what becomes of a longer sample', [
      'reject',
      'truncate',
      'chunk',
      'pack',
    ])
    .option('--context-size <n>', 'tokens of a chunk or of a packed window', whole(2, 131_072))
    .option('--overlap <n>', 'tokens that a chunk repeats of the chunk before', natural)
    .choice('--bos <when>', 'BOS at the beginning of a text; auto: as tokenizer.json says', [
      'auto',
      'true',
      'false',
    ])
    .option('--field <name>', 'field of a record that holds the text, ids or messages', text)
    .option('--template <text>', 'Jinja template over the fields of a record', text)
    .option('--encoder <expression>', 'how the grids of an ARC task become text', text)
    .option('--prompt-version <name>', 'words around the grids of an ARC task', text)
    .option('--predictions-per-task <n>', 'samples made of each ARC task', positive)
    .option('--add-generation-prompt', "end messages with the opening of the model's answer")
    .option('--continue-final-message', 'leave the last message open, for the model to continue it')
    .option(
      '--template-kwargs <json>',
      'variables of the chat template, such as \'{"enable_thinking": false}\'',
      jsonObject,
    )
    .option('--keep <fields>', 'fields of a record to copy into the shards, with commas between', words)
    .option('--seed <n>', 'of every random choice', whole(0, 999_999_999))
    .option('--pool <pool>', "pool (default: the deployment's own)", poolName)
    .option('--priority <n>', 'higher goes first, -1000 to 1000', priority)
    .choice('--affinity <kind>', 'fixed: stream N is for one TPU alone', ['any', 'fixed'])
    .option('--stream-offset <n>', 'stream of the first TPU, with --affinity fixed', natural)
    .option('--expire-days <n>', 'days after which the bucket deletes each shard', positive)
    .option('--allow-cross-region', 'let TPUs in another region than the bucket work on the run')
    .option(
      '--budget-usd <usd>',
      'dollars that TPUs and network of the run may cost, or none',
      orNone(dollars),
    );
}
