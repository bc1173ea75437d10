import {existsSync, statSync} from 'node:fs';
import {mkdir, readFile} from 'node:fs/promises';
import {join, resolve} from 'node:path';
import {DEFAULT_MODEL} from '../shared/contracts/config.ts';
import {Rejected} from '../shared/contracts/errors.ts';
import {MAX_MANIFEST_BYTES, manifest} from '../shared/contracts/manifest.ts';
import {parseJson} from '../shared/contracts/schemas.ts';
import {
  completeSpec,
  MAX_SPEC_BYTES,
  parseRunSpec,
  type RunSpec,
  type RunSpecInput,
} from '../shared/contracts/spec.ts';
import {poolRecords, runRecords, workerRecords} from '../shared/control-plane/state/documents.ts';
import {readPrices} from '../shared/control-plane/state/prices.ts';
import {usdPerHourFor, usdPerMillionTokens} from '../shared/domain/billing/cost.ts';
import {
  ASSUMED,
  assumedRate,
  type Earlier,
  hoursOf,
  measuredRate,
  NOTHING_MORE,
  type Numbers,
  type Rate,
  rateLike,
  type Sampled,
  type Span,
  storedBytes,
  times,
} from '../shared/domain/billing/estimate.ts';
import {
  chipsOf,
  isListed,
  LIST_PRICES,
  LISTED_ON,
  meanUsdPerHour,
  type Prices,
  UNVERIFIED,
  usdPerHour,
} from '../shared/domain/billing/prices.ts';
import {datasetPrefix, isRunId, manifestObject, paths, specObject} from '../shared/domain/names.ts';
import {openObjects} from '../shared/google/objects.ts';
import type {Store} from '../shared/ports.ts';
import {type Connection, connect, storeOf, type Where} from './connect.ts';
import {CliError} from './errors.ts';
import {dollarText, print, warn} from './output.ts';
import {CACHE, runWorkerModule} from './python.ts';

type Options = Where & {
  json?: boolean;
  spec?: string;
  model?: string;
  accelerator: string;
  zone: string;
  workers: number;
  sampleBytes: number;
  tokensPerSecond?: number;
  like?: string;
};

/** What is to be estimated, and what the worker's module needs to find it. */
type Target = {what: string; args: string[]; input: RunSpecInput};

/** Prints what a run would be: nothing is created, and nothing is read but a sample of the streams and the model's small files. */
export async function estimate(target: string, options: Options): Promise<void> {
  const connection = await connectIfThere(target, options);
  const store = connection && storeOf(connection);
  try {
    const found = await findTarget(target, options, connection);
    const default_model = connection?.default_model ?? DEFAULT_MODEL;
    const {spec} = completeSpec(options.model ? {...found.input, model: options.model} : found.input, {
      default_model,
    });
    const {like, accelerator} = options;
    const prices = store ? await readPrices({store, log: warn}, {accelerator}) : LIST_PRICES;
    const earlier = like === undefined ? undefined : await runLike(like, store, accelerator, prices);
    const args = [...found.args, '--sample-bytes', String(options.sampleBytes)];
    const sampled = await sample(spec, args, connection);
    const report = reportOn(found.what, spec, sampled, options, prices, earlier);
    print(options.json, report, describe(report));
  } catch (error) {
    if (error instanceof Rejected) throw new CliError(error.message);
    throw error;
  } finally {
    await store?.close();
    await connection?.close();
  }
}

/** A file of this machine needs no cloud; what is in a bucket, and an earlier run, do. */
async function connectIfThere(target: string, options: Options): Promise<Connection | undefined> {
  try {
    return await connect(options);
  } catch (error) {
    const isNamed = options.port !== undefined || options.dir !== undefined || options.like !== undefined;
    if (!(error instanceof CliError) || isNamed) throw error;
    if (existsSync(target) || target.startsWith('gs://')) return undefined;
    throw isRunId(target) ? error : new CliError(`there is no file ${target}`);
  }
}

