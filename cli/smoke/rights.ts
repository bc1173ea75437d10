/** Rights of the workers' account, tried with a token of this account. */
import {isForbidden, isNotFound, isPreconditionFailed} from '../../shared/google/errors.ts';
import {type GoogleApi, GoogleError, openGoogle} from '../google/api.ts';
import {CliError} from '../terminal/errors.ts';

/** Folders that a TPU lists, as `folders` of terraform/buckets.tf has them. */
export const FOLDERS = [
  ...['activations/', 'bundles/', 'code/', 'datasets/', 'environments/', 'execs/', 'jobs/', 'models/'],
  'partials/',
];
const SCOPE = 'https://www.googleapis.com/auth/cloud-platform';

export async function tokenOf(api: GoogleApi, account: string, project: string): Promise<string> {
  const address = `iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/${account}:generateAccessToken`;
  try {
    const {accessToken} = await api.call('POST', address, {scope: [SCOPE], lifetime: '300s'});
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

/** Tries each right that a TPU has, and each that it must not have. */
export async function tryRights(
  token: string,
  {bucket, logs_bucket, id}: Place,
  endpoint = 'https://storage.googleapis.com',
): Promise<string> {
  const worker = openGoogle({endpoint, token});
  const object = (name: string, of = bucket) =>
    `storage.googleapis.com/storage/v1/b/${of}/o/${encodeURIComponent(name)}`;
  const create = (name: string, of: string, once: boolean) => {
    const query = new URLSearchParams({uploadType: 'media', name, ...(once ? {ifGenerationMatch: '0'} : {})});
    return worker.call('POST', `storage.googleapis.com/upload/storage/v1/b/${of}/o?${query}`, {smoke: id});
  };
  const name = `activations/smoke-${id}/tpu_0/right`;
  await create(name, bucket, true).catch(
    refusedUnless('create an object once', isPreconditionFailed, isForbidden),
  );
  await mustFail(
    'replace an object of activations/',
    create(name, bucket, true),
    isPreconditionFailed,
    isForbidden,
  );
  await mustFail(
    'read a missing object',
    worker.call('GET', object(`datasets/smoke-${id}/absent`)),
    isNotFound,
  );
  for (const folder of FOLDERS)
    await worker.call(
      'GET',
      `storage.googleapis.com/storage/v1/b/${bucket}/o?maxResults=1&prefix=${encodeURIComponent(folder)}`,
    );
  for (let time = 0; time < 2; time++) await create(`logs/smoke-${id}/1.log`, logs_bucket, false);
  await mustFail('delete an object of activations/', worker.call('DELETE', object(name)), isForbidden);
  return `creates once, lists ${FOLDERS.length} folders, overwrites logs; replaces and deletes nothing`;
}

type Kind = (error: unknown) => boolean;

/** An object of an earlier attempt is fine. */
function refusedUnless(what: string, ...kinds: Kind[]) {
  return (error: unknown) => {
    if (!kinds.some(is => is(error)))
      throw new CliError(`Failed to ${what}: ${(error as Error).message}`, {cause: error});
  };
}

async function mustFail(what: string, call: Promise<unknown>, ...kinds: Kind[]): Promise<void> {
  const cure = 'compare the roles with docs/security.md#accounts-and-roles';
  try {
    await call;
  } catch (error) {
    if (kinds.some(is => is(error))) return;
    throw new CliError(
      `The account of TPUs failed to ${what} in another way: ${(error as Error).message}; ${cure}`,
      {cause: error},
    );
  }
  throw new CliError(`The account of TPUs may ${what}: ${cure}`);
}
