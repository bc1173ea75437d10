import {randomUUID} from 'node:crypto';
import {existsSync} from 'node:fs';
import {mkdir, readdir, readFile, writeFile} from 'node:fs/promises';
import {dirname, join, relative, resolve} from 'node:path';
import {z} from 'zod';
import {type Cloud, openCloud} from '../../client/cloud/cloud.ts';
import {running} from '../../client/connection/connect.ts';
import {tinyModel} from '../../client/connection/tiny-model.ts';
import {openFilter} from '../../client/events/filter.ts';
import {readerOf} from '../../client/events/read.ts';
import type {Moment} from '../../client/events/timeline.ts';
import {CliError} from '../../client/text/errors.ts';
import {setTypedCloud} from '../../client/text/hints.ts';
import {print, quoted} from '../../client/text/output.ts';
import {type RunState, readRun} from '../../client/views/run-state.ts';
import {checkPort} from '../../emulator/http/http.ts';
import {lockFolder} from '../../emulator/state/database.ts';
import {parseJson} from '../../shared/contracts/messages/schemas.ts';
import type {RunSpecInput} from '../../shared/contracts/spec/spec.ts';
import {LEAST_SHARD_GB} from '../../shared/contracts/spec/spec-forms.ts';
import {nextRunName, outputPrefix, paths} from '../../shared/domain/names.ts';
import {isOpen, type Run} from '../../shared/domain/records/run.ts';
import type {Store} from '../../shared/ports/ports.ts';
import {CLOCK} from '../deploy/until-ready.ts';
import {openBrowser, serveBeside} from '../local/dashboard.ts';
import {deployLocally, type LocalDeployment} from '../local/local-deployment.ts';
import {type Report, verdictLines, verifyRun} from '../run/verify.ts';
import {type Limit, waitFor} from '../run/wait.ts';
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
const STUCK_S = 300;

