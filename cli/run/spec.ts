/** The spec of a run, from a file and from the options of `cli/commands/spec-options.ts`. */
import {readFile} from 'node:fs/promises';
import {Rejected} from '../../shared/contracts/errors.ts';
import {parseValue} from '../../shared/contracts/schemas.ts';
import {parseRunSpec, type RunSpecInput, runSpecInput} from '../../shared/contracts/spec.ts';
import {type Budget, budgetField} from '../terminal/arguments.ts';
import {CliError} from '../terminal/errors.ts';

export type SpecOptions = {
  spec?: string;
  model?: string;
  revision?: string;
  layers?: string;
  sites?: string[];
  tokens?: string;
  excludeSpecial?: boolean;
  dtype?: string;
  computeDtype?: string;
  format?: string;
  shardSize?: number;
  maxSeqLength?: number;
  rowTokens?: number;
  windowTokens?: number;
  overLong?: string;
  contextSize?: number;
  overlap?: number;
  bos?: string;
  field?: string;
  template?: string;
  encoder?: string;
  promptVersion?: string;
  predictionsPerTask?: number;
  addGenerationPrompt?: boolean;
  keep?: string[];
  seed?: number;
  pool?: string;
  priority?: number;
  affinity?: string;
  streamOffset?: number;
  allowMixedCode?: boolean;
  budgetUsd?: Budget;
};

/**
 * Reads and checks the spec: the options on top of `--spec`, or of the run.json of a folder of streams. Throws `CliError`, which names each
 * wrong key.
 */
export async function specOf(options: SpecOptions, of_folder?: Buffer): Promise<RunSpecInput> {
  try {
    const base = of_folder ? parseRunSpec(of_folder.toString('utf8'), 'run.json') : {};
    const given = options.spec === undefined ? base : await readSpecFile(options.spec);
    const record = {...given.record, ...defined(recordOf(options))};
    const spec = {
      ...given,
      ...defined(keysOf(options)),
      ...(Object.keys(record).length > 0 ? {record} : {}),
    };
    return parseValue(runSpecInput, spec, 'The spec of the run');
  } catch (error) {
    throw error instanceof Rejected ? new CliError(error.message, {cause: error}) : error;
  }
}

async function readSpecFile(file: string): Promise<RunSpecInput> {
  const text = await readFile(file, 'utf8').catch((error: Error) => {
    throw new CliError(`Failed to read --spec ${file}: ${error.message}`, {cause: error});
  });
  return parseRunSpec(text, file);
}

function keysOf(options: SpecOptions): object {
  const {model, revision, sites, dtype, format, keep, seed, pool, priority, affinity} = options;
  return {
    ...{model, revision, sites, dtype, format, keep, seed, pool, priority, affinity},
    layers: listOf(options.layers),
    tokens: listOf(options.tokens),
    exclude_special: options.excludeSpecial,
    compute_dtype: options.computeDtype,
    shard_size_gb: options.shardSize,
    max_seq_length: options.maxSeqLength,
    over_long: options.overLong,
    context_size: options.contextSize,
    overlap: options.overlap,
    bos: options.bos === 'true' ? true : options.bos === 'false' ? false : options.bos,
    row_tokens: options.rowTokens,
    window_tokens: options.windowTokens,
    stream_offset: options.streamOffset,
    allow_mixed_code: options.allowMixedCode,
    budget_usd: budgetField(options.budgetUsd),
  };
}

function recordOf(options: SpecOptions): object {
  const {field, template, encoder} = options;
  return {
    ...{field, template, encoder},
    prompt_version: options.promptVersion,
    predictions_per_task: options.predictionsPerTask,
    add_generation_prompt: options.addGenerationPrompt,
  };
}

/** Numbers with commas between as a list; one number is a list of one; other text as it is. */
function listOf(given: string | undefined): string | number[] | undefined {
  if (given === undefined || !/^-?\d+(,-?\d+)*$/.test(given)) return given;
  return given.split(',').map(Number);
}

function defined(values: object): object {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));
}
