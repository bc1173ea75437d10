import {join} from 'node:path';
import type {LocalCloud} from '../../../emulator/cloud.ts';

/** Environment of a gcloud that reaches Cloud Storage of a local cloud. `config`: folder of its settings. */
export function gcloudEnvironment(cloud: LocalCloud, config: string): NodeJS.ProcessEnv {
  return {
    ...process.env,
    CLOUDSDK_CONFIG: config,
    CLOUDSDK_CORE_PROJECT: cloud.project,
    CLOUDSDK_CORE_DISABLE_PROMPTS: '1',
    CLOUDSDK_AUTH_ACCESS_TOKEN_FILE: join(cloud.dir, 'token'),
    CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE: `${cloud.url}/storage/v1/`,
  };
}
