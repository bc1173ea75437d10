import {tokenFile, urlWithToken} from '../../emulator/http/guard.ts';
import {type CloudOptions, type LocalInfo, runningCloud} from '../cloud/connect.ts';
import {CliError} from '../terminal/errors.ts';
import {printText, quoted} from '../terminal/output.ts';
import {ZONE} from './local-deployment.ts';

/** Prints export lines for a shell: variables of gcloud, of Google's clients and of gleaner. */
export async function printEnvironment(options: CloudOptions): Promise<void> {
  const info = await runningCloud(options);
  const token = requireToken(info);
  const base = `${info.url}/`;
  const variables = {
    CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE: `${base}storage/v1/`,
    CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB: base,
    CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU: base,
    CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE: `${base}compute/v1/`,
    CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDSCHEDULER: base,
    CLOUDSDK_AUTH_ACCESS_TOKEN_FILE: tokenFile(info.dir),
    CLOUDSDK_CORE_PROJECT: info.project,
    CLOUDSDK_CORE_DISABLE_PROMPTS: '1',
    CLOUDSDK_COMPUTE_ZONE: ZONE,
    STORAGE_EMULATOR_HOST: urlWithToken(info.url, token),
    PUBSUB_EMULATOR_HOST: info.pubsub_endpoint,
    ...(info.firestore_endpoint ? {FIRESTORE_EMULATOR_HOST: info.firestore_endpoint} : {}),
    PUBSUB_PROJECT_ID: info.project,
    GOOGLE_CLOUD_PROJECT: info.project,
    METADATA_SERVER_DETECTION: 'none',
    BUCKET: info.bucket,
    GLEANER_LOCAL_URL: info.url,
  };
  const lines = Object.entries(variables).map(([name, value]) => `export ${name}=${quoted(value)}`);
  printText(lines);
}

/** The token of a running local cloud. Throws `CliError` for the cloud of another user. */
export function requireToken(info: LocalInfo): string {
  if (info.token === undefined)
    throw new CliError(
      `Failed to read the token of the local cloud in ${info.dir}: only the user who started it can drive it`,
    );
  return info.token;
}
