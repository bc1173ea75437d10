/** Rights of TPUs, tried with a token of their account, and with tokens as worker-api gives them for a lease. */

import {type GoogleApi, GoogleError, openGoogle} from '../../client/google/api.ts';
import {CliError} from '../../client/text/errors.ts';
import {type ObjectRights, rightsOfHost, rightsOfStream} from '../../shared/domain/requests/object-rights.ts';
import {isForbidden, isNotFound, isPreconditionFailed} from '../../shared/google/errors.ts';
import {narrow} from '../../shared/google/object-tokens.ts';

/** Folders that the account of TPUs reads, as `folders` of terraform/buckets.tf has them. */
export const FOLDERS = ['bundles/', 'environments/'];
const SCOPE = 'https://www.googleapis.com/auth/cloud-platform';
const LIFE_S = 300;

export async function tokenOf(api: GoogleApi, account: string, project: string): Promise<string> {
  const address = `iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/${account}:generateAccessToken`;
  try {
    const {accessToken} = await api.call('POST', address, {scope: [SCOPE], lifetime: `${LIFE_S}s`});
    return String(accessToken);
  } catch (error) {
    if (!(error instanceof GoogleError)) throw error;
    const enable = `gcloud services enable iamcredentials.googleapis.com --project=${project}`;
    const grant = `gcloud iam service-accounts add-iam-policy-binding ${account} --member=user:YOUR_ADDRESS --role=roles/iam.serviceAccountTokenCreator --project=${project}`;
    throw new CliError(`${error.message}; run \`${enable}\` and \`${grant}\`, and wait some minutes`, {
      cause: error,
    });
  }
}

type Place = {bucket: string; logs_bucket: string; id: string};

type Tokens = {worker: string; worker_api: string};

/** Tries each right that a TPU has, and each that it must not have. */
export async function tryRights(
  {worker, worker_api}: Tokens,
  place: Place,
  endpoint = 'https://storage.googleapis.com',
): Promise<string> {
  const {id} = place;
  const source = {access_token: worker_api, expiry_date: Date.now() + LIFE_S * 1000};
  const service = endpoint.includes('googleapis.com') ? undefined : endpoint;
  const narrowed = async (rights: ObjectRights[]) =>
    openObjectsAs((await narrow(source, rights, service)).access_token, place, endpoint);
  const own = openObjectsAs(worker, place, endpoint);
  const ofLease = await narrowed(rightsOfStream({run: `smoke-${id}`, stream: '000'}, ['tiny'], place));
  const ofHost = await narrowed(rightsOfHost({name: `smoke-${id}`, incarnation: 1}, place));
  const name = `activations/smoke-${id}/tpu_0/right`;
  const manifest = `activations/smoke-${id}/manifest.json`;
  for (const folder of FOLDERS) await own.list(folder);
  await mustFail('create an object by its own account', own.create(`${name}-of-its-own`), isForbidden);
  await mustFail('list streams by its own account', own.list('datasets/'), isForbidden);
  // An object of an earlier attempt is fine.
  await ofLease.create(name).catch(failsUnless('create an object once', isPreconditionFailed, isForbidden));
  await ofLease.list(`activations/smoke-${id}/tpu_0/`);
  await mustFail('replace an object', ofLease.create(name), isPreconditionFailed, isForbidden);
  await mustFail('delete an object', ofLease.delete(name), isForbidden);
  await mustFail('read a missing stream', ofLease.read(`datasets/smoke-${id}/stream_000.jsonl`), isNotFound);
  await mustFail('read a stream of another run', ofLease.read('datasets/x/stream_000.jsonl'), isForbidden);
  await mustFail('list another run', ofLease.list('activations/'), isForbidden);
  await mustFail('plant a manifest', ofLease.create(manifest), isForbidden);
  for (let time = 0; time < 2; time++) await ofHost.log(`logs/smoke-${id}/1.log`);
  await mustFail('write the log of another TPU', ofHost.log('logs/x/1.log'), isForbidden);
  return 'by itself a TPU reads what it boots; by a token of a lease it creates once, lists and reads its own work; it overwrites its own log';
}

function openObjectsAs(token: string, {bucket, logs_bucket, id}: Place, endpoint: string) {
  const google = openGoogle({endpoint, token});
  const at = `storage.googleapis.com/storage/v1/b/${bucket}/o`;
  const write = (to: string, name: string, more = {}) => {
    const query = new URLSearchParams({uploadType: 'media', name, ...more});
    return google.call('POST', `storage.googleapis.com/upload/storage/v1/b/${to}/o?${query}`, {smoke: id});
  };
  return {
    create: (name: string) => write(bucket, name, {ifGenerationMatch: '0'}),
    log: (name: string) => write(logs_bucket, name),
    list: (prefix: string) => google.call('GET', `${at}?${new URLSearchParams({maxResults: '1', prefix})}`),
    read: (name: string) => google.call('GET', `${at}/${encodeURIComponent(name)}`),
    delete: (name: string) => google.call('DELETE', `${at}/${encodeURIComponent(name)}`),
  };
}

type Kind = (error: unknown) => boolean;

function failsUnless(what: string, ...kinds: Kind[]) {
  return (error: unknown) => {
    if (!kinds.some(is => is(error)))
      throw new CliError(`Failed to ${what}: ${(error as Error).message}`, {cause: error});
  };
}
async function mustFail(what: string, call: Promise<unknown>, ...kinds: Kind[]): Promise<void> {
  const cure = 'compare the roles with docs/inside/security.md#accounts-and-roles';
  try {
    await call;
  } catch (error) {
    if (kinds.some(is => is(error))) return;
    throw new CliError(`A TPU failed to ${what} in another way: ${(error as Error).message}; ${cure}`, {
      cause: error,
    });
  }
  throw new CliError(`A TPU may ${what}: ${cure}`);
}
