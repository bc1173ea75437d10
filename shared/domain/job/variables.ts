/** Variables of the process of a job. */

export const MOST_VARIABLES = 64;
export const MOST_VARIABLE_BYTES = 32 << 10;
export const MOST_SECRETS = 16;

/** Names that the agent sets itself, or that choose the programs of a process. `*` stands for the rest of a name. */
const TAKEN =
  'CHALLENGE_NUMBER GCE_METADATA_* GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT GOOGLE_APPLICATION_CREDENTIALS GOOGLE_CLOUD_PROJECT HOME JAX_COMPILATION_CACHE_DIR JAX_COORDINATOR_* JAX_PERSISTENT_CACHE_* JAX_PLATFORMS JOB_* LD_* LIBTPU_INIT_ARGS MEGASCALE_* PATH PYTHON* RAMFS_DIR STORAGE_EMULATOR_HOST TENSORSTORE_GCS_HTTP_URL TMPDIR TPU_*';

const PATTERN = new RegExp(`^(${TAKEN.replaceAll('*', '.*').replaceAll(' ', '|')})$`);

/** Why a job may not set the variable; undefined if it may. Lower-case letters are left out: a field that ends in `_at` is an instant. */
export function variableProblem(name: string): string | undefined {
  if (!/^[A-Z_][A-Z0-9_]{0,99}$/.test(name)) return 'a name has up to 100 capital letters, digits and _';
  return PATTERN.test(name) ? 'the agent sets this variable itself: choose another name' : undefined;
}
