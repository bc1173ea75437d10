import {Rejected} from '../../../shared/contracts/errors.ts';
import type {RunSpec} from '../../../shared/contracts/spec.ts';
import {readPrices} from '../../../shared/control-plane/documents/prices.ts';
import {LIST_PRICES} from '../../../shared/domain/billing/list-prices.ts';
import {runAcceleratorProblem} from '../../../shared/domain/fleet/accelerators.ts';
import {type Cloud, withCloudIfThere} from '../../cloud/cloud.ts';
import type {Connection} from '../../cloud/connection.ts';
import {compilePrograms} from '../../preflight.ts';
import {askWorker} from '../../python/ask-worker.ts';
import {CliError} from '../../terminal/errors.ts';
import {print, say, warn} from '../../terminal/output.ts';
import {withClock} from '../../terminal/progress-clock.ts';
import {readWeather, weatherText} from '../../weather.ts';
import {completeIn} from '../spec.ts';
import type {Compiled, Sampled} from './assumptions.ts';
import {earlierRun} from './earlier-run.ts';
import {type EstimateOptions, reportOn} from './report.ts';
import {reportLines} from './report-lines.ts';
import {findTarget} from './target.ts';

/**
 * Prints the tokens, shards, bytes, hours and dollars of a run in advance. Creates nothing; reads a sample of the streams and the
 * small files of the model.
 */
export async function estimate(target: string, options: EstimateOptions): Promise<void> {
  await withCloudIfThere(options, cloud => estimateIn(cloud, target, options)).catch((error: Error) => {
    throw error instanceof Rejected ? new CliError(error.message, {cause: error}) : error;
  });
}

async function estimateIn(cloud: Cloud | undefined, target: string, options: EstimateOptions): Promise<void> {
  const {like, accelerator, model} = options;
  const problem = runAcceleratorProblem(accelerator);
  if (problem) throw new CliError(`Failed to estimate: ${problem}`);
  const found = await findTarget(target, options.spec, cloud);
  const spec = completeIn(cloud, model ? {...found.input, model} : found.input);
  const prices = cloud ? await readPrices({store: cloud.store, log: warn}, [{accelerator}]) : LIST_PRICES;
  const earlier = like === undefined ? undefined : await earlierRun(like, cloud?.store, accelerator, prices);
  const args = [...found.args, '--sample-bytes', String(options.sample_bytes)];
  say(`Reading a sample of ${found.what}, and the tokenizer of ${spec.model}`);
  const sampled = (await withClock('The sample is being read', () =>
    askWorker('gleaner_worker.estimate', spec, args, cloud?.connection),
  )) as Sampled;
  const compiled = await compile(spec, sampled, options, cloud?.connection);
  const report = reportOn(found.what, spec, sampled, options, prices, earlier, compiled);
  const now = Date.now();
  const zones = cloud ? await readWeather(cloud.store, now) : [];
  const weather = zones.find(each => each.zone === options.zone && each.accelerator === accelerator) ?? null;
  const lines = reportLines(report, now);
  if (weather) lines.push(`  weather    ${weatherText(weather)}`);
  print<'run estimate'>(options.json, {...report, weather}, lines);
}

/** The program of the run for the type of TPU; undefined where its speed is not asked for, or the compiler lacks the type. */
async function compile(
  spec: RunSpec,
  sampled: Sampled,
  {accelerator, quick, tokens_per_second, like}: EstimateOptions,
  connection: Connection | undefined,
): Promise<Compiled | undefined> {
  if (quick || tokens_per_second !== undefined || like !== undefined || sampled.totals.tokens.estimate === 0)
    return undefined;
  try {
    const [program] = await compilePrograms(spec, [accelerator], connection);
    return program;
  } catch (error) {
    if (!(error instanceof CliError)) throw error;
    sampled.warnings.push(`${error.message}; a share of the peak is assumed`);
    return undefined;
  }
}