async function findTarget(
  target: string,
  options: Options,
  connection: Connection | undefined,
): Promise<Target> {
  const input = options.spec === undefined ? undefined : await readSpecFile(options.spec);
  if (statSync(target, {throwIfNoEntry: false})?.isDirectory())
    throw new CliError(`${target} is a folder: name a JSONL file`);
  if (existsSync(target)) return {what: target, args: ['--file', resolve(target)], input: input ?? {}};
  const [, bucket, path] = /^gs:\/\/([^/]+)\/(.+)$/.exec(target) ?? [];
  if (bucket && path) return {what: target, args: ['--bucket', bucket, '--prefix', path], input: input ?? {}};
  if (!isRunId(target) || !connection)
    throw new CliError(`there is no file ${target}, and no run is called so`);
  const args = ['--bucket', connection.bucket, '--prefix', datasetPrefix(target)];
  return {what: `run ${target}`, args, input: input ?? (await specOfRun(connection, target))};
}

async function readSpecFile(path: string): Promise<RunSpecInput> {
  const text = await readFile(path, 'utf8').catch((error: Error) => {
    throw new CliError(`Failed to read the spec ${path}: ${error.message}`);
  });
  return parseRunSpec(text, path);
}

/** As it is frozen, or as it would be. */
async function specOfRun(connection: Connection, run: string): Promise<RunSpecInput> {
  const {project, bucket, storage_endpoint} = connection;
  const objects = openObjects({project, bucket, endpoint: storage_endpoint});
  const read = async (name: string, max_bytes: number) => {
    const bytes = await objects.read(name, {max_bytes});
    return bytes && Buffer.from(bytes).toString('utf8');
  };
  const frozen = await read(manifestObject(run), MAX_MANIFEST_BYTES);
  if (frozen !== undefined) return parseJson(manifest, frozen, manifestObject(run)).spec;
  const written = await read(specObject(run), MAX_SPEC_BYTES);
  return written === undefined ? {} : parseRunSpec(written, specObject(run));
}

async function sample(spec: RunSpec, args: string[], connection: Connection | undefined): Promise<Sampled> {
  const home = join(CACHE, 'models');
  await mkdir(home, {recursive: true});
  const endpoint = connection?.storage_endpoint;
  // A model in a bucket needs a client too, whatever the streams are.
  const bucket = args.includes('--bucket') || !connection ? [] : ['--bucket', connection.bucket];
  const {code, stdout, stderr} = await runWorkerModule(
    ['gleaner_worker.estimate', '--spec', JSON.stringify(spec), '--home', home, ...args, ...bucket],
    endpoint ? {STORAGE_EMULATOR_HOST: endpoint} : {},
    () => {},
  );
  const last = stdout.at(-1);
  if (code !== 0 || !last)
    throw new CliError(
      stderr.at(-1) ?? `Failed to estimate: the sampler ended with ${code} and said nothing`,
    );
  return JSON.parse(last) as Sampled;
}

/** What an earlier run did: its cost a million tokens, and what its TPUs cost an hour. Of another type it says nothing. */
async function runLike(
  name: string,
  store: Store | undefined,
  accelerator: string,
  prices: Prices,
): Promise<Earlier> {
  const run = store && (await runRecords.get(store, name));
  if (!run)
    throw new CliError(`there is no run "${name}" to compare with: \`gleaner status\` lists the runs`);
  const usd_per_million_tokens = usdPerMillionTokens(run);
  if (usd_per_million_tokens === null || usd_per_million_tokens === 0)
    throw new CliError(
      `run "${name}" says nothing of costs: it has stored no token, or its TPUs cost nothing`,
    );
  const path = paths.pool(run.pool);
  const written = await store.get(path);
  if (!written)
    throw new CliError(
      `no document says which TPUs run "${name}" has: ask again when the first of them has ended`,
    );
  const pool = poolRecords.parse(path, written);
  if (pool.accelerator !== accelerator)
    throw new CliError(
      `run "${name}" had ${pool.accelerator}, which says nothing of ${accelerator}: say --accelerator ${pool.accelerator}`,
    );
  const workers = workerRecords.parseAll(await store.query('workers'), () => {});
  // Workers that have worked for other runs since say nothing of this one.
  const usd_per_hour = usdPerHourFor(name, workers) ?? meanUsdPerHour(prices, pool);
  if (!usd_per_hour)
    throw new CliError(`nobody knows what the TPUs of run "${name}" cost an hour: set prices/chips`);
  return {run: name, usd_per_million_tokens, usd_per_hour};
}

