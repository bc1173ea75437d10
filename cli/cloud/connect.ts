import {randomBytes} from 'node:crypto';
import {closeSync, existsSync, openSync} from 'node:fs';
import {join, resolve} from 'node:path';
import type {CloudAddress} from '../../emulator/cloud.ts';
import {proofOf, readToken} from '../../emulator/http/guard.ts';
import {openStore} from '../../shared/compose.ts';
import {isSameText} from '../../shared/contracts/constant-time.ts';
import {DEFAULT_DEPLOYMENT} from '../../shared/domain/deployment.ts';
import {SIGN_IN} from '../../shared/google/error-advice.ts';
import {withAdvice} from '../../shared/google/errors.ts';
import type {Store} from '../../shared/ports.ts';
import {addressIn, DEFAULT_DIR, DEFAULT_PORT, pointClientsAt} from '../local/address.ts';
import {tinyModel} from '../local/tiny-model.ts';
import {CliError} from '../terminal/errors.ts';
import {type Connection, notRunning} from './connection.ts';
import {googleConnection} from './google-connection.ts';

/** Options of a command on a cloud. `port` and `dir` name a local cloud. */
export type CloudOptions = {
  port?: number | undefined;
  dir?: string | undefined;
  json?: boolean | undefined;
  dry_run?: boolean | undefined;
  yes?: boolean | undefined;
};

/** Running local cloud, with its token where the cloud belongs to this user. */
export type LocalInfo = CloudAddress & {token: string | undefined};

const DEFAULT_URL = `http://127.0.0.1:${DEFAULT_PORT}`;

/**
 * Finds the cloud of a command. In this order: the local cloud on `--port`, the local cloud in the folder `--dir` (running or
 * not), the local cloud of `gleaner local env`, the local cloud on the default port, the Google Cloud project in the
 * environment or in `gleaner.tfvars.json`, and the files of the default folder.
 */
export async function connect(options: CloudOptions): Promise<Connection> {
  const connection = await findCloud(options);
  if (connection.is_google) await requireCredentials();
  return connection;
}

/** Finds the cloud without a look at the credentials. */
export async function findCloud({port, dir}: CloudOptions): Promise<Connection> {
  if (port) return running(await localInfo(`http://127.0.0.1:${port}`), '--port');
  if (dir !== undefined) return openFolder(dir, '--dir');
  const url = process.env.GLEANER_LOCAL_URL;
  if (url) return running(await localInfo(url), 'GLEANER_LOCAL_URL');
  const info = await tryLocalInfo(DEFAULT_URL);
  if (info) return running(info, `the local cloud on the default port ${DEFAULT_PORT}`);
  const google = googleConnection(process.env);
  if (google) return google;
  return openFolder(DEFAULT_DIR, `the local cloud in the default folder ${DEFAULT_DIR}`);
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

/** Running local cloud that `--port`, `--dir` or `gleaner local env` names, otherwise the local cloud on the default port. */
export async function runningCloud({port, dir}: CloudOptions): Promise<LocalInfo> {
  if (port) return localInfo(`http://127.0.0.1:${port}`);
  if (dir === undefined) return localInfo(process.env.GLEANER_LOCAL_URL ?? DEFAULT_URL);
  const live = await runningIn(resolve(dir));
  if (!live) throw notRunning(dir);
  return live;
}

async function runningIn(dir: string): Promise<LocalInfo | undefined> {
  const address = await addressIn(dir);
  const live = address === undefined ? undefined : await tryLocalInfo(address);
  return live?.dir === dir ? live : undefined;
}

async function localInfo(url: string): Promise<LocalInfo> {
  const info = await tryLocalInfo(url);
  if (!info)
    throw new CliError(
      `There is no local cloud at ${url}: start one with \`gleaner local up\`, or name its --port`,
    );
  return info;
}

/** Reads `GET /_local` of a local cloud; undefined without an answer. */
async function tryLocalInfo(url: string): Promise<LocalInfo | undefined> {
  const nonce = randomBytes(16).toString('hex');
  let info: CloudAddress & {proof?: string};
  try {
    const response = await fetch(`${url}/_local?nonce=${nonce}`, {signal: AbortSignal.timeout(5000)});
    if (!response.ok) return undefined;
    info = (await response.json()) as typeof info;
  } catch {
    return undefined;
  }
  const token = readToken(info.dir);
  if (token !== undefined && !isSameText(info.proof ?? '', proofOf(token, nonce, new URL(url).port)))
    throw new CliError(
      `The server at ${url} does not know the token in ${info.dir}, so it is not the local cloud of that folder: end that server, or name another --port`,
    );
  return {...info, token};
}

/** Connection to a running local cloud. Closing the connection leaves the cloud running. */
export function running(info: LocalInfo, origin = 'the local cloud'): Connection {
  pointClientsAt(info);
  return {
    is_google: false,
    storage_endpoint: info.url,
    pubsub_endpoint: info.pubsub_endpoint,
    token: info.token,
    folder: info.dir,
    default_model: tinyModel(info.bucket),
    project: info.project,
    deployment: DEFAULT_DEPLOYMENT,
    bucket: info.bucket,
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
  "There is no document of this stopped cloud, because Google's Firestore emulator had them: start the cloud with `gleaner local up --emulators`";

/** Store of a connection. Only the user who started a local cloud can read its store. */
export function storeOf(connection: Connection): Store {
  try {
    if (connection.store === '') throw new Error(NO_STORE);
    return openStore(connection);
  } catch (error) {
    // The storage of a stopped cloud would keep this process alive.
    void connection.close();
    const isOfAnother = isDenied(connection.store.replace('sqlite:', ''));
    const hint = isOfAnother ? '; it belongs to another user: run this command as that user' : '';
    throw new CliError(`${(error as Error).message}${hint}`, {cause: error});
  }
}

function isDenied(file: string): boolean {
  try {
    closeSync(openSync(file, 'r+'));
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EACCES';
  }
}

/** Connects to the cloud that runs in a folder, otherwise serves the storage of the folder during this command. */
async function openFolder(folder: string, origin: string): Promise<Connection> {
  const dir = resolve(folder);
  if (!existsSync(join(dir, 'cloud.db')))
    throw new CliError(
      `There is no local cloud in ${dir}: start one with \`gleaner local up\`, or name its --dir or --port`,
    );
  const live = await runningIn(dir);
  if (live) return running(live, origin);
  const {startLocalCloud} = await import('../../emulator/cloud.ts');
  const {emulatorFolder} = await import('../../emulator/google/process.ts');
  const cloud = await startLocalCloud({dir, port: 0, storage_only: true});
  const hasStore = existsSync(cloud.store_file) || !existsSync(emulatorFolder(dir));
  const connection = running(cloud, origin);
  const store = hasStore ? connection.store : '';
  return {...connection, store, pubsub_endpoint: null, close: () => cloud.close()};
}
