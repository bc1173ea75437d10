import {randomBytes} from 'node:crypto';
import {existsSync} from 'node:fs';
import {join, resolve} from 'node:path';
import type {CloudAddress} from '../../emulator/cloud.ts';
import {proofOf, readToken} from '../../emulator/http/guard.ts';
import {addressIn, ownAddresses} from '../../emulator/state/own-folder.ts';
import {openStore} from '../../shared/compose.ts';
import {isSameText} from '../../shared/contracts/constant-time.ts';
import {DEFAULT_DEPLOYMENT} from '../../shared/domain/deployment.ts';
import {SIGN_IN} from '../../shared/google/error-advice.ts';
import {withAdvice} from '../../shared/google/errors.ts';
import type {Store} from '../../shared/ports/ports.ts';
import {CliError} from '../text/errors.ts';
import {DEFAULT_DIR, DEFAULT_PORT, pointClientsAt} from './address.ts';
import {type Connection, notRunning} from './connection.ts';
import {googleConnection} from './google-connection.ts';
import {tinyModel} from './tiny-model.ts';

/** Options of a command on a cloud. `port` and `dir` name a local cloud. */
export type CloudOptions = {
  port?: number | undefined;
  dir?: string | undefined;
  json?: boolean | undefined;
  dry_run?: boolean | undefined;
  yes?: boolean | undefined;
};

type LocalInfo = CloudAddress & {token: string};

const DEFAULT_URL = `http://127.0.0.1:${DEFAULT_PORT}`;

/**
 * Finds the cloud of a command. In this order: the local cloud on `--port`, the local cloud in the folder `--dir` (running or
 * not), the local cloud of `gleaner local env`, the running local cloud in the default folder, the Google Cloud project in the
 * environment or in `gleaner.tfvars.json`, the files of the default folder, and the local cloud on the default port.
 */
export async function connect(options: CloudOptions): Promise<Connection> {
  const connection = await findCloud(options);
  if (connection.is_google) await requireCredentials();
  return connection;
}

/** Finds the cloud without a look at the credentials. */
export async function findCloud({port, dir}: CloudOptions): Promise<Connection> {
  if (port) return running(await localInfo(`http://127.0.0.1:${port}`), '--port');
  if (dir !== undefined) {
    const live = await runningIn(resolve(dir));
    return live ? running(live, '--dir') : openStopped(dir, '--dir');
  }
  const url = process.env.GLEANER_LOCAL_URL;
  if (url) return running(await localInfo(url), 'GLEANER_LOCAL_URL');
  const origin = `the local cloud in the default folder ${DEFAULT_DIR}`;
  const own = await runningIn(resolve(DEFAULT_DIR));
  if (own) return running(own, origin);
  const google = googleConnection(process.env);
  if (google) return google;
  const info = hasFiles(DEFAULT_DIR) ? undefined : await runningAt(DEFAULT_URL);
  if (info) return running(info, `the local cloud on the default port ${DEFAULT_PORT}`);
  return openStopped(DEFAULT_DIR, origin);
}

/**
 * Throws `CliError` without valid credentials of Google. The clients would throw later, some of them outside of every promise.
 * Emulators of Google ask for none.
 */
export async function requireCredentials(): Promise<void> {
  if (process.env.FIRESTORE_EMULATOR_HOST) return;
  const {GoogleAuth} = (await import('google-auth-library')).default;
  const auth = new GoogleAuth({scopes: ['https://www.googleapis.com/auth/cloud-platform']});
  try {
    await auth.getAccessToken();
  } catch (cause) {
    throw new CliError(`Failed to sign in to Google Cloud: ${withAdvice(cause, SIGN_IN)}`, {cause});
  }
}

/**
 * Running local cloud that `--port`, `--dir` or `gleaner local env` names, otherwise the local cloud in the default folder or on the
 * default port.
 */