export type Report = ReturnType<typeof reportOn>;

function reportOn(
  what: string,
  spec: RunSpec,
  sampled: Sampled,
  options: Options,
  prices: Prices,
  earlier: Earlier | undefined,
) {
  const {accelerator, zone, workers} = options;
  const {format, dtype, compute_dtype} = spec;
  const numbers = {format, dtype, compute_dtype} as Numbers;
  const machine = {accelerator, workers};
  const rate = rateOf(sampled, numbers, options, earlier);
  const hours = rate && hoursOf(sampled, rate, machine, earlier ? NOTHING_MORE : ASSUMED);
  const dollars = (spot: boolean) => {
    const usd = usdPerHour(prices, {accelerator, spot, zone});
    return usd === null || !hours ? null : times(hours.tpu, usd);
  };
  const generation = chipsOf(accelerator)?.generation ?? '';
  return {
    what,
    spec,
    ...sampled,
    stored_bytes: storedBytes(sampled, numbers),
    machine: {
      accelerator,
      zone,
      workers,
      spot_usd_per_hour: usdPerHour(prices, {accelerator, spot: true, zone}),
    },
    tokens_per_second: rate ?? null,
    tpu_hours: hours?.tpu ?? null,
    clock_hours: hours?.clock ?? null,
    usd: {spot: dollars(true), on_demand: dollars(false)},
    prices_are: {
      listed: isListed(prices, accelerator, zone),
      verified: !UNVERIFIED.has(generation),
    },
    earlier: earlier ?? null,
    assumed: whatIsAssumed(rate, options, earlier),
  };
}

type Overhead = Pick<typeof ASSUMED, 'start_s' | 'preemption'>;

/** An earlier run leaves nothing to assume, a measured rate only what is not in it. */
function whatIsAssumed(
  rate: Rate | undefined,
  {tokensPerSecond}: Options,
  earlier: Earlier | undefined,
): typeof ASSUMED | Overhead | null {
  if (earlier) return null;
  const {start_s, preemption} = ASSUMED;
  return rate && tokensPerSecond === undefined ? ASSUMED : {start_s, preemption};
}

function rateOf(
  sampled: Sampled,
  numbers: Numbers,
  {accelerator, workers, tokensPerSecond}: Options,
  earlier: Earlier | undefined,
): Rate | undefined {
  if (tokensPerSecond !== undefined) return measuredRate(tokensPerSecond, 'what --tokens-per-second says');
  if (earlier) return rateLike(earlier);
  return assumedRate(sampled, numbers, {accelerator, workers});
}

