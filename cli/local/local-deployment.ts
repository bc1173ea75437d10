import {randomBytes} from 'node:crypto';
import {createWriteStream, mkdirSync, type WriteStream} from 'node:fs';
import {readFile, rm} from 'node:fs/promises';
import {dirname, join, resolve} from 'node:path';
import {pointClientsAt} from '../../client/connection/address.ts';
import {makeTinyModel, provideTinyModel, tinyModel} from '../../client/connection/tiny-model.ts';
import {cacheFolder, jaxCache, LOCK, uvCache, workerPython} from '../../client/python/python.ts';
import {CliError, Interrupted} from '../../client/text/errors.ts';
import {
  type CloudAddress,
  type Deployment,
  type LocalCloud,
  type LocalCloudOptions,
  type LogLine,
  startLocalCloud,
} from '../../emulator/cloud.ts';
import {requireEmulators} from '../../emulator/google/process.ts';
import {accountsOf} from '../../emulator/http/identity.ts';
import {privateFile, readPrivate} from '../../emulator/http/private-file.ts';
import {secretFile} from '../../emulator/secrets.ts';
import {lockFolder} from '../../emulator/state/database.ts';
import {LOCAL_HOSTS} from '../../emulator/tpu/catalog.ts';
import {timingDefaults} from '../../shared/contracts/settings/environment.ts';
import {receiverProblem} from '../../shared/contracts/settings/webhook.ts';
import {openObjects} from '../../shared/google/objects.ts';
import {buildArtifacts} from '../build/artifacts.ts';
import {buildEnvironment} from '../build/environment/environment.ts';
import {packWorker} from '../python/bundle.ts';
import {requireOpenFiles, requireSpace, watchSpace} from './space.ts';

export const ZONE = 'us-central1-a';

/** Gleaner on a local cloud: functions deployed, worker bundle and tiny model in the bucket. */
export type LocalDeployment = {
  cloud: LocalCloud;
  /** Rejects when the folder is full. */
  full: Promise<never>;
  close(): Promise<void>;
};

export type LocalOptions = {
  dir: string;
  port: number;
  workers: number;
  /** Deployments on the cloud, each with the bundle and the model in its bucket; by default `gleaner` alone. */
  deployments?: NonNullable<LocalCloudOptions['deployments']>;
  /** Variables of the functions of a deployment, on top of all others. */
  function_env?: (where: CloudAddress, deployment: Deployment) => Record<string, string>;
  /** HOST=projects/P/secrets/S: the host of private repositories, and the secret with a token for it. */
  git_token_secret?: string | undefined;
  /** NAME=projects/P/secrets/S with commas between them: the secrets that jobs may name. */
  job_secrets?: string | undefined;
  /** URL or FORMAT=URL of the receiver of notifications. */
  notify?: string | undefined;
  /** Takes over files that no cloud of this user wrote on this machine. */
  adopt?: boolean | undefined;
  /** Runs the functions of `gleaner build` and boots from an environment in the bucket, as Google Cloud does. */
  built?: boolean;
  /** Runs Google's emulators of Firestore and Pub/Sub, and the functions of `gleaner build`. */
  emulators?: boolean;
  /** Empties `dir`, but only after the checks of disk space and Python environment. */
  fresh?: boolean;
  /** Resolves at Ctrl-C, which a terminal also sends to the child processes of the start. */
  stopped: Promise<unknown>;
  /** Called at the start of each long step. */
  begin: (step: string) => void;
  say: (line: string) => void;
};

/** Starts a local cloud in `dir` and deploys Gleaner on it. Earlier runs in `dir` continue. */
export async function deployLocally(options: LocalOptions): Promise<LocalDeployment> {
  let isStopped = false;
  void options.stopped.then(() => {
    isStopped = true;
  });
  const interrupted = (cause?: unknown) =>
    new Interrupted('Interrupted before the local cloud was up', {cause});
  const deployment = await start(options).catch((error: unknown) => {
    throw isStopped ? interrupted(error) : error;
  });
  // A Python process that has just started can lose the signal, and then the start goes on to its end.
  if (!isStopped) return deployment;
  await deployment.close();
  throw interrupted();
}

