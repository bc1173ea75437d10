/** The spec of a run, from a file and from the options of `cli/commands/spec-options.ts`. */
import {readFile} from 'node:fs/promises';
import type {Cloud} from '../../../client/cloud/cloud.ts';
import {CliError} from '../../../client/text/errors.ts';
import {parseValue} from '../../../shared/contracts/messages/schemas.ts';
import {DEFAULT_MODEL} from '../../../shared/contracts/settings/environment.ts';
import {withOwnNames} from '../../../shared/contracts/spec/site-names.ts';
import {
  completeSpec,
  frozenSpec,
  parseRunSpec,
  type RunSpec,
  type RunSpecInput,
  runSpecInput,
} from '../../../shared/contracts/spec/spec.ts';
import {DEFAULT_DEPLOYMENT, poolOf} from '../../../shared/domain/deployment.ts';
import {given} from '../../terminal/fields.ts';

/** `spec`: a file. Most keys of run.json are options with their values; these have the texts and numbers of the command line. */
export type SpecOptions = {
  spec?: string;
  layers?: string;
  tokens?: string;
  bos?: string;
  shard_size?: number;
  generate?: number;
} & {[key: string]: unknown};

const KEYS = Object.keys(frozenSpec.shape);
const RECORD_KEYS = Object.keys(frozenSpec.shape.record.unwrap().shape);

/**
 * Reads and checks the spec: the options on top of `--spec`, or of another run, or of the run.json of a folder of streams. Throws
 * `Rejected`, which names each wrong key.
 */
export async function specOf(options: SpecOptions, other?: Buffer | RunSpecInput): Promise<RunSpecInput> {
  const of_file = Buffer.isBuffer(other) ? parseRunSpec(other.toString('utf8'), 'run.json') : (other ?? {});
  const base = options.spec === undefined ? of_file : await readSpecFile(options.spec);
  const record = {...base.record, ...chosen(RECORD_KEYS, options)};
  const {layers, tokens, bos, shard_size, generate} = options;
  const typed = given({
    layers: listOf(layers),
    tokens: listOf(tokens),
    bos: bos === 'true' ? true : bos === 'false' ? false : bos,
    shard_size_gb: shard_size,
    generate: generate === undefined ? undefined : {max_new_tokens: generate, temperature: 0},
  });
  const others = Object.keys(record).length > 0 ? {record} : {};
  const spec = {...base, ...chosen(KEYS, options), ...typed, ...others};
  return withOwnNames(parseValue(runSpecInput, spec, 'The spec of the run'));
}

/** Reads a file of `--spec`. */
async function readSpecFile(file: string): Promise<RunSpecInput> {
  const text = await readFile(file, 'utf8').catch((error: Error) => {
    throw new CliError(`Failed to read --spec ${file}: ${error.message}`, {cause: error});
  });
  return parseRunSpec(text, file);
}

function chosen(keys: readonly string[], options: SpecOptions): object {
  return given(Object.fromEntries(keys.map(key => [key, options[key]])));
}

/** Numbers with commas between as a list; one number is a list of one; other text as it is. */
function listOf(text: string | undefined): string | number[] | undefined {
  if (text === undefined || !/^-?\d+(,-?\d+)*$/.test(text)) return text;
  return text.split(',').map(Number);
}

/** The complete spec, with the defaults of the cloud or of a worker without one. */
export function completeIn(cloud: Cloud | undefined, input: RunSpecInput): RunSpec {
  const default_model = cloud?.connection.default_model ?? DEFAULT_MODEL;
  const pool = {pool: poolOf(cloud?.connection.deployment ?? DEFAULT_DEPLOYMENT)};
  return completeSpec(input, {default_model, pool}).spec;
}