function describe(report: Report): string[] {
  const {totals, sample, model, machine, tokens_per_second: rate, spec} = report;
  const of = `${report.layers} of ${report.model_layers} layers, ${spec.sites?.join(', ')}, tokens ${JSON.stringify(spec.tokens)}`;
  const how = report.exact
    ? 'all of it was read'
    : `from ${sample.lines} lines in ${sample.blocks} places, ${bytes(sample.bytes)}; ranges are 95 % of what the places differ`;
  const where = report.exact ? 'in all' : 'in the sample';
  const lines = [
    `${report.what}: ${report.streams} ${report.streams === 1 ? 'stream' : 'streams'}, ${bytes(report.stream_bytes)}; ${how}`,
    `  model      ${model.name} (${model.family}, d_model ${model.d_model}): ${of}, ${spec.dtype}, ${spec.format}`,
    `  samples    ${span(totals.samples, whole)}; ${span(totals.rejected, whole)} rejected, ${span(totals.truncated, whole)} truncated`,
    ...report.reject_reasons.map(
      ({reason, samples}) =>
        `               ${whole(samples)} ${where}${samples > 1 ? ', such as' : ''}: ${reason}`,
    ),
    `  tokens     ${span(totals.tokens, whole)}; ${whole(report.computed_tokens)} computed, with the padding of batches`,
    `  shards     ${span(totals.shards, whole)} of ${spec.shard_size_gb} GB`,
    `  bytes      ${span(report.stored_bytes, bytes)}`,
  ];
  if (totals.samples.estimate === 0)
    return [
      ...lines,
      `  hours      none: there is nothing to compute, because no line${report.exact ? '' : ' of the sample'} becomes a sample`,
    ];
  if (!rate || !report.tpu_hours || !report.clock_hours)
    return [
      ...lines,
      `  hours      unknown: nobody knows the speed of ${machine.accelerator}; say --tokens-per-second`,
    ];
  const {spot, on_demand} = report.usd;
  const from = report.prices_are.listed
    ? `list prices${report.prices_are.verified ? ` of ${LISTED_ON}` : ', NOT VERIFIED'}; prices/chips overrides them`
    : 'prices/chips';
  return [
    ...lines,
    `  speed      ${span(rate, whole)} tokens/s for each ${machine.accelerator}, limited by ${rate.limit}`,
    `  hours      ${span(report.tpu_hours, hours)} of TPU; ${span(report.clock_hours, hours)} on the clock with ${Math.min(machine.workers, report.streams)} at work`,
    `  dollars    ${spot ? `${span(spot, usd)} spot` : 'unknown spot'}, ${on_demand ? `${span(on_demand, usd)} on demand` : 'unknown on demand'} (${machine.zone}; ${from})`,
    ...assumptions(report),
  ];
}

function assumptions({assumed, earlier}: Report): string[] {
  if (earlier)
    return [
      `  earlier    run ${earlier.run}: $${earlier.usd_per_million_tokens.toPrecision(3)} a million tokens, with what it took to start and to be preempted, at $${earlier.usd_per_hour.toPrecision(3)} an hour for each TPU`,
    ];
  if (!assumed) return [];
  const start = `${assumed.start_s.estimate} s from READY to the first batch (${assumed.start_s.low} to ${assumed.start_s.high})`;
  const more = `${percent(assumed.preemption.estimate - 1)} more for preemptions`;
  if (!('utilisation' in assumed)) return [`  assumed    ${start}; ${more}`];
  const {utilisation, upload_bytes_per_s, chip_to_host_bytes_per_s} = assumed;
  return [
    `  assumed    ${percent(utilisation.estimate)} of a chip's peak (${percent(utilisation.low)} to ${percent(utilisation.high)}); ` +
      `${upload_bytes_per_s.estimate / 1e9} GB/s from a VM to the bucket (${upload_bytes_per_s.low / 1e9} to ${upload_bytes_per_s.high / 1e9}), ` +
      `${chip_to_host_bytes_per_s.estimate / 1e9} GB/s from a chip to its host; ${start}; ${more}`,
    '             none of these was measured on a TPU: --tokens-per-second or --like RUN put a measurement in their place',
  ];
}

function span({estimate, low, high}: Span, text: (value: number) => string): string {
  const [middle, from] = [text(estimate), text(low)];
  const to = high === null ? 'unknown' : text(high);
  return from === to ? middle : `${middle} (${from} to ${to})`;
}

function percent(share: number): string {
  return `${Math.round(share * 100)} %`;
}

function whole(value: number): string {
  return Math.round(value).toLocaleString('en-US');
}

function bytes(value: number): string {
  const unit = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  const power = Math.min(unit.length - 1, Math.floor(Math.log10(Math.max(value, 1)) / 3));
  return `${(value / 1000 ** power).toPrecision(3)} ${unit[power]}`;
}

function hours(value: number): string {
  return value < 1 ? `${(value * 60).toPrecision(2)} min` : `${value.toPrecision(3)} h`;
}

function usd(value: number): string {
  return value < 10 ? dollarText(value) : `$${whole(value)}`;
}
