import {existsSync, statSync} from 'node:fs';
import {resolve} from 'node:path';
import {type Cloud, withCloudIfThere} from '../../../client/cloud/cloud.ts';
import {readFleet} from '../../../client/cloud/fleet.ts';
import type {Connection} from '../../../client/connection/connection.ts';
import {CliError} from '../../../client/text/errors.ts';
import {counted} from '../../../client/text/format.ts';
import {print, say, warn} from '../../../client/text/output.ts';
import type {Compiled, Sampled} from '../../../client/views/assumptions.ts';
import {parseRunSpec, type RunSpec, type RunSpecInput} from '../../../shared/contracts/spec/spec.ts';
import {readPrices} from '../../../shared/control-plane/documents/prices.ts';
import {readRunSpec} from '../../../shared/control-plane/runs/run-manifest.ts';
import {LIST_PRICES} from '../../../shared/domain/billing/list-prices.ts';
import {DEFAULT_DEPLOYMENT, poolOf} from '../../../shared/domain/deployment.ts';
import {runAcceleratorProblem} from '../../../shared/domain/fleet/accelerators.ts';
import {uploadRateOf} from '../../../shared/domain/fleet/upload-rates.ts';
import {datasetPrefix, isRunId} from '../../../shared/domain/names.ts';
import {churnText, readChurn} from '../../pools/churn.ts';
import {askWorker} from '../../python/ask-worker.ts';
import {readStreamFolder} from '../../streams/folder.ts';
import {withClock} from '../../terminal/progress-clock.ts';
import {frozenInput} from '../spec/from-run.ts';
import {completeIn, specOf} from '../spec/spec.ts';
import {earlierRun, newestRun, uploadOf} from './earlier-run.ts';
import {compilePrograms} from './preflight.ts';
import {type EstimateOptions, type Report, reportOn} from './report.ts';
import {reportLines} from './report-lines.ts';

/**
 * Prints the tokens, shards, bytes, hours and dollars of a run in advance. Creates nothing; reads a sample of the streams and the
 * small files of the model.
 */
export async function estimate(target: string, options: EstimateOptions): Promise<void> {
  await withCloudIfThere(options, cloud => estimateIn(cloud, target, options));
}

async function estimateIn(cloud: Cloud | undefined, target: string, options: EstimateOptions): Promise<void> {
  const found = await findTarget(target, cloud);
  const input = await specOf(options, found.input);
  const {accelerator, zone} = await machineOf(cloud, input, options);
  const problem = runAcceleratorProblem(accelerator);
  if (problem) throw new CliError(`Failed to estimate: ${problem}`);
  const spec = completeIn(cloud, input);
  const args = [...found.args, '--sample-bytes', String(options.sample_bytes)];
  say(`Reading a sample of ${found.what}, and the tokenizer of ${spec.model}`);
  const sampled = (await withClock('The sample is being read', () =>
    askWorker('gleaner_worker.estimate', spec, args, cloud?.connection),
  )) as Sampled;
  const compiled = options.compile ? await compile(spec, sampled, accelerator, cloud?.connection) : undefined;
  const report = await reportOf(cloud, {what: found.what, input, sampled, compiled}, options);
  const now = Date.now();
  const zones = cloud ? await readChurn(cloud.store, now) : [];
  const churn = zones.find(each => each.zone === zone && each.accelerator === accelerator) ?? null;
  const lines = reportLines(report, now);
  if (churn) lines.push(`  churn    ${churnText(churn)}`);
  print<'run estimate'>(options.json, {...report, churn}, lines);
}

type Asked = {what: string; input: RunSpecInput; sampled: Sampled; compiled?: Compiled | undefined};

