/** Source and environment of the code that jobs run: both belong to a pool, and a job may name its own. */

/** A code bundle in the bucket, `code/SHA256.tar.gz`, or one state of a git repository. */
export type Source =
  | {bundle: string}
  | {repo: string; branch: string}
  | {repo: string; pr: number}
  | {repo: string; commit: string};

/** Preparations of a host before a job. The texts are those of files. */
export type Environment = {
  /** `X.Y.Z`, `newest` or `nightly`; null is the locked version of the worker bundle. */
  jax_version: string | null;
  /** Shell script that runs once on each host, and again when its text changes. */
  setup_script: string | null;
  /** File that each job finds under `JOB_CONFIG`. */
  config_file: {name: string; text: string} | null;
  /** Folder in memory, mounted for jobs. */
  ramfs_dir: string | null;
};

export const NO_ENVIRONMENT: Environment = {
  jax_version: null,
  setup_script: null,
  config_file: null,
  ramfs_dir: null,
};

/** The part of source or environment that needs the internet; undefined without one. */
export function internetNeed(
  source: Source | null,
  environment: {[Key in keyof Environment]?: Environment[Key] | undefined},
): string | undefined {
  if (source && 'repo' in source) return `the repository ${source.repo}`;
  if (environment.jax_version) return `jax_version ${environment.jax_version}`;
  if (environment.setup_script) return 'a setup script';
  return undefined;
}

/** Code that ran: of a job's attempt, or ready on a host. Reported by the agent. */
export type Ran = {
  /** Digest of the code bundle, and of the worker bundle. */
  bundle: string | null;
  worker_bundle: string | null;
  repo: string | null;
  commit: string | null;
  jax_version: string | null;
  /** Digest of the locked packages, of the JAX version and of the setup script. */
  environment: string | null;
};

/** Source of a pool as one worker has it: `version` is the version of the pool's source. */
export type SourceReport = {
  version: number;
  status: 'preparing' | 'ready' | 'failed';
  ran: Ran | null;
  /** Error of the host with this version. The host keeps the version before. */
  error: string | null;
  at: string;
};

/**
 * The worker with the version of its pool's source. The same object if it has this version or a later one: the pool may have been read
 * before the last message.
 */
export function withSourceVersion<W extends {pool: string; source_version: number}>(
  worker: W,
  {pool, source_version}: {pool: string; source_version: number},
): W {
  if (worker.pool !== pool || worker.source_version >= source_version) return worker;
  return {...worker, source_version};
}
