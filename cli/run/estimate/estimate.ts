import {existsSync} from 'node:fs';
import {DEFAULT_MODEL} from '../../../shared/contracts/environment.ts';
import {Rejected} from '../../../shared/contracts/errors.ts';
import {completeSpec, type RunSpec} from '../../../shared/contracts/spec.ts';
import {readPrices} from '../../../shared/control-plane/documents/prices.ts';
import type {Compiled, Sampled} from '../../../shared/domain/billing/estimate.ts';
import {LIST_PRICES} from '../../../shared/domain/billing/list-prices.ts';
import {DEFAULT_DEPLOYMENT, poolOf} from '../../../shared/domain/deployment.ts';
import {isRunId} from '../../../shared/domain/names.ts';
import {connect, storeOf} from '../../cloud/connect.ts';
import type {Connection} from '../../cloud/connection.ts';
import {compileProgram} from '../../preflight/compile-program.ts';
import {askWorker} from '../../python/ask-worker.ts';
import {CliError} from '../../terminal/errors.ts';
import {print, say, warn} from '../../terminal/output.ts';
import {withClock} from '../../terminal/progress-clock.ts';
import {earlierRun} from './earlier-run.ts';
import {type EstimateOptions, reportOn} from './report.ts';
import {reportLines} from './report-lines.ts';
import {findTarget} from './target.ts';

/**
 * Prints the tokens, shards, bytes, hours and dollars of a run in advance. Creates nothing; reads a sample of the streams and the
 * small files of the model.
 */
export async function estimate(target: string, options: EstimateOptions): Promise<void> {
  const connection = await connectIfThere(target, options);
  const store = connection && storeOf(connection);
  try {
    const found = await findTarget(target, options.spec, connection);
    const default_model = connection?.default_model ?? DEFAULT_MODEL;
    const {spec} = completeSpec(options.model ? {...found.input, model: options.model} : found.input, {
      default_model,
      pool: {pool: poolOf(connection?.deployment ?? DEFAULT_DEPLOYMENT)},
    });
    const {like, accelerator} = options;
    const prices = store ? await readPrices({store, log: warn}, [{accelerator}]) : LIST_PRICES;
    const earlier = like === undefined ? undefined : await earlierRun(like, store, accelerator, prices);
    const args = [...found.args, '--sample-bytes', String(options.sample_bytes)];
    say(`Reading a sample of ${found.what}, and the tokenizer of ${spec.model}`);
    const sampled = (await withClock('The sample is being read', () =>
      askWorker('gleaner_worker.estimate', spec, args, connection),
    )) as Sampled;
    const compiled = await compile(spec, sampled, options, connection);
    const report = reportOn(found.what, spec, sampled, options, prices, earlier, compiled);
    print<'run estimate'>(options.json, report, reportLines(report));
  } catch (error) {
    if (error instanceof Rejected) throw new CliError(error.message);
    throw error;
  } finally {
    await store?.close();
    await connection?.close();
  }
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
    return await compileProgram(spec, accelerator, connection);
  } catch (error) {
    if (!(error instanceof CliError)) throw error;
    sampled.warnings.push(`${error.message}; a share of the peak is assumed`);
    return undefined;
  }
}

/** Connects to the cloud. Undefined without a cloud where `target` is a file or an address in a bucket. */
async function connectIfThere(target: string, options: EstimateOptions): Promise<Connection | undefined> {
  try {
    return await connect(options);
  } catch (error) {
    const isNamed = options.port !== undefined || options.dir !== undefined || options.like !== undefined;
    if (!(error instanceof CliError) || isNamed) throw error;
    if (existsSync(target) || target.startsWith('gs://')) return undefined;
    throw isRunId(target)
      ? error
      : new CliError(`There is no file ${target}: name a JSONL file, an address in a bucket, or a run`);
  }
}
