import {existsSync} from 'node:fs';
import {mkdir, readdir, readFile, writeFile} from 'node:fs/promises';
import {dirname, join, relative, resolve} from 'node:path';
import {setTimeout as sleep} from 'node:timers/promises';
import {z} from 'zod';
import {type Cloud, openCloud} from '../../client/cloud/cloud.ts';
import {running} from '../../client/connection/connect.ts';
import {openFilter} from '../../client/events/filter.ts';
import {readerOf} from '../../client/events/read.ts';
import {CliError} from '../../client/text/errors.ts';
import {setTypedPort} from '../../client/text/hints.ts';
import {print, quoted} from '../../client/text/output.ts';
import {listRuns} from '../../client/views/overview.ts';
import {readRun} from '../../client/views/run-state.ts';
import {checkPort} from '../../emulator/http/http.ts';
import {lockFolder} from '../../emulator/state/database.ts';
import {parseJson} from '../../shared/contracts/messages/schemas.ts';
import type {RunSpecInput} from '../../shared/contracts/spec/spec.ts';
import {LEAST_SHARD_GB} from '../../shared/contracts/spec/spec-forms.ts';
import {streamRecords} from '../../shared/control-plane/documents/documents.ts';
import {outputPrefix, parseOutputObject} from '../../shared/domain/names.ts';
import type {Run} from '../../shared/domain/records/run.ts';
import type {Store} from '../../shared/ports/ports.ts';
import {openBrowser, serveBeside} from '../local/dashboard.ts';
import {deployLocally, type LocalDeployment} from '../local/local-deployment.ts';
import {type Report, verdictLines, verifyRun} from '../run/verify.ts';
import {uploadStreams} from '../streams/upload-streams.ts';
import {stopSignal} from '../terminal/stop-signal.ts';
import {DemoScreen} from './demo-screen.ts';
import {checkInput, writeStreams} from './input.ts';

type DemoOptions = {
  input?: string[];
  model?: string;
  streams: number;
  workers: number;
  preempt: number;
  dir?: string;
  port: number;
  keep?: boolean;
  open?: boolean;
  json?: boolean;
};

const DEFAULT_DIR = '.gleaner/demo';
/** Shards of a stream when every shard is full. */
const FULL_SHARDS = 6;
/** Time without a stored shard or a change of status after which the demo fails. */
const STUCK_MS = 300_000;

/** Drops streams, preempts a worker during the extraction, and verifies the shards. Exit 0 only for a verified run. */
export async function demo(options: DemoOptions): Promise<void> {
  const screen = new DemoScreen(options.json ? process.stderr : process.stdout, options.json === true);
  const started = Date.now();
  const dir = await checkFolder(options.dir);
  const {input = []} = options;
  await checkModel(options.model);
  await checkInput(input, options.streams, dir);
  await checkPort(options.port);
  const interrupted = stopSignal().then(() => 'interrupted' as const);
  const {port, workers} = options;
  // The results of an earlier demo stay until the checks of options, files, disk and Python have passed.
  const fresh = options.dir === undefined;
  const {begin, say} = screen;
  const deployment = await deployLocally({dir, port, workers, fresh, stopped: interrupted, begin, say});
  setTypedPort(deployment.cloud.port);
  const connection = running(deployment.cloud);
  const cloud = openCloud(connection);
  const {store} = cloud;
  const page = await serveBeside(cloud, port);
  try {
    const run = await freeRunId(store);
    const preemptions = injectPreemptions(deployment, store, run, options, screen.tell);
    screen.say(`Its pages: ${page.url}`, 'dim');
    if (options.open) openBrowser(page.url);
    const streams = await dropStreams(deployment, cloud, run, options);
    const outcome = await Promise.race([
      watch(store, run, screen, {records: streams, since: new Date(started).toISOString()}),
      interrupted,
      deployment.full,
    ]);
    if (outcome === 'interrupted') {
      process.stderr.write('Interrupted: every TPU and the local cloud are stopped\n');
      process.exitCode = 130;
      return;
    }
    screen.begin('Reading the streams and every shard again');
    const report = await verifyRun(connection, run);
    screen.end();
    report.ok &&= outcome.status === 'completed';
    const seconds = Math.round((Date.now() - started) / 1000);
    printResult(deployment, outcome, report, preemptions(), seconds, options);
    process.exitCode = report.ok ? 0 : 1;
    if (options.keep || options.open) {
      screen.say(
        `The local cloud stays up at ${deployment.cloud.url}, and its pages at ${page.url}, until Ctrl-C`,
      );
      await interrupted;
    }
  } finally {
    await page.close();
    await store.close();
    await deployment.close();
  }
}

