import {createWriteStream, existsSync, mkdirSync, type WriteStream} from 'node:fs';
import {mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile} from 'node:fs/promises';
import {dirname, join, resolve} from 'node:path';
import {type LocalCloud, type LogLine, startLocalCloud, type Where} from '../emulator/cloud.ts';
import {lockFolder} from '../emulator/database.ts';
import {openObjects} from '../shared/google/objects.ts';
import type {Objects} from '../shared/ports.ts';
import {packWorker} from './bundle.ts';
import {CliError, Interrupted} from './errors.ts';
import {CACHE, JAX_CACHE, runWorkerModule, UV_CACHE, workerPython} from './python.ts';
import {requireSpace, watchSpace} from './space.ts';

const ADDRESS_FILE = 'address.json';
const MODEL_PREFIX = 'models/tiny/';
export const ZONE = 'us-central1-a';

export type Home = {
  cloud: LocalCloud;
  objects: Objects;
  model: string;
  /** Rejects when the folder is full. */
  full: Promise<never>;
  close(): Promise<void>;
};

/**
 * Gleaner at home on a local cloud: storage and the rest of Google's services on 127.0.0.1, the functions deployed, the
 * worker bundle and a tiny model in the bucket. What `dir` holds from before goes on where it was.
 */
export async function startHome(options: {
  dir: string;
  port: number;
  workers: number;
  /** Empties `dir` first, once the disk has space and the Python environment is there. */
  fresh?: boolean;
  /** Resolves at Ctrl-C, which the processes that a start waits for hear too. */
  stopped: Promise<unknown>;
  /** Begins a step that may take long. */
  begin: (step: string) => void;
  say: (line: string) => void;
}): Promise<Home> {
  let isStopped = false;
  void options.stopped.then(() => {
    isStopped = true;
  });
  try {
    return await start(options);
  } catch (error) {
    throw isStopped ? new Interrupted('Interrupted before the local cloud was up', {cause: error}) : error;
  }
}

type Start = Omit<Parameters<typeof startHome>[0], 'stopped'>;

async function start({begin, say, workers, fresh, ...options}: Start): Promise<Home> {
  const dir = resolve(options.dir);
  // The files of a local cloud are its user's alone, also in a folder that others can enter.
  process.umask(0o077);
  requireSpace(dir);
  begin('Preparing the Python environment of the workers (the first time downloads it)');
  await workerPython(say);
  const worker = await packWorker();
  if (fresh) await empty(dir);
  const cloud = await startLocalCloud({
    dir,
    port: options.port,
    tick_interval_ms: 500,
    function_host: {env: ({bucket}) => functionEnvironment(bucket, workers, worker.sha256)},
    vm_env: {
      GLEANER_PLATFORM: 'cpu',
      GLEANER_ENVIRONMENTS: CACHE,
      UV_CACHE_DIR: UV_CACHE,
      JAX_COMPILATION_CACHE_DIR: JAX_CACHE,
    },
    log: logTo(join(dir, 'logs', 'cloud.log'), say),
  });
  try {
    const {project, bucket, url} = cloud;
    pointClientsAt(cloud);
    const objects = openObjects({project, bucket, endpoint: url, token: cloud.token});
    await objects.create(`bundles/${worker.sha256}.tar.gz`, worker.bytes, {content_type: 'application/gzip'});
    await provideTinyModel(objects, join(CACHE, 'tiny-model', worker.sha256.slice(0, 16)), begin);
    const {token} = cloud;
    await rm(join(dir, ADDRESS_FILE), {force: true});
    await writeFile(join(dir, ADDRESS_FILE), JSON.stringify({url, token}), {mode: 0o600});
    const space = watchSpace(dir);
    const close = async () => {
      space.end();
      await rm(join(dir, ADDRESS_FILE), {force: true});
      await cloud.close();
    };
    return {cloud, objects, model: tinyModel(bucket), full: space.full, close};
  } catch (error) {
    await cloud.close();
    throw error;
  }
}

/** Fails where another local cloud has started in the folder by now. */
async function empty(dir: string): Promise<void> {
  lockFolder(dir).release();
  await rm(dir, {recursive: true, force: true});
}

