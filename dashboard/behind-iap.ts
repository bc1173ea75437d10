/** Serves the pages of a deployment on Cloud Run, behind Identity-Aware Proxy. */
import {once} from 'node:events';
import {createAdaptorServer} from '@hono/node-server';
import type {Cloud} from '../cli/cloud/cloud.ts';
import {openStore} from '../shared/compose.ts';
import type {Config} from '../shared/contracts/config.ts';
import {jsonLog} from '../shared/control-plane/log.ts';
import {openObjects} from '../shared/google/objects.ts';
import {behindIap} from './guard.ts';
import {openIapCheck} from './iap.ts';
import {openPages} from './pages-of-cloud.ts';

/** Serves until the process ends. Throws `ConfigError` without the audience of IAP. */
export async function serveBehindIap(config: Config, port: number): Promise<void> {
  const {project, logs_bucket: bucket, endpoints, local_token: token} = config;
  const log = jsonLog(line => process.stdout.write(line), Date.now, project);
  const guard = behindIap(openIapCheck(config.identity), why => log('WARNING', why));
  const logs = openObjects({project, bucket, endpoint: endpoints.storage, token});
  const server = createAdaptorServer({fetch: openPages(cloudOf(config), logs, guard).app.fetch});
  server.listen(port);
  await once(server, 'listening');
}

function cloudOf(config: Config): Cloud {
  const {project, deployment, bucket, store, default_model, local_token: token} = config;
  const {jobs_collection: jobs, endpoints} = config;
  const {storage: storage_endpoint} = endpoints;
  const connection = {
    ...{is_google: true, storage_endpoint, pubsub_endpoint: undefined, token, folder: undefined},
    ...{project, deployment, bucket, default_model, store, jobs, origin: 'the settings', origins: {}},
    close: async () => {},
  };
  const objects = openObjects({project, bucket, endpoint: storage_endpoint, token});
  return {connection, store: openStore(config), objects, jobs, dir: undefined};
}
