/** What an earlier run measured, for an estimate of the next one. */

import type {Cloud} from '../../../client/cloud/cloud.ts';
import {CliError} from '../../../client/text/errors.ts';
import type {Earlier} from '../../../client/views/assumptions.ts';
import {meanUsdPerHour, usdPerHourFor, usdPerMillionTokens} from '../../../client/views/rates.ts';
import {readLives} from '../../../client/views/report.ts';
import {readResult} from '../../../client/views/run-state.ts';
import {poolRecords, runRecords, workerRecords} from '../../../shared/control-plane/documents/documents.ts';
import type {Prices} from '../../../shared/domain/billing/prices.ts';
import {uploadRateOf, withMeasured} from '../../../shared/domain/fleet/upload-rates.ts';
import {paths} from '../../../shared/domain/names.ts';
import type {Run} from '../../../shared/domain/records/run.ts';

/** Phases of a life in which the TPU works on tokens; a lost life computes them in vain. */
const AT_WORK = ['extract', 'upload', 'lost'] as const;

/** Speed, start and price of an earlier run on the same type of TPU. */
export async function earlierRun(
  name: string,
  cloud: Pick<Cloud, 'store' | 'objects'> | undefined,
  accelerator: string,
  prices: Prices,
): Promise<Earlier> {
  const run = cloud && (await runRecords.get(cloud.store, name));
  if (!run)
    throw new CliError(`There is no run "${name}" to compare with: \`gleaner status\` lists the runs`);
  const {store, objects} = cloud;
  const usd_per_million_tokens = usdPerMillionTokens(run);
  if (usd_per_million_tokens === null || usd_per_million_tokens === 0)
    throw new CliError(
      `Run "${name}" has no cost per token: give --like a run that stored tokens on TPUs with a price`,
    );
  const path = paths.pool(run.pool);
  const written = await store.get(path);
  if (!written)
    throw new CliError(
      `The pool of run "${name}" has no document yet, which names its type of TPU: try again after the end of its first TPU`,
    );
  const pool = poolRecords.parse(path, written);
  if (pool.accelerator !== accelerator)
    throw new CliError(
      `Run "${name}" used ${pool.accelerator}, and not ${accelerator}: give --accelerator ${pool.accelerator}`,
    );
  const workers = workerRecords.parseAll(await store.query('workers'), () => {});
  // A worker that later served another run no longer shows the price of this run.
  const usd_per_hour = usdPerHourFor(name, workers) ?? meanUsdPerHour(prices, pool);
  if (!usd_per_hour) throw new CliError(`The TPUs of run "${name}" have no known price: set prices/chips`);
  const lives = await readLives(store, name);
  const paid_s = (run.cost_usd / usd_per_hour) * 3600;
  const at_work = lives.map(({share, phases}) =>
    AT_WORK.reduce((sum, phase) => sum + share * (phases[phase]?.seconds ?? 0), 0),
  );
  const counted_s = Math.min(
    paid_s,
    at_work.reduce((sum, each) => sum + each, 0),
  );
  // Without the phases of an ended life, all of its time counts as work.
  const work_s = counted_s > 0 ? counted_s : paid_s;
  return {
    run: name,
    ...{work_s, tokens_per_s: run.total_tokens / work_s},
    start_s: (paid_s - work_s) / Math.max(1, new Set(lives.map(({tpu}) => tpu)).size),
    ...{usd_per_hour, usd_per_million_tokens},
    upload: await uploadOf(objects, name, accelerator),
  };
}

/** The rate of a host that the manifest of a run has; undefined where its uploads did not measure one. */
export async function uploadOf(objects: Cloud['objects'], run: string, accelerator: string) {
  const result = await readResult(objects, run);
  const rate = result && withMeasured(uploadRateOf(accelerator), result.upload, run);
  return rate?.basis === 'measured' ? rate : undefined;
}

export async function newestRun({store}: Pick<Cloud, 'store'>, pool: string): Promise<Run | undefined> {
  const where = [{field: 'pool', op: '==', value: pool} as const];
  const runs = runRecords.parseAll(await store.query('runs', {where}), () => {});
  const completed = runs.filter(
    ({status, total_tokens, cost_usd}) => status === 'completed' && total_tokens > 0 && cost_usd > 0,
  );
  return completed.sort((a, b) => a.created_at.localeCompare(b.created_at)).at(-1);
}
