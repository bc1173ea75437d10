import {poolOf} from '../../domain/deployment.ts';
import {runtimeOf} from '../../domain/fleet/accelerators.ts';
import {NEW_POOL, type Pool} from '../../domain/records/pool.ts';
import {poolSettings} from '../../domain/records/pool-settings.ts';
import {LIMITS} from '../../domain/worker/limits.ts';
import {PLACEMENT} from '../../domain/zone/placement.ts';
import {ConfigError} from '../errors.ts';
import {ceilingsOf, environment, keptDays, ownTerms} from './environment.ts';
import {identityOf} from './identity-settings.ts';

export {ConfigError};

export type Config = ReturnType<typeof loadConfig>;

/** The address of worker-api. Throws `ConfigError`, which names the variable and the function that needs it. */
export function requireWorkerApi({worker_api}: Pick<Config, 'worker_api'>, needed_by: string): string {
  if (worker_api !== undefined) return worker_api;
  throw new ConfigError(
    `GLEANER_WORKER_API is not set, and ${needed_by} needs it: set it to the https address of worker-api`,
  );
}

/** Entry point that this process serves: Cloud Run functions name it. A local cloud serves all of them in one process. */
export function servedFunction({FUNCTION_TARGET}: NodeJS.ProcessEnv = process.env): string | undefined {
  return FUNCTION_TARGET;
}

/** Name of this release in documents and messages: the first digits of the SHA-256 of its functions, which Terraform gives. */
export const RELEASE = process.env.GLEANER_RELEASE ?? 'unreleased';

export const KEPT_DAYS = keptDays(process.env);

/** The values that the environment sets: GLEANER_BOOT_S for `boot_s`. */
function valuesIn<Name extends string, Variables extends Record<`GLEANER_${Uppercase<Name>}`, unknown>>(
  v: Variables,
  names: readonly Name[],
) {
  const values = names.map(name => [name, v[`GLEANER_${name.toUpperCase() as Uppercase<Name>}`]]);
  return Object.fromEntries(values) as {[Each in Name]: Variables[`GLEANER_${Uppercase<Each>}`]};
}

/** Reads the environment once. Throws `ConfigError`, which names every missing or wrong variable. */
export function loadConfig(env: Readonly<Record<string, string | undefined>> = process.env) {
  const parsed = environment.safeParse(env);
  if (!parsed.success) {
    const problems = parsed.error.issues.map(issue => `  ${issue.path.join('.')}: ${issue.message}`);
    throw new ConfigError(`Failed to read the configuration. Set these variables:\n${problems.join('\n')}`);
  }
  const v = parsed.data;
  return {
    project: v.GLEANER_PROJECT,
    deployment: v.GLEANER_DEPLOYMENT,
    bucket: v.GLEANER_BUCKET,
    region: v.GLEANER_REGION ?? null,
    logs_bucket: v.GLEANER_LOGS_BUCKET ?? v.GLEANER_BUCKET,
    checkpoints_bucket: v.GLEANER_CHECKPOINTS_BUCKET ?? v.GLEANER_BUCKET,
    store: v.GLEANER_STORE,
    worker_api: v.GLEANER_WORKER_API,
    bundle: v.GLEANER_BUNDLE,
    default_model: v.GLEANER_DEFAULT_MODEL,
    identity: identityOf(v),
    network: {
      ...(v.GLEANER_NETWORK ? {network: v.GLEANER_NETWORK} : {}),
      ...(v.GLEANER_SUBNETWORK ? {subnetwork: v.GLEANER_SUBNETWORK} : {}),
      external_ips: v.GLEANER_EXTERNAL_IPS === 'true',
    },
    /** Metadata of every node, beside the identity of its worker. */
    worker_metadata: {
      ...(v.GLEANER_HF_ENDPOINT ? {'gleaner-hf-endpoint': v.GLEANER_HF_ENDPOINT} : {}),
      ...(v.GLEANER_GIT_TOKEN_SECRET ? {'gleaner-git-host': v.GLEANER_GIT_TOKEN_SECRET.split('=')[0]} : {}),
      ...(v.GLEANER_JOB_EGRESS === 'none' ? {'gleaner-job-egress': 'none'} : {}),
    },
    /** Resources of Secret Manager, `projects/P/secrets/S[/versions/V]`. */
    secrets: {
      hub: v.GLEANER_HF_TOKEN_SECRET,
      git: v.GLEANER_GIT_TOKEN_SECRET?.split('=')[1],
      jobs: v.GLEANER_JOB_SECRETS as Record<string, string>,
    },
    endpoints: {
      storage: v.GLEANER_STORAGE_ENDPOINT,
      tpu: v.GLEANER_TPU_ENDPOINT,
      compute: v.GLEANER_COMPUTE_ENDPOINT,
      billing: v.GLEANER_BILLING_ENDPOINT,
      sts: v.GLEANER_STS_ENDPOINT,
      secrets: v.GLEANER_SECRETS_ENDPOINT,
    },
    pool: {
      ...NEW_POOL,
      pool: poolOf(v.GLEANER_DEPLOYMENT),
      accelerator: v.GLEANER_ACCELERATOR,
      runtime_version: v.GLEANER_RUNTIME_VERSION ?? runtimeOf(v.GLEANER_ACCELERATOR, v.GLEANER_PROVIDER),
      ...ownTerms(v),
      zones: v.GLEANER_ZONES,
      ...valuesIn(v, Object.keys(poolSettings) as (keyof typeof poolSettings)[]),
    } as Pool,
    /** The format of notifications; null if the deployment sends none. Only on-task has the address and the key. */
    notify: v.GLEANER_NOTIFY
      ? {format: v.GLEANER_NOTIFY, url: v.GLEANER_NOTIFY_URL, key: v.GLEANER_NOTIFY_KEY}
      : null,
    providers: v.GLEANER_PROVIDERS,
    jobs_collection: v.GLEANER_JOBS_COLLECTION,
    /** True if workers reach the internet: sources of git, other JAX versions and setup scripts need it. */
    has_internet: v.GLEANER_INTERNET === 'true',
    /** False if jobs reach nothing but their own loopback. */
    jobs_have_network: v.GLEANER_JOB_EGRESS !== 'none',
    local_token: v.GLEANER_LOCAL_TOKEN,
    ceilings: ceilingsOf(v),
    max_hosts: v.GLEANER_MAX_HOSTS,
    heartbeat_s: v.GLEANER_HEARTBEAT_S,
    lease_s: v.GLEANER_LEASE_S,
    audit_s: v.GLEANER_AUDIT_S,
    long_job_s: v.GLEANER_LONG_JOB_S,
    model_retry: {first_s: v.GLEANER_MODEL_RETRY_S, longest_s: v.GLEANER_LONGEST_MODEL_RETRY_S},
    limits: valuesIn(v, LIMITS),
    placement: valuesIn(v, PLACEMENT),
  };
}