async function start({
  begin,
  say,
  workers,
  built,
  fresh,
  emulators,
  function_env,
  git_token_secret,
  job_secrets,
  notify,
  ...options
}: Omit<LocalOptions, 'stopped'>): Promise<LocalDeployment> {
  const dir = resolve(options.dir);
  if (emulators) requireEmulators();
  // Only the user can read the files of a local cloud, also in a folder that other users can enter.
  process.umask(0o077);
  requireOpenFiles();
  requireSpace(dir, options.adopt);
  lockFolder(dir, options.adopt).release();
  const secrets = [
    ...(git_token_secret ? [localSecret(dir, '--git-token-secret', git_token_secret)] : []),
    ...(job_secrets?.split(',').map(each => localSecret(dir, '--job-secrets', each)) ?? []),
  ];
  const receiver = notify === undefined ? undefined : receiverOf(notify);
  begin('Preparing the Python environment of the workers (the first time downloads it)');
  await workerPython(say);
  const isBuilt = built || emulators;
  if (isBuilt) begin(`Building the functions${built ? ' and the worker environment' : ''}`);
  const functions = isBuilt ? {module: (await buildArtifacts()).module} : {};
  const environment = built ? await buildEnvironment({say, lock: LOCK}) : undefined;
  const worker = await packWorker(environment);
  if (fresh) {
    lockFolder(dir).release();
    await rm(dir, {recursive: true, force: true});
  }
  // An empty folder needs the model, which is made beside the start of the cloud.
  const made = fresh ? makeTinyModel(tinyModelFolder(worker), begin) : undefined;
  made?.catch(() => {});
  const cloud = await startLocalCloud({
    dir,
    port: options.port,
    adopt: options.adopt,
    ...(options.deployments ? {deployments: options.deployments} : {}),
    google_emulators: emulators ?? false,
    jobs_collection: process.env.GLEANER_JOBS_COLLECTION || undefined,
    function_host: {
      ...functions,
      env: (where, deployment) => ({
        ...functionEnvironment(deployment.bucket, workers, worker.sha256),
        ...(git_token_secret === undefined ? {} : {GLEANER_GIT_TOKEN_SECRET: git_token_secret}),
        ...(job_secrets === undefined ? {} : {GLEANER_JOB_SECRETS: job_secrets}),
        ...(receiver && {...receiver, GLEANER_NOTIFY_KEY: notifyKey(dir)}),
        ...function_env?.(where, deployment),
      }),
    },
    secret_readers: Object.fromEntries(
      secrets.map(each => [each, [accountsOf('gleaner-local', 'gleaner')['worker-api']]]),
    ),
    vm_env: sharedCaches(),
    log: logTo(join(dir, 'logs', 'cloud.log'), say),
  });
  try {
    await made;
    await fillBuckets(cloud, worker, environment, begin);
    const space = watchSpace(dir);
    const close = async () => {
      space.end();
      await cloud.close();
    };
    return {cloud, full: space.full, close};
  } catch (error) {
    await cloud.close();
    throw error;
  }
}

/** Variables of the VMs, which share the caches of this user. */
const sharedCaches = () => ({
  GLEANER_PLATFORM: 'cpu',
  GLEANER_ENVIRONMENTS: cacheFolder(),
  UV_CACHE_DIR: uvCache(),
  JAX_COMPILATION_CACHE_DIR: jaxCache(),
});

/** Puts the worker bundle, its environment and the tiny model into the bucket of each deployment. */
async function fillBuckets(
  cloud: LocalCloud,
  worker: Awaited<ReturnType<typeof packWorker>>,
  environment: Awaited<ReturnType<typeof buildEnvironment>> | undefined,
  begin: (step: string) => void,
): Promise<void> {
  const {project, url, token} = cloud;
  const gzip = {content_type: 'application/gzip'};
  pointClientsAt(cloud);
  for (const {bucket} of cloud.deployments) {
    const objects = openObjects({project, bucket, endpoint: url, token});
    await objects.create(`bundles/${worker.sha256}.tar.gz`, worker.bytes, gzip);
    if (environment) {
      const bytes = await readFile(environment.archive);
      await objects.create(`environments/${environment.sha256}.tar.gz`, bytes, gzip);
    }
    await provideTinyModel(objects, tinyModelFolder(worker), begin);
  }
}

