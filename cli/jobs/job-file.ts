/** Code and fields of a job, from a file, standard input or the words of the command line. */

import {CliError, UsageError} from '../../client/text/errors.ts';
import {MAX_CODE_BYTES} from '../../shared/contracts/messages/job-schemas.ts';
import {decoded, readText} from './source.ts';

export type JobFields = Record<string, unknown>;

/** The test that the earlier job service submitted: TPU detection and a product of matrices. */
const TEST_CODE = `import jax
import jax.numpy as jnp

devices = jax.devices()
logger.info(f'Available devices: {devices}')
logger.info(f'TPU cores: {len([d for d in devices if d.platform == "tpu"])}')
x = jnp.ones((1000, 1000))
y = jnp.ones((1000, 1000))
total = jnp.dot(x, y).sum()
logger.info(f'Computation result: {total}')
result = f'Found {len(devices)} devices, computation result: {total}'
`;

/** Fields that the control plane sets: a copied document may have them. */
const NOT_GIVEN = ['status', 'created_at'];

/** Fields of the job that the command line names. `words`: all operands; `after`: those behind `--`, for the file or the command. */
export async function fieldsOf(
  words: readonly string[],
  after: readonly string[],
  {test, command}: {test?: number | boolean | undefined; command?: boolean | undefined},
): Promise<JobFields> {
  const files = words.slice(0, words.length - after.length);
  const given = [files.length > 0, test !== undefined, command === true].filter(Boolean).length;
  if (given > 1) throw new UsageError('Give only one of FILE, --test and --command');
  if (test !== undefined && after.length > 0) throw new UsageError('--test takes no words after --');
  if (test !== undefined)
    return {challenge_number: test === true ? 1 : Number(test), code: TEST_CODE, timeout: 60};
  if (command) {
    if (after.length === 0)
      throw new UsageError('--command needs its words after --, such as -- python train.py');
    return {command: [...after]};
  }
  const [file, second] = files;
  if (file === undefined)
    throw new UsageError(
      `There is nothing to run: give a Python file, - for standard input, --test or --command${after.length > 0 ? ' before --' : ''}`,
    );
  if (second !== undefined)
    throw new UsageError(
      `A job is one file, and "${second}" is a second one: put the files in a folder, and give --bundle. Arguments of the file come after --`,
    );
  const text = file === '-' ? decoded(await readInput(), 'standard input') : await readText(file);
  const fields = file.endsWith('.json') ? documentOf(text, file) : {code: requireShort(text, file)};
  return after.length > 0 ? {...fields, args: [...after]} : fields;
}

function documentOf(text: string, file: string): JobFields {
  let value: unknown;
  try {
    value = JSON.parse(text.replace(/^\ufeff/, ''));
  } catch (cause) {
    throw new CliError(`Failed to read ${file}: it is not JSON: ${(cause as Error).message}`, {cause});
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new CliError(`${file} is not a job: write a JSON object with the fields of a job`);
  const fields = Object.fromEntries(Object.entries(value).filter(([key]) => !NOT_GIVEN.includes(key)));
  if (typeof fields.code === 'string') requireShort(fields.code, file);
  return fields;
}

function requireShort(code: string, file: string): string {
  const bytes = Buffer.byteLength(code);
  if (bytes > MAX_CODE_BYTES)
    throw new CliError(
      `${file} has ${bytes} bytes of code, and a job takes ${MAX_CODE_BYTES}: put the code in a folder, and run it with --bundle FOLDER --command`,
    );
  return code;
}

async function readInput(): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of process.stdin) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks);
}
