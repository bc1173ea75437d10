/** Schemas of jobs, sources and environments, as people type them and as agents report them. */
import {z} from 'zod';
import {MAX_TIMEOUT_S} from '../domain/bounds.ts';
import {JOB} from '../domain/names.ts';

const text = (most: number) =>
  z
    .string()
    .min(1)
    .max(most)
    .transform(given => given.toWellFormed());

export const jobId = z.string().regex(JOB, 'a job id: 1 to 100 letters, digits, dashes and underscores');
export const sha256 = z.string().regex(/^[0-9a-f]{64}$/, 'a sha256: 64 hexadecimal digits');

/** No user, password, option or other transport of git: https, or this machine alone. */
const repo = z
  .string()
  .max(500)
  .regex(
    /^(https:\/\/[A-Za-z0-9.-]+(:\d{1,5})?|http:\/\/(127\.0\.0\.1|localhost)(:\d{1,5})?)\/[A-Za-z0-9._~/-]+$/,
    'an https address of a repository, without a user and a query',
  );
/** As git check-ref-format accepts it, and never an option. */
const branch = z
  .string()
  .max(200)
  .regex(/^(?!.*(\.\.|\/\/|@\{|\.lock$|\/$|\.$))[A-Za-z0-9_][A-Za-z0-9._/@+-]*$/, 'the name of a branch');
const commit = z.string().regex(/^[0-9a-f]{40}$/, 'a commit: 40 hexadecimal digits');
const pr = z.number().int().min(1).max(10_000_000);

export const source = z.union([
  z.strictObject({bundle: sha256}),
  z.strictObject({repo, branch}),
  z.strictObject({repo, pr}),
  z.strictObject({repo, commit}),
]);

/** Longest text of a setup script or a config file. */
export const MAX_FILE_CHARS = 65_536;

/** A source as messages name it: without `repo`, the repository is that of the pool. */
export const sourceChange = z.union([
  z.strictObject({bundle: sha256}),
  z.strictObject({repo: repo.optional(), branch}),
  z.strictObject({repo: repo.optional(), pr}),
  z.strictObject({repo: repo.optional(), commit}),
]);
export type SourceChange = z.infer<typeof sourceChange>;

export const environment = z.strictObject({
  jax_version: z
    .string()
    .regex(/^(newest|nightly|\d{1,4}\.\d{1,4}\.\d{1,4})$/, 'newest, nightly or X.Y.Z')
    .nullable(),
  setup_script: text(MAX_FILE_CHARS).nullable(),
  config_file: z
    .strictObject({
      name: z.string().regex(/^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$/, 'the name of a file, without a folder'),
      text: text(MAX_FILE_CHARS),
    })
    .nullable(),
  ramfs_dir: z
    .string()
    .max(200)
    .regex(/^(\/[A-Za-z0-9_][A-Za-z0-9._-]*)+$/, 'the path of a folder, such as /mnt/ramfs')
    .nullable(),
});

/** Longest Python text or command of a job: longer code belongs in a source. */
export const MAX_CODE_BYTES = 180_000;
/** Longest result in a document, in bytes of UTF-8; a longer result goes to the bucket. */
export const MAX_RESULT_BYTES = 262_144;

const code = text(MAX_CODE_BYTES).refine(
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

/** An instant, in the milliseconds of documents. */
export const instant = z.iso.datetime().transform(text => new Date(text).toISOString());

/** Fields of a job that people write. Unknown fields of a document are kept, and of a message refused. */
export const jobFields = {
  code: code.nullish(),
  command: z.union([argv, code]).nullish(),
  challenge_number: z.number().int().nullish(),
  timeout: z.number().positive().max(MAX_TIMEOUT_S).default(300),
  pool: z
    .string()
    .regex(/^[a-z][a-z0-9-]{0,30}$/, 'a pool name such as tpu')
    .nullish(),
  priority: z.number().int().min(-1000).max(1000).default(0),
  max_retries: z.number().int().min(0).max(100).default(0),
  source: source.nullish(),
  environment: environment.partial().nullish(),
  limits: z
    .strictObject({
      memory_gb: z.number().positive().max(10_000).nullable(),
      processes: z.number().int().min(1).max(1_000_000).nullable(),
      open_files: z.number().int().min(16).max(1_000_000).nullable(),
      file_gb: z.number().positive().max(10_000).nullable(),
    })
    .partial()
    .nullish(),
  metadata: z.record(z.string().max(1000), z.unknown()).default({}),
  deadline_at: instant.nullish(),
  budget_usd: z.number().positive().max(10_000_000).nullish(),
};

const reported = (most: number) => z.string().transform(given => given.slice(0, most).toWellFormed());
export const ran = z.object({
  bundle: sha256.nullable(),
  worker_bundle: sha256.nullable(),
  repo: reported(500).nullable(),
  commit: commit.nullable(),
  jax_version: reported(100).nullable(),
  environment: reported(100).nullable(),
});
export const sourceReport = z.object({
  version: z.number().int().min(0),
  status: z.enum(['preparing', 'ready', 'failed']),
  ran: ran.nullable(),
  error: reported(2000).nullable(),
});

/** The lease of a job, as its worker claims it. */
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
    message: 'expected one text beside shell',
  });
export type ExecMessage = z.infer<typeof execMessage>;