/** Drops streams, preempts a worker during the extraction, and verifies the shards. Exit 0 only for a verified run. */
export async function demo(options: DemoOptions): Promise<void> {
  const screen = new DemoScreen(options.json ? process.stderr : process.stdout, options.json === true);
  const started = Date.now();
  const dir = await checkFolder(options.dir);
  const {input = []} = options;
  if (options.model !== undefined) await readConfig(options.model);
  await checkInput(input, options.streams, dir);
  await checkPort(options.port);
  const interrupted = stopSignal().then(() => 'interrupted' as const);
  const {port, workers} = options;
  // The results of an earlier demo stay until the checks of options, files, disk and Python have passed.
  const fresh = options.dir === undefined;
  const {begin, say} = screen;
  if (fresh && existsSync(dir))
    say(`This demo replaces the earlier one in ${DEFAULT_DIR}: with --dir FOLDER that stays`);
  const deployment = await deployLocally({dir, port, workers, fresh, stopped: interrupted, begin, say});
  setTypedCloud({dir: deployment.cloud.dir});
  const connection = running(deployment.cloud);
  const cloud = openCloud(connection);
  const {store} = cloud;
  const page = await serveBeside(cloud, port);
  const ended = Promise.withResolvers<boolean>();
  try {
    let run = 'demo';
    while (await store.get(paths.run(run))) run = nextRunName(run);
    const {act: preempt, done} = openPreemptions(deployment, options);
    // The Python that verifies starts beside the run, because its start takes longer than its work. It reads when the run has ended.
    let verified: Promise<Report> | undefined;
    const act = (state: RunState) => {
      if (!verified && state.streams.some(({total_shards}) => total_shards > 0)) {
        verified = verifyRun(connection, run, undefined, {told: ended.promise});
        // Without this handler a failure before the end of the run ends the process.
        verified.catch(() => {});
      }
      if (!isOpen(state.run)) ended.resolve(true);
      return preempt(state);
    };
    screen.say(`Its pages: ${page.url}`, 'dim');
    if (options.open) openBrowser(page.url);
    const streams = await dropStreams(cloud, dir, run, options);
    const outcome = await Promise.race([
      watch(store, run, screen, {records: streams, since: new Date(started).toISOString(), act}),
      interrupted,
      deployment.full,
    ]);
    if (outcome === 'interrupted') {
      process.stderr.write('Interrupted: every TPU and the local cloud are stopped\n');
      process.exitCode = 130;
      return;
    }
    screen.begin('Reading the streams and every shard again');
    const report = await (verified ?? verifyRun(connection, run));
    screen.end();
    report.ok &&= outcome.status === 'completed';
    const seconds = Math.round((Date.now() - started) / 1000);
    printResult(deployment, outcome, report, done(), seconds, options);
    process.exitCode = report.ok ? 0 : 1;
    if (options.keep || options.open) {
      screen.say(
        `The local cloud stays up at ${deployment.cloud.url}, and its pages at ${page.url}, until Ctrl-C`,
      );
      await interrupted;
    }
  } finally {
    ended.resolve(false);
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

async function readConfig(model: string): Promise<ModelConfig> {
  const file = join(model, 'config.json');
  if (!existsSync(file)) throw new CliError(`--model ${model} is not a model folder: it has no config.json`);
  return parseJson(modelConfig, await readFile(file, 'utf8'), file);
}

/** Makes the streams and the spec of the run, and uploads them. Returns the number of samples of each stream. */
async function dropStreams(
  cloud: Cloud,
  dir: string,
  run: string,
  {input = [], streams, model}: DemoOptions,
): Promise<number[]> {
  const {bucket} = cloud.connection;
  const folder = join(dir, 'input', run);
  await mkdir(dirname(folder), {recursive: true});
  const written = await writeStreams(folder, input, streams);
  const config = await readConfig(model ?? join(dir, 'buckets', bucket, 'models/tiny'));
  const spec: RunSpecInput = {
    model: model === undefined ? tinyModel(bucket) : resolve(model),
    // Shorter rows give the sample tasks more steps, and the first shard sooner.
    max_seq_length: input.length > 0 ? 4096 : 2048,
    shard_size_gb: shardSize(config, written.tokens),
  };
  await writeFile(join(folder, 'run.json'), JSON.stringify(spec, null, 2));
  await uploadStreams(cloud, folder, run);
  return written.streams.map(({samples}) => samples);
}

/** Shard size in GB for four to twelve shards a stream, because a shard may be half full. */
function shardSize({num_hidden_layers, hidden_size}: ModelConfig, tokens: number): number {
  return Math.max(LEAST_SHARD_GB, (tokens * num_hidden_layers * hidden_size * 2) / FULL_SHARDS / 1e9);
}

const size = z.number().int().positive().default(1);
const modelConfig = z.object({num_hidden_layers: size, hidden_size: size});
type ModelConfig = z.infer<typeof modelConfig>;

/** `records`: lines of each stream. Events before `since` belong to earlier demos. */
type Watched = {
  records: readonly number[];
  since: string;
  act: (state: RunState) => Promise<Moment[]>;
};

/** Shows the run, and lets `act` disturb it and add events, until the run has ended and every TPU is gone. */
async function watch(
  store: Store,
  run: string,
  screen: DemoScreen,
  {records, since, act}: Watched,
): Promise<Run> {
  const reader = readerOf(store, await openFilter(store));
  const show = async (state: RunState, own: Moment[], now_ms?: number) => {
    const news = (await reader.next()).filter(({at}) => at >= since);
    screen.show(state, [...news, ...own], records, now_ms);
  };
  const limit: Limit = {limit_s: STUCK_S, look_s: 0.1, cure: 'read the logs in the subfolder logs/'};
  return waitFor({clock: CLOCK}, `progress of run ${run}`, limit, async () => {
    const state = await readRun(store, run);
    if (!state.run) return undefined;
    await show(state, await act(state));
    limit.facts = JSON.stringify([state.run, state.streams, state.tpus.map(({phase}) => phase)]);
    if (isOpen(state.run) || state.tpus.length > 0) return undefined;
    await show(state, [], Number.POSITIVE_INFINITY);
    screen.end();
    return state.run;
  });
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
 * Preempts the worker of a stream without notice when the stream has a shard, and where more preemptions than streams are asked for
 * also at three shards and later. `act` looks at a state of the run; `done` counts the preemptions.
 */
function openPreemptions({cloud}: LocalDeployment, {preempt, streams}: DemoOptions) {
  const epochs = new Map<string, number[]>();
  let done = 0;
  const act = async (state: RunState): Promise<Moment[]> => {
    const moments: Moment[] = [];
    const tell = (text: string) => moments.push({id: randomUUID(), at: new Date().toISOString(), text});
    for (const {stream, lease, total_shards} of state.streams) {
      const earlier = epochs.get(stream) ?? [];
      const isDue = earlier.length < preempt / streams && total_shards >= 1 + 2 * earlier.length;
      if (!lease || !isDue || done >= preempt || earlier.includes(lease.epoch)) continue;
      epochs.set(stream, [...earlier, lease.epoch]);
      tell(`preempted ${lease.worker} without notice, in the middle of stream ${stream}`);
      await cloud.fault('preempt', lease.worker).then(
        () => done++,
        (error: Error) => tell(`a preemption failed: ${error.message}`),
      );
    }
    return moments;
  };
  return {act, done: () => done};
}