/** The estimate of a sampled run, with what the pool of the run has measured, and the prices of today. */
export async function reportOf(
  cloud: Cloud | undefined,
  {what, input, sampled, compiled}: Asked,
  options: Partial<EstimateOptions>,
): Promise<Report> {
  const machine = await machineOf(cloud, input, options);
  const {accelerator} = machine;
  const spec = completeIn(cloud, input);
  const is_google = cloud?.connection.is_google ?? true;
  const prices = cloud ? await readPrices({store: cloud.store, log: warn}, [{accelerator}]) : LIST_PRICES;
  const newest = cloud && machine.isOfPool ? await newestRun(cloud, machine.pool) : undefined;
  // A local cloud has the speed of this machine, which only another run of the same model has.
  const same = !is_google && newest?.spec?.model === spec.model ? newest?.run : undefined;
  const like = options.like ?? (options.tokens_per_second === undefined ? same : undefined);
  const earlier =
    like === undefined
      ? undefined
      : await earlierRun(like, cloud, accelerator, prices).catch((error: Error) => {
          if (options.like !== undefined || !(error instanceof CliError)) throw error;
          return undefined; // nobody asked for that run
        });
  const measured = cloud && newest ? await uploadOf(cloud.objects, newest.run, accelerator) : undefined;
  if (is_google && cloud && machine.isGuessed)
    sampled.warnings.push(
      `pool ${machine.pool} has no document yet: this prices ${machine.workers} ${accelerator} in ${machine.zone}; \`gleaner estimate\` takes --accelerator, --zone and --workers`,
    );
  if (!is_google && !earlier && options.tokens_per_second === undefined)
    sampled.warnings.push(
      `a local cloud computes on this machine's processor: time and dollars are those of a real ${accelerator} until a run of this model has completed here`,
    );
  const upload = earlier?.upload ?? measured ?? uploadRateOf(accelerator);
  return reportOn(what, spec, sampled, {...options, ...machine, is_google}, prices, {
    earlier,
    compiled,
    upload,
  });
}

/** The TPUs of the run's pool, unless options name others. `isGuessed`: the pool has no document, so missing values are those of one small TPU. */
async function machineOf(cloud: Cloud | undefined, input: RunSpecInput, options: Partial<EstimateOptions>) {
  const pool = input.pool ?? poolOf(cloud?.connection.deployment ?? DEFAULT_DEPLOYMENT);
  const found = cloud && (await readFleet(cloud)).pools.find(each => each.pool === pool);
  const accelerator = options.accelerator ?? found?.accelerator ?? 'v5litepod-1';
  const isGuessed = !found && !(options.accelerator && options.zone && options.workers);
  return {
    ...{pool, accelerator, isOfPool: accelerator === found?.accelerator, isGuessed},
    zone: options.zone ?? found?.zones[0] ?? 'us-central1-a',
    workers: options.workers ?? (found ? found.zones.length * found.workers_per_zone : 1),
  };
}

/** The program of the run for the type of TPU; undefined where the compiler lacks the type, or no token is there. */
async function compile(
  spec: RunSpec,
  sampled: Sampled,
  accelerator: string,
  connection: Connection | undefined,
): Promise<Compiled | undefined> {
  if (sampled.totals.tokens.estimate === 0) return undefined;
  try {
    const [program] = await compilePrograms(spec, [accelerator], connection);
    return program;
  } catch (error) {
    if (!(error instanceof CliError)) throw error;
    sampled.warnings.push(`${error.message}; a share of the peak is assumed`);
    return undefined;
  }
}

/** Streams of an estimate: their name, the arguments that lead the worker's module to them, and the spec that is there. */
export type Target = {what: string; args: string[]; input: RunSpecInput};

/** Finds the streams that `target` names: a file, a folder of streams, an address in a bucket, or a run. */
export async function findTarget(target: string, cloud: Cloud | undefined): Promise<Target> {
  if (statSync(target, {throwIfNoEntry: false})?.isDirectory()) {
    const {streams, spec} = await readStreamFolder(target);
    const args = streams.flatMap(({path}) => ['--file', resolve(path)]);
    const own = spec && parseRunSpec(spec.toString('utf8'), `${target}/run.json`);
    return {what: `${counted(streams.length, 'stream')} of ${target}`, args, input: own ?? {}};
  }
  if (existsSync(target)) return {what: target, args: ['--file', resolve(target)], input: {}};
  const [, bucket, path] = /^gs:\/\/([^/]+)\/(.+)$/.exec(target) ?? [];
  if (bucket && path) return {what: target, args: ['--bucket', bucket, '--prefix', path], input: {}};
  if (!isRunId(target) || !cloud)
    throw new CliError(
      `There is no file and no run ${target}: name a JSONL file, a folder of streams, an address in a bucket, or a run`,
    );
  const args = ['--bucket', cloud.connection.bucket, '--prefix', datasetPrefix(target)];
  const input = (await frozenInput(cloud, target)) ?? (await readRunSpec(cloud.objects, target)) ?? {};
  return {what: `run ${target}`, args, input};
}