/** Checks the folder of the demo. Each demo empties the default folder; a folder of --dir keeps its runs. */
async function checkFolder(named: string | undefined): Promise<string> {
  const dir = resolve(named ?? DEFAULT_DIR);
  if (!existsSync(dir)) return dir;
  const names = await readdir(dir).catch((error: Error) => {
    throw new CliError(`Failed to read ${dir}: ${error.message}; choose a folder with --dir`, {cause: error});
  });
  if (names.length > 0 && !names.includes('cloud.db'))
    throw new CliError(`${dir} holds something else: give --dir an empty folder, or one of an earlier demo`);
  lockFolder(dir).release();
  return dir;
}

async function checkModel(model: string | undefined): Promise<void> {
  if (model === undefined) return;
  const file = join(model, 'config.json');
  if (!existsSync(file)) throw new CliError(`--model ${model} is not a model folder: it has no config.json`);
  parseConfig(await readFile(file, 'utf8'), file);
}

async function freeRunId(store: Store): Promise<string> {
  const taken = new Set((await listRuns(store)).map(run => run.run));
  for (let n = 1; ; n++) {
    const id = n === 1 ? 'demo' : `demo-${n}`;
    if (!taken.has(id)) return id;
  }
}

/** Makes the streams and the spec of the run, and uploads them. Returns the number of samples of each stream. */
async function dropStreams(
  deployment: LocalDeployment,
  cloud: Cloud,
  run: string,
  {input = [], streams, model}: DemoOptions,
): Promise<number[]> {
  const folder = join(deployment.cloud.dir, 'input', run);
  await mkdir(dirname(folder), {recursive: true});
  const written = await writeStreams(folder, input, streams);
  const spec: RunSpecInput = {
    model: model === undefined ? deployment.model : resolve(model),
    max_seq_length: 4096,
    shard_size_gb: await shardSize(deployment, written.tokens, model),
  };
  await writeFile(join(folder, 'run.json'), JSON.stringify(spec, null, 2));
  await uploadStreams(cloud, folder, run);
  return written.streams.map(({samples}) => samples);
}

/** Shard size in GB for four to twelve shards a stream, because a shard may be half full. */
async function shardSize(
  {objects}: LocalDeployment,
  tokens: number,
  model: string | undefined,
): Promise<number> {
  const name = model ? join(model, 'config.json') : 'models/tiny/config.json';
  const bytes = model ? await readFile(name) : await objects.read(name, {max_bytes: 1 << 20});
  const {num_hidden_layers, hidden_size} = parseConfig(Buffer.from(bytes ?? '{}').toString('utf8'), name);
  return Math.max(LEAST_SHARD_GB, (tokens * num_hidden_layers * hidden_size * 2) / FULL_SHARDS / 1e9);
}

const size = z.number().int().positive().default(1);
const modelConfig = z.object({num_hidden_layers: size, hidden_size: size});

function parseConfig(text: string, name: string): z.infer<typeof modelConfig> {
  return parseJson(modelConfig, text, name);
}

