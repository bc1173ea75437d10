import {existsSync} from 'node:fs';
import {homedir} from 'node:os';
import {join} from 'node:path';
import {withDirectLoopback} from '../http/proxies.ts';

type Environment = Record<string, string>;

/** Variables of this process that a VM inherits: settings for language, network, package sources and jobs. */
const passed = [
  /^(PATH|LANG|LC_.*|TZ)$/,
  /^(PIP|UV)_/,
  /^(SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|HTTPLIB2_CA_CERTS|GRPC_DEFAULT_SSL_ROOTS_FILE_PATH)$/,
  /^(https?|all|no)_proxy$/i,
  // The value none runs jobs as the user of the cloud, where the cloud runs without root.
  /^GLEANER_JOB_ISOLATION$/,
];

/** Smallest number of a user of jobs. Real users and services of a machine have smaller numbers. */
const FIRST_JOB_UID = 1_000_000;
const VMS_OF_A_CLOUD = 1000;

/**
 * The number of the user of a VM's jobs; undefined where the cloud may not start processes of other users. One cloud at a time
 * listens on a port, so two clouds on a machine never share a number.
 */
export function jobUid(port: number, vm_number: number): number | undefined {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return undefined;
  return FIRST_JOB_UID + port * VMS_OF_A_CLOUD + (vm_number % VMS_OF_A_CLOUD);
}

export function vmEnvironment({
  disk,
  metadata_host,
  job_uid,
  network,
}: {
  disk: string;
  metadata_host: string;
  job_uid: number | undefined;
  network: Environment;
}): Environment {
  return {
    // All VMs share one package cache, so only the first boot on this machine downloads packages.
    UV_CACHE_DIR: join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'gleaner', 'uv'),
    ...packageSources(),
    ...withDirectLoopback(inherited(process.env)),
    HOME: disk,
    TMPDIR: join(disk, 'tmp'),
    GLEANER_HOME: disk,
    GCE_METADATA_HOST: metadata_host,
    // Google's Python library sends its first request to this address.
    GCE_METADATA_IP: metadata_host,
    ...(job_uid === undefined ? {} : {GLEANER_JOB_UID: String(job_uid)}),
    ...network,
  };
}

function inherited(env: NodeJS.ProcessEnv): Environment {
  const kept: Environment = {};
  for (const [key, value] of Object.entries(env)) {
    if (value !== undefined && passed.some(pattern => pattern.test(key))) kept[key] = value;
  }
  return kept;
}

/** Configuration files of pip and uv in the user's HOME, which a VM does not have. They name package mirrors. */
function packageSources(): Environment {
  const config = process.env.XDG_CONFIG_HOME || join(homedir(), '.config');
  const sources = {
    UV_CONFIG_FILE: join(config, 'uv', 'uv.toml'),
    PIP_CONFIG_FILE: join(config, 'pip', 'pip.conf'),
  };
  return Object.fromEntries(Object.entries(sources).filter(([, file]) => existsSync(file)));
}