export async function runningCloud({port, dir}: CloudOptions): Promise<LocalInfo> {
  if (port) return localInfo(`http://127.0.0.1:${port}`);
  if (dir === undefined) {
    const url = process.env.GLEANER_LOCAL_URL;
    return (url ? undefined : await runningIn(resolve(DEFAULT_DIR))) ?? localInfo(url || DEFAULT_URL);
  }
  const live = await runningIn(resolve(dir));
  if (!live) throw notRunning(dir);
  return live;
}

async function localInfo(url: string): Promise<LocalInfo> {
  const info = await runningAt(url);
  if (!info)
    throw new CliError(
      `No local cloud of yours runs at ${url}: start one with \`gleaner local up\`, or name its --port or --dir`,
    );
  return info;
}

async function runningAt(url: string): Promise<LocalInfo | undefined> {
  for (const address of ownAddresses()) {
    const live = address.url === url ? await runningIn(address.dir) : undefined;
    if (live) return live;
  }
  return undefined;
}

/**
 * The local cloud that runs in a folder of this user. The folder says where; the server there must prove that it knows the token of
 * the folder, and gets nothing else before. Another program may have the port of a cloud that a kill ended.
 */
async function runningIn(dir: string): Promise<LocalInfo | undefined> {
  const address = addressIn(dir);
  const token = readToken(dir);
  if (address === undefined || token === undefined) return undefined;
  const nonce = randomBytes(16).toString('hex');
  try {
    const signal = AbortSignal.timeout(5000);
    const response = await fetch(`${address.url}/_local?nonce=${nonce}`, {signal, redirect: 'error'});
    const {proof} = (await response.json()) as {proof?: unknown};
    const expected = proofOf(token, nonce, new URL(address.url).port);
    return isSameText(String(proof), expected) ? {...address, token} : undefined;
  } catch {
    return undefined;
  }
}

/** Connection to a running local cloud. Closing the connection leaves the cloud running. */
export function running(info: LocalInfo, origin = 'the local cloud'): Connection {
  pointClientsAt(info);
  const {url, pubsub_endpoint, token, dir, project, bucket} = info;
  return {
    ...{is_google: false, storage_endpoint: url, pubsub_endpoint, token, folder: dir, project, bucket},
    default_model: tinyModel(bucket),
    deployment: DEFAULT_DEPLOYMENT,
    store: storeOfLocal(info),
    jobs: process.env.GLEANER_JOBS_COLLECTION || 'jobs',
    origin,
    origins: process.env.GLEANER_JOBS_COLLECTION ? {jobs: 'GLEANER_JOBS_COLLECTION'} : {jobs: 'default'},
    close: async () => {},
  };
}

function storeOfLocal({firestore_endpoint, store_file}: CloudAddress): string {
  return firestore_endpoint === undefined ? `sqlite:${store_file}` : `firestore:${DEFAULT_DEPLOYMENT}`;
}

const NO_STORE =
  "Google's Firestore emulator had the documents of this stopped cloud: start the cloud with `gleaner local up --emulators`";

export function storeOf(connection: Connection): Store {
  try {
    if (connection.store === '') throw new Error(NO_STORE);
    return openStore(connection);
  } catch (error) {
    // The storage of a stopped cloud would keep this process alive.
    void connection.close();
    throw new CliError((error as Error).message, {cause: error});
  }
}

function hasFiles(dir: string): boolean {
  return existsSync(join(dir, 'cloud.db'));
}

async function openStopped(folder: string, origin: string): Promise<Connection> {
  const dir = resolve(folder);
  if (!hasFiles(dir))
    throw new CliError(
      `There is no local cloud in ${dir}: start one with \`gleaner local up\`, or name its --dir or --port`,
    );
  const {startLocalCloud} = await import('../../emulator/cloud.ts');
  const {emulatorFolder} = await import('../../emulator/google/process.ts');
  const cloud = await startLocalCloud({dir, port: 0, storage_only: true});
  const hasStore = existsSync(cloud.store_file) || !existsSync(emulatorFolder(dir));
  const connection = running(cloud, origin);
  const store = hasStore ? connection.store : '';
  return {...connection, store, pubsub_endpoint: null, close: () => cloud.close()};
}
