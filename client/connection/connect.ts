import {randomBytes} from 'node:crypto';
import {once} from 'node:events';
import {existsSync} from 'node:fs';
import type {IncomingMessage} from 'node:http';
import {join} from 'node:path';
import {text} from 'node:stream/consumers';
import type {CloudAddress} from '../../emulator/cloud.ts';
import {proofOf, readToken} from '../../emulator/http/guard.ts';
import {addressIn, ownAddresses} from '../../emulator/state/own-folder.ts';
import {isSameText} from '../../shared/contracts/constant-time.ts';
import {DEFAULT_DEPLOYMENT} from '../../shared/domain/deployment.ts';
import {withAdvice} from '../../shared/google/errors.ts';
import {SIGN_IN} from '../../shared/google/known-errors.ts';
import {openStore} from '../../shared/open-store.ts';
import type {Store} from '../../shared/ports/ports.ts';
import {CliError} from '../text/errors.ts';
import {complain, nameCloud} from '../text/output.ts';
import {pointClientsAt} from './address.ts';
import {chooseCloud} from './choose.ts';
import {cloudText, homeText} from './cloud-name.ts';
import {type Connection, stoppedText} from './connection.ts';
import {googleConnection} from './google-connection.ts';
import {tinyModel} from './tiny-model.ts';

/** Options of a command on a cloud. `port` and `dir` name a local cloud. `changes`: the command changes the cloud. */
export type CloudOptions = {
  cloud?: string | undefined;
  port?: number | undefined;
  dir?: string | undefined;
  json?: boolean | undefined;
  dry_run?: boolean | undefined;
  yes?: boolean | undefined;
  changes?: boolean | undefined;
};

export type LocalInfo = CloudAddress & {token: string};

/** Finds the cloud of a command: the local cloud on `--port`, or the one that `chooseCloud` finds. Names a cloud that the command changes. */
export async function connect(options: CloudOptions): Promise<Connection> {
  const connection = await findCloud(options);
  if (options.changes) nameCloud(connection.name);
  if (connection.is_google) await requireCredentials();
  return connection;
}

/** Finds the cloud without a look at the credentials. Throws `CliError` for a stopped local cloud that the command would change. */
export async function findCloud({port, changes, ...named}: CloudOptions): Promise<Connection> {
  if (port) return running(await localInfo(port), '--port');
  const choice = await chooseCloud(named);
  if (choice.kind === 'project') return googleConnection(choice);
  const live = await runningIn(choice.dir);
  if (live) return running(live, choice.origin);
  if (changes && hasFiles(choice.dir)) throw new CliError(stoppedText(choice.dir));
  return openStopped(choice.dir, choice.origin);
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

/** Running local cloud of the command. Throws `CliError` for a stopped one and for a project. */
export async function runningCloud(options: CloudOptions): Promise<LocalInfo> {
  const info = await findRunning(options);
  if (options.changes) nameCloud(cloudText({kind: 'local', dir: info.dir}));
  return info;
}

async function findRunning({port, ...named}: CloudOptions): Promise<LocalInfo> {
  if (port) return localInfo(port);
  const choice = await chooseCloud(named);
  if (choice.kind === 'project')
    throw new CliError(
      `This command needs a local cloud, and ${choice.origin} names ${cloudText(choice)}: name the folder of a local cloud with --dir`,
    );
  const live = await runningIn(choice.dir);
  if (!live) throw new CliError(stoppedText(choice.dir));
  return live;
}

async function localInfo(port: number): Promise<LocalInfo> {
  const info = await runningAt(`http://127.0.0.1:${port}`);
  if (!info)
    throw new CliError(
      `No local cloud of yours runs on port ${port}: start one with \`gleaner local up\`, or name its --port or --dir`,
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
    const {proof} = JSON.parse(await textAt(`${address.url}/_local?nonce=${nonce}`)) as {proof?: unknown};
    const expected = proofOf(token, nonce, new URL(address.url).port);
    return isSameText(String(proof), expected) ? {...address, token} : undefined;
  } catch {
    return undefined;
  }
}

/** Every command asks so. A first `fetch`, or an import of node:http, loads a client that takes longer than the question. */
async function textAt(url: string): Promise<string> {
  const {get} = process.getBuiltinModule('node:http');
  const request = get(url, {signal: AbortSignal.timeout(5000), agent: false});
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  return text(response);
}

export async function isRunningIn(dir: string): Promise<boolean> {
  return (await runningIn(dir)) !== undefined;
}

/** Connection to a running local cloud. Closing the connection leaves the cloud running. */
export function running(info: LocalInfo, origin = 'the local cloud'): Connection {
  pointClientsAt(info);
  const {url, pubsub_endpoint, token, dir, project, bucket} = info;
  return {
    ...{is_google: false, name: cloudText({kind: 'local', dir}), folder: dir},
    ...{storage_endpoint: url, pubsub_endpoint, token, project, bucket},
    default_model: tinyModel(bucket),
    deployment: DEFAULT_DEPLOYMENT,
    store: storeOfLocal(info),
    jobs: process.env.GLEANER_JOBS_COLLECTION || 'jobs',
    ...{settings: undefined, origin},
    origins: process.env.GLEANER_JOBS_COLLECTION ? {jobs: 'GLEANER_JOBS_COLLECTION'} : {jobs: 'default'},
    stopped: async () => ((await isRunningIn(dir)) ? undefined : stoppedText(dir)),
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

async function openStopped(dir: string, origin: string): Promise<Connection> {
  if (!hasFiles(dir))
    throw new CliError(
      `There is no local cloud in ${homeText(dir)}: start one with \`gleaner local up\`, or name its --dir or --port`,
    );
  complain(stoppedText(dir));
  const {startLocalCloud} = await import('../../emulator/cloud.ts');
  const {emulatorFolder} = await import('../../emulator/google/process.ts');
  const cloud = await startLocalCloud({dir, port: 0, storage_only: true});
  const hasStore = existsSync(cloud.store_file) || !existsSync(emulatorFolder(dir));
  const connection = running(cloud, origin);
  const store = hasStore ? connection.store : '';
  return {...connection, store, pubsub_endpoint: null, close: () => cloud.close()};
}
