/** Source and environment of the code that jobs run. Both belong to a pool; a job may name its own. */
import {z} from 'zod';
import {count, emptyOf, integer} from '../fields.ts';

const sha256 = z.string().regex(/^[0-9a-f]{64}$/, 'a sha256: 64 hexadecimal digits');
/** A text without lone surrogates: JSON may have them, and documents cannot. */
export const wellFormed = (most: number) =>
  z
    .string()
    .min(1)
    .max(most)
    .transform(given => given.toWellFormed());

/** Lines for a shell, from a file of any system: without the CR of their ends, which would be a part of the last word. */
export const shellLines = (given: string) => given.replaceAll('\r\n', '\n').replace(/\r$/, '');

/** Only https, or this machine: no user, password, option or other transport of git. */
const repo = z
  .string()
  .max(500)
  .regex(
    /^(https:\/\/[A-Za-z0-9.-]+(:\d{1,5})?|http:\/\/(127\.0\.0\.1|localhost)(:\d{1,5})?)\/[A-Za-z0-9._~/-]+$/,
    'an https address of a repository, without a user and a query',
  );
/** As git check-ref-format accepts it; it can never be an option. */
const branch = z
  .string()
  .max(200)
  .regex(/^(?!.*(\.\.|\/\/|@\{|\.lock$|\/$|\.$))[A-Za-z0-9_][A-Za-z0-9._/@+-]*$/, 'the name of a branch');
const commit = z.string().regex(/^[0-9a-f]{40}$/, 'a commit: 40 hexadecimal digits');
const pr = integer.min(1).max(10_000_000);

function sourceWith<Repo extends z.ZodType>(repo: Repo) {
  const ofRepo = [
    z.strictObject({repo, branch}),
    z.strictObject({repo, pr}),
    z.strictObject({repo, commit}),
  ] as const;
  return z.union([z.strictObject({bundle: sha256}), ...ofRepo]);
}

/** A code bundle in the bucket, `code/SHA256.tar.gz`, or one state of a git repository. */
export const source = sourceWith(repo);
export type Source = z.infer<typeof source>;

const MAX_FILE_CHARS = 65_536;

/** A source as messages name it. Without `repo`, the pool's repository is used. */
export const sourceChange = sourceWith(repo.optional());
export type SourceChange = z.infer<typeof sourceChange>;

/** Preparations of a host before a job. The scripts and files are given as text. */
export const environment = z.strictObject({
  /** Null: the locked version of the worker bundle. */
  jax_version: z
    .string()
    .regex(/^(newest|nightly|\d{1,4}\.\d{1,4}\.\d{1,4})$/, 'newest, nightly or X.Y.Z')
    .nullable(),
  /** Shell script that runs once on each host, and again when its text changes. */
  setup_script: wellFormed(MAX_FILE_CHARS).transform(shellLines).nullable(),
  /** File that each job finds under `JOB_CONFIG`. */
  config_file: z
    .strictObject({
      name: z.string().regex(/^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$/, 'the name of a file, without a folder'),
      text: wellFormed(MAX_FILE_CHARS),
    })
    .nullable(),
  /** Folder in memory, mounted for jobs. */
  ramfs_dir: z
    .string()
    .max(200)
    .regex(/^(\/[A-Za-z0-9_][A-Za-z0-9._-]*)+$/, 'the path of a folder, such as /mnt/ramfs')
    .nullable(),
});
export type Environment = z.infer<typeof environment>;

export const NO_ENVIRONMENT = emptyOf(environment.shape);

/** The part of source or environment that needs the internet, or undefined. */
export function internetNeed(
  source: Source | null,
  environment: {[Key in keyof Environment]?: Environment[Key] | undefined},
): string | undefined {
  if (source && 'repo' in source) return `the repository ${source.repo}`;
  if (environment.jax_version) return `jax_version ${environment.jax_version}`;
  if (environment.setup_script) return 'a setup script';
  return undefined;
}

export const reported = (most: number) => z.string().transform(given => given.slice(0, most).toWellFormed());
/** Code that ran in a job's attempt, or is ready on a host. The agent reports it, with digests of bundles and of the locked packages. */
export const ran = z.object({
  bundle: sha256.nullable(),
  worker_bundle: sha256.nullable(),
  repo: reported(500).nullable(),
  commit: commit.nullable(),
  jax_version: reported(100).nullable(),
  environment: reported(100).nullable(),
});
export type Ran = z.infer<typeof ran>;

/** The pool's source as one worker has it. After an error the host keeps the previous version. */
export const sourceReport = z.object({
  version: count,
  status: z.enum(['preparing', 'ready', 'failed']),
  ran: ran.nullable(),
  error: reported(2000).nullable(),
});
export type SourceReport = z.infer<typeof sourceReport> & {at: string};

/**
 * The worker with the version of its pool's source. Returns the same object if it has this version or a later one, because the pool may have
 * been read before the last message.
 */
export function withSourceVersion<W extends {pool: string; source_version: number}>(
  worker: W,
  {pool, source_version}: {pool: string; source_version: number},
): W {
  if (worker.pool !== pool || worker.source_version >= source_version) return worker;
  return {...worker, source_version};
}
