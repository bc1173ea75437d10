import {nameIn} from '../../shared/domain/deployment.ts';
import {accountsOf} from '../http/identity.ts';
import type {CloudAddress} from '../state/cloud-address.ts';
import type {Deployment} from './subscriptions.ts';

/** Value of GLEANER_STORE of a deployment. */
export function storeIn({firestore_endpoint}: CloudAddress, {name, store_file}: Deployment): string {
  return firestore_endpoint === undefined ? `sqlite:${store_file}` : `firestore:${name}`;
}

/** Key of the tickets, and HOST:PORT/PATH of the metadata server of the functions. */
export type Proofs = {ticket_key: string; metadata_host: string};

/** Environment that points the functions of a deployment at this cloud. */
export function functionEnvironment(
  where: CloudAddress,
  deployment: Deployment,
  token: string,
  {ticket_key, metadata_host}: Proofs,
): Record<string, string> {
  const {url, project, pubsub_endpoint, firestore_endpoint, jobs_collection} = where;
  const {worker, control, 'worker-api': api} = accountsOf(project, deployment.name);
  return {
    ...(firestore_endpoint === undefined ? {} : {FIRESTORE_EMULATOR_HOST: firestore_endpoint}),
    ...(jobs_collection === undefined ? {} : {GLEANER_JOBS_COLLECTION: jobs_collection}),
    GLEANER_DEPLOYMENT: deployment.name,
    GOOGLE_CLOUD_PROJECT: project,
    STORAGE_EMULATOR_HOST: url,
    PUBSUB_EMULATOR_HOST: pubsub_endpoint,
    PUBSUB_PROJECT_ID: project,
    // Without this variable Google's clients search for a metadata server for a second.
    METADATA_SERVER_DETECTION: 'none',
    GLEANER_PROJECT: project,
    GLEANER_BUCKET: deployment.bucket,
    GLEANER_STORE: storeIn(where, deployment),
    GLEANER_WORKER_API: `${url}/functions/${nameIn(deployment.name, 'worker-api')}`,
    GLEANER_STORAGE_ENDPOINT: url,
    GLEANER_TPU_ENDPOINT: url,
    GLEANER_COMPUTE_ENDPOINT: url,
    GLEANER_BILLING_ENDPOINT: url,
    GLEANER_STS_ENDPOINT: url,
    GLEANER_SECRETS_ENDPOINT: url,
    GLEANER_LOCAL_TOKEN: token,
    GLEANER_WORKER_SERVICE_ACCOUNT: worker,
    GLEANER_CONTROL_SERVICE_ACCOUNT: control,
    GLEANER_API_SERVICE_ACCOUNT: api,
    GLEANER_TICKET_KEY: ticket_key,
    GLEANER_OIDC_CERTS: `${url}/oauth2/v1/certs`,
    // The ping and the exchange of tokens use the metadata server; METADATA_SERVER_DETECTION keeps Google's clients away from it.
    GCE_METADATA_HOST: metadata_host,
  };
}
