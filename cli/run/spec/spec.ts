/** The spec of a run, from a file and from the options of `cli/commands/spec-options.ts`. */
import {readFile} from 'node:fs/promises';
import type {Cloud} from '../../../client/cloud/cloud.ts';
import {CliError} from '../../../client/text/errors.ts';
import {parseValue} from '../../../shared/contracts/messages/schemas.ts';
import {DEFAULT_MODEL} from '../../../shared/contracts/settings/environment.ts';
import {withOwnNames} from '../../../shared/contracts/spec/site-names.ts';
import {
  completeSpec,
  parseRunSpec,
  type RunSpec,
  type RunSpecInput,
  runSpecInput,
} from '../../../shared/contracts/spec/spec.ts';
import {DEFAULT_DEPLOYMENT, poolOf} from '../../../shared/domain/deployment.ts';
import {pick} from '../../../shared/domain/records/field.ts';
import {recordKeys, runSettings, specKeys} from '../../../shared/domain/records/spec-keys.ts';
import {definedFields} from '../../terminal/field-options.ts';

/** `spec`: a file. Every key of run.json is an option with its value, but for `shard_size_gb` and the reductions. */
export type SpecOptions = {spec?: string; shard_size?: number; [key: string]: unknown};

const {shard_size_gb: _, ...KEYS} = {...specKeys, ...runSettings};

/**
 * Reads and checks the spec: the options on top of `--spec`, or of another run, or of the run.json of a folder of streams. Throws
 * `Rejected`, which names each wrong key.
 */
export async function specOf(options: SpecOptions, other?: Buffer | RunSpecInput): Promise<RunSpecInput> {
  const of_file = Buffer.isBuffer(other) ? parseRunSpec(other.toString('utf8'), 'run.json') : (other ?? {});
  const base = options.spec === undefined ? of_file : await readSpecFile(options.spec);
  const record = {...base.record, ...pick(recordKeys, options)};
  const others = definedFields({
    shard_size_gb: options.shard_size,
    record: Object.keys(record).length > 0 ? record : undefined,
  });
  const spec = {...base, ...pick(KEYS, options), ...others};
  return withOwnNames(parseValue(runSpecInput, spec, 'The spec of the run'));
}

async function readSpecFile(file: string): Promise<RunSpecInput> {
  const text = await readFile(file, 'utf8').catch((error: Error) => {
    throw new CliError(`Failed to read --spec ${file}: ${error.message}`, {cause: error});
  });
  return parseRunSpec(text, file);
}

/** The complete spec, with the defaults of the cloud or of a worker without one. */
export function completeIn(cloud: Cloud | undefined, input: RunSpecInput): RunSpec {
  const default_model = cloud?.connection.default_model ?? DEFAULT_MODEL;
  const pool = {pool: poolOf(cloud?.connection.deployment ?? DEFAULT_DEPLOYMENT)};
  return completeSpec(input, {default_model, pool}).spec;
}