/** Shows the run until the run has ended and every TPU is gone. */
async function watch(
  store: Store,
  run: string,
  screen: DemoScreen,
  {records, since}: {records: readonly number[]; since: string},
): Promise<Run> {
  let [last, changed_ms] = ['', Date.now()];
  const reader = readerOf(store, await openFilter(store));
  const news = async () => (await reader.next()).filter(({at}) => at >= since);
  for (;;) {
    const state = await readRun(store, run);
    if (state.run) {
      screen.show(state, await news(), records);
      const isEnded = !['active', 'paused'].includes(state.run.status);
      if (isEnded && state.tpus.length === 0) {
        screen.show(state, await news(), records, Number.POSITIVE_INFINITY);
        screen.end();
        return state.run;
      }
      const now = JSON.stringify([state.run, state.streams, state.tpus.map(({phase}) => phase)]);
      if (now !== last) changed_ms = Date.now();
      last = now;
    }
    if (Date.now() - changed_ms > STUCK_MS)
      throw new CliError(
        `the run made no progress for ${STUCK_MS / 1000} s: see the logs in the subfolder logs/`,
      );
    await sleep(250);
  }
}

function printResult(
  deployment: LocalDeployment,
  run: Run,
  report: Report,
  preemptions: number,
  seconds: number,
  options: DemoOptions,
): void {
  const {dir, bucket} = deployment.cloud;
  const shards = join(dir, 'buckets', bucket, 'activations', run.run);
  const result = {
    ...report,
    verified: report.ok,
    status: run.status,
    reason: run.reason,
    preemptions,
    seconds,
    shards_folder: shards,
  };
  const here = relative(process.cwd(), dir) || '.';
  const first = relative(process.cwd(), join(dir, 'buckets', bucket, outputPrefix(run.run, '000')));
  print<'demo'>(options.json, result, [
    '',
    ...verdictLines(report),
    '',
    `${preemptionsText(preemptions, options.preempt, report.ok)}, ${seconds} s; every TPU is gone.`,
    `The shards: ${relative(process.cwd(), shards)}`,
    `Try next:   npx gleaner verify ${run.run} --dir ${quoted(here)}`,
    `            ls ${quoted(first)}`,
    ...(run.reason ? [`The run is ${run.status}: ${run.reason}`] : []),
  ]);
}

function preemptionsText(done: number, asked: number, recovered: boolean): string {
  const fewer = done < asked ? ` (${asked} wanted; the streams ended first)` : '';
  const all = done > 0 && recovered ? ', all work recovered' : '';
  return `${done} preemption${done === 1 ? '' : 's'} injected${fewer}${all}`;
}

/**
 * Preempts the worker of a stream without notice when the stream stores its second shard, and where more preemptions than
 * streams are asked for also its fourth and later ones. Returns a function that counts the preemptions.
 */
function injectPreemptions(
  deployment: LocalDeployment,
  store: Store,
  run: string,
  options: {preempt: number; streams: number},
  tell: (text: string) => void,
): () => number {
  let done = 0;
  const times = new Map<string, number>();
  const preempt = async (stream: string): Promise<void> => {
    const found = await streamRecords.get(store, run, stream);
    const tpu = found?.lease?.worker ?? '';
    tell(`preempted ${tpu} without notice, in the middle of stream ${stream}`);
    await deployment.cloud.fault('preempt', tpu);
  };
  deployment.cloud.onObject(object => {
    const shard = parseOutputObject(object.name);
    if (shard?.run !== run || done >= options.preempt || object.metadata.final === 'true') return;
    const earlier = times.get(shard.stream) ?? 0;
    if (earlier >= options.preempt / options.streams || shard.shard < 2 + 2 * earlier) return;
    times.set(shard.stream, earlier + 1);
    done++;
    preempt(shard.stream).catch((error: Error) => {
      done--;
      times.set(shard.stream, earlier);
      tell(`a preemption failed: ${error.message}`);
    });
  });
  return () => done;
}
