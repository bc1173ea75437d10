/** Schemas of jobs, sources and environments, as people type them and as agents report them. */
import {z} from 'zod';
import {MAX_SLICES, MAX_TIMEOUT_S} from '../../domain/bounds.ts';
import {POOL} from '../../domain/deployment.ts';
import {MOST_INPUTS} from '../../domain/job/inputs.ts';
import {
  MOST_SECRETS,
  MOST_VARIABLE_BYTES,
  MOST_VARIABLES,
  variableProblem,
} from '../../domain/job/variables.ts';
import {JOB} from '../../domain/names.ts';
import {environment, reported, shellLines, source, wellFormed} from '../../domain/records/source.ts';

export const poolName = z
  .string()
  .regex(POOL, 'a pool name such as tpu')
  .describe("Name of the pool. Where the field is optional: the deployment's own.");
export const jobId = z
  .string()
  .regex(JOB, 'a job id: 1 to 100 letters, digits, dashes and underscores, not of the form __x__');

/** Longest Python text or command of a job: longer code belongs in a source. */
export const MAX_CODE_BYTES = 180_000;
/** Longest result in a document, in bytes of UTF-8; a longer result goes to the bucket. */
export const MAX_RESULT_BYTES = 262_144;

const code = wellFormed(MAX_CODE_BYTES).refine(
  given => Buffer.byteLength(given) <= MAX_CODE_BYTES,
  `at most ${MAX_CODE_BYTES} bytes; put longer code in a source`,
);
const argument = z
  .string()
  .max(MAX_CODE_BYTES)
  .regex(/^[^\0]*$/, 'a text without a zero byte')
  .transform(given => given.toWellFormed());
export const argv = z
  .array(argument)
  .min(1)
  .max(1000)
  .refine(
    given => given.reduce((sum, each) => sum + Buffer.byteLength(each), 0) <= MAX_CODE_BYTES,
    `at most ${MAX_CODE_BYTES} bytes; put longer texts in a source`,
  );

/** Values by the names of variables that a job may set. */
const variables = <Value extends z.ZodType<string>>(value: Value, most: number) =>
  z.record(z.string(), value).superRefine((given, {addIssue}) => {
    for (const name of Object.keys(given)) {
      const problem = variableProblem(name);
      // The message names the variable, and never quotes its value.
      if (problem) addIssue({code: 'custom', message: `${name.slice(0, 100)}: ${problem}`});
    }
    if (Object.keys(given).length > most) addIssue({code: 'custom', message: `at most ${most} variables`});
  });
const env = variables(argument, MOST_VARIABLES).refine(
  given => Buffer.byteLength(Object.entries(given).flat().join('')) <= MOST_VARIABLE_BYTES,
  `at most ${MOST_VARIABLE_BYTES} bytes`,
);
export const secretName = z.string().regex(/^[a-z][a-z0-9_-]{0,62}$/, 'a name of job_secrets, such as wandb');

/** An instant, in the milliseconds of documents. */
export const instant = z.iso.datetime().transform(text => new Date(text).toISOString());

const limit = (most: number) => z.number().positive().max(most).nullable().default(null);
const whole = (least: number, most: number) => z.number().int().min(least).max(most).nullable().default(null);

/** Fields of a job that people write. Unknown fields are kept in a document and refused in a message. */
export const jobFields = {
  code: code.nullish(),
  args: argv.nullish(),
  command: z.union([argv, code.transform(shellLines)]).nullish(),
  challenge_number: z.number().int().nullish(),
  timeout: z.number().positive().max(MAX_TIMEOUT_S).default(300),
  pool: poolName.nullish(),
  slices: z.number().int().min(1).max(MAX_SLICES).default(1),
  priority: z.number().int().min(-1000).max(1000).default(0),
  max_retries: z.number().int().min(0).max(100).default(0),
  source: source.nullish(),
  environment: environment.partial().nullish(),
  env: env.nullish(),
  secrets: variables(secretName, MOST_SECRETS).nullish(),
  limits: z
    .strictObject({
      memory_gb: limit(10_000),
      processes: whole(1, 1_000_000),
      open_files: whole(16, 1_000_000),
      file_gb: limit(10_000),
      disk_gb: limit(10_000),
      files: whole(1, 100_000_000),
    })
    .nullish(),
  checkpoint: z
    .strictObject({
      max_gb: limit(10_000),
      max_files: whole(1, 100_000),
      every_s: z.number().min(1).max(86_400).nullable().default(null),
    })
    .nullish(),
  inputs: z
    .array(
      z
        .string()
        .max(1024)
        .regex(/^(run:|gs:\/\/)./, 'run:NAME, or gs:// with a folder of the bucket'),
    )
    .max(MOST_INPUTS)
    .default([]),
  metadata: z.record(z.string().max(1000), z.unknown()).default({}),
  deadline_at: instant.nullish(),
  budget_usd: z.number().positive().max(10_000_000).nullish(),
};

export const jobLease = z.object({job: jobId, epoch: z.number().int().min(0).max(1_000_000)});

/** Message on topic `exec`: a command for every host of the target, as the job user. */
export const execMessage = z
  .strictObject({
    exec: jobId,
    target: z.string().regex(/^[a-z0-9-]{1,63}$/, 'a pool, a worker, or all'),
    argv,
    /** True: `argv` has one text, for `bash -c`. */
    shell: z.boolean().default(false),
    timeout_s: z.number().min(1).max(86_400).default(600),
    requested_by: reported(200).nullable().default(null),
  })
  .refine(({shell, argv}) => !shell || argv.length === 1, {
    path: ['argv'],
    message: 'expected exactly one text together with shell',
  })
  .transform(given => (given.shell ? {...given, argv: given.argv.map(shellLines)} : given));
export type ExecMessage = z.infer<typeof execMessage>;