/** Google's clients prefer these variables to their options, and the shell may hold those of another local cloud. */
export function pointClientsAt({url, pubsub_endpoint}: Where): void {
  Object.assign(process.env, {
    STORAGE_EMULATOR_HOST: url,
    PUBSUB_EMULATOR_HOST: pubsub_endpoint,
    METADATA_SERVER_DETECTION: 'none',
  });
}

/** Where the cloud that works in `dir` says it is, if one left word there. */
export async function addressIn(dir: string): Promise<string | undefined> {
  try {
    return JSON.parse(await readFile(join(dir, ADDRESS_FILE), 'utf8')).url;
  } catch {
    return undefined;
  }
}

/** What the cloud and the functions say, line by line; the VMs' consoles lie beside it. */
function logTo(file: string, say: (line: string) => void): (line: LogLine) => void {
  let out: WriteStream | undefined;
  return ({at, source, text}) => {
    // The cloud has made and locked its folder before it says its first line.
    if (!out) {
      mkdirSync(dirname(file), {recursive: true});
      out = createWriteStream(file, {flags: 'a'});
      out.once('error', error => say(`Failed to write ${file}, which ends here: ${error.message}`));
    }
    if (!out.errored) out.write(`${at} ${source}: ${text}\n`);
  };
}

export function tinyModel(bucket: string): string {
  return `gs://${bucket}/${MODEL_PREFIX.slice(0, -1)}`;
}

/** The times of a cloud whose machines boot in seconds and whose tick comes twice a second. */
function functionEnvironment(bucket: string, workers: number, bundle: string): Record<string, string> {
  return {
    GLEANER_BUNDLE: bundle,
    GLEANER_DEFAULT_MODEL: tinyModel(bucket),
    GLEANER_ZONES: ZONE,
    GLEANER_WORKERS_PER_ZONE: String(workers),
    GLEANER_MAX_WORKERS: String(Math.max(100, workers)),
    GLEANER_HEARTBEAT_S: '1',
    GLEANER_POLL_S: '2',
    GLEANER_LEASE_S: '15',
    GLEANER_SILENT_S: '30',
    GLEANER_CREATE_S: '60',
    GLEANER_BOOT_S: '60',
    GLEANER_SETUP_S: '900',
    GLEANER_DRAIN_S: '60',
    GLEANER_REPAIR_S: '60',
    GLEANER_ASK_AGAIN_S: '5',
    GLEANER_CREATE_WAIT_S: '5',
    GLEANER_QUOTA_WAIT_S: '5',
    GLEANER_SHORT_LIFE_S: '1',
    GLEANER_CREATES_PER_HOUR: '1000',
    GLEANER_AUDIT_S: '3',
  };
}

/** Uploads the tiny random model that runs without a `model` of their own use, once for each bucket. */
async function provideTinyModel(
  objects: Objects,
  folder: string,
  begin: (step: string) => void,
): Promise<void> {
  if (await objects.head(`${MODEL_PREFIX}config.json`)) return;
  if (!existsSync(folder)) await makeTinyModel(folder, begin);
  const names = (await readdir(folder)).sort(
    (a, b) => Number(a === 'config.json') - Number(b === 'config.json'),
  );
  for (const name of names)
    await objects.create(`${MODEL_PREFIX}${name}`, await readFile(join(folder, name)));
}

/** Makes the model once for each version of the worker's code; the same code and seed make the same bytes. */
async function makeTinyModel(folder: string, begin: (step: string) => void): Promise<void> {
  begin('Making a tiny random model');
  await mkdir(dirname(folder), {recursive: true});
  const unfinished = await mkdtemp(`${folder}.`);
  try {
    const made = await runWorkerModule(
      ['gleaner_worker.model.tiny', unfinished, '--seed', '0'],
      {},
      () => {},
    );
    if (made.code !== 0)
      throw new CliError(
        `Failed to make the tiny model (exit ${made.code}): ${made.stderr.slice(-3).join(' | ')}`,
      );
    await rename(unfinished, folder);
  } catch (error) {
    // Another local cloud that started now may have made the same.
    if (!existsSync(folder)) throw error;
  } finally {
    await rm(unfinished, {recursive: true, force: true});
  }
}
