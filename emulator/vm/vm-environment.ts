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
  // With the value none, jobs run as the user of the cloud, if the cloud runs without root.
  /^GLEANER_JOB_ISOLATION$/,
];

export function vmEnvironment({
  disk,
  metadata_host,
  network,
}: {
  disk: string;
  metadata_host: string;
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