const tinyModelFolder = ({sha256}: {sha256: string}) =>
  join(cacheFolder(), 'tiny-model', sha256.slice(0, 16));

/** The secret that NAME=SECRET names. Fails where the folder of the cloud has no private file with its first version. */
function localSecret(dir: string, option: string, setting: string): string {
  const [, secret, name = ''] =
    /^[a-z0-9][a-z0-9._-]{0,252}(?::[0-9]{1,5})?=(projects\/gleaner-local\/secrets\/([A-Za-z0-9_-]{1,255}))(\/versions\/\w+)?$/.exec(
      setting,
    ) ?? [];
  if (secret === undefined)
    throw new CliError(
      `${option} names secrets of the local cloud, as ${option === '--job-secrets' ? 'NAME' : 'HOST'}=projects/gleaner-local/secrets/SECRET`,
    );
  const file = secretFile(dir, name, '1');
  if (readPrivate(file) === undefined)
    throw new CliError(`There is no secret in ${file}: write the secret into this file, with the mode 600`);
  return secret;
}

/** The variables of a receiver of notifications, `URL` or `slack=URL`. */
function receiverOf(setting: string): Record<string, string> {
  const [, format = 'json', url = ''] = /^(?:(json|slack)=)?(.*)$/s.exec(setting) ?? [];
  const problem = receiverProblem(url, true);
  if (problem) throw new CliError(`--notify needs ${problem}`);
  return {GLEANER_NOTIFY: format, GLEANER_NOTIFY_URL: url};
}

/** File of the key that signs the notifications of a local cloud. */
export function notifyKeyFile(dir: string): string {
  return join(dir, 'notify-key');
}

function notifyKey(dir: string): string {
  const make = () => `whsec_${randomBytes(32).toString('base64')}`;
  return privateFile(notifyKeyFile(dir), /^whsec_[A-Za-z0-9+/]{43}=$/, make);
}

/** Log file of the cloud and the functions. The consoles of the VMs are in the same folder. */
function logTo(file: string, say: (line: string) => void): (line: LogLine) => void {
  let out: WriteStream | undefined;
  return ({at, source, text}) => {
    // The cloud creates and locks its folder before its first line.
    if (!out) {
      mkdirSync(dirname(file), {recursive: true});
      out = createWriteStream(file, {flags: 'a'});
      out.once('error', error => say(`Failed to write the log ${file}: ${error.message}; the log ends here`));
    }
    if (!out.errored) out.write(`${at} ${source}: ${text}\n`);
  };
}

/**
 * The timings that differ from production, because one person watches a local cloud: a demo and the death of a VM take seconds. Every other
 * timing is that of production. A variable of the process changes any of them.
 */
const WATCHED = {
  GLEANER_HEARTBEAT_S: '1',
  GLEANER_POLL_S: '2',
  GLEANER_LEASE_S: '15',
  GLEANER_SILENT_S: '30',
  // A stream whose event is lost is found within half a minute: ticks compare the bucket up to 30 s early.
  GLEANER_AUDIT_S: '60',
  // A VM boots in seconds, so a life of some seconds pays for its boot.
  GLEANER_SHORT_LIFE_S: '1',
};

function functionEnvironment(bucket: string, workers: number, bundle: string): Record<string, string> {
  const given = Object.keys(timingDefaults()).flatMap(name => {
    const value = process.env[name];
    return value ? [[name, value] as const] : [];
  });
  return {
    GLEANER_BUNDLE: bundle,
    GLEANER_DEFAULT_MODEL: tinyModel(bucket),
    GLEANER_ZONES: ZONE,
    GLEANER_WORKERS_PER_ZONE: String(workers),
    GLEANER_MAX_HOSTS: String(LOCAL_HOSTS),
    GLEANER_MAX_WORKERS: process.env.GLEANER_MAX_WORKERS ?? String(Math.max(100, workers)),
    // Each listed provider costs every tick a call.
    GLEANER_PROVIDERS: process.env.GLEANER_PROVIDERS ?? 'tpu-api',
    ...WATCHED,
    ...Object.fromEntries(given),
  };
}
