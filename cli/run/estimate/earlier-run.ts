import {poolRecords, runRecords, workerRecords} from '../../../shared/control-plane/documents/documents.ts';
import type {Prices} from '../../../shared/domain/billing/prices.ts';
import {paths} from '../../../shared/domain/names.ts';
import type {Store} from '../../../shared/ports.ts';
import {CliError} from '../../terminal/errors.ts';
import {meanUsdPerHour, usdPerHourFor, usdPerMillionTokens} from '../rates.ts';
import type {Earlier} from './assumptions.ts';

/** Rates of an earlier run on the same type of TPU: dollars a million tokens, and dollars an hour for each TPU. */
export async function earlierRun(
  name: string,
  store: Store | undefined,
  accelerator: string,
  prices: Prices,
): Promise<Earlier> {
  const run = store && (await runRecords.get(store, name));
  if (!run)
    throw new CliError(`There is no run "${name}" to compare with: \`gleaner status\` lists the runs`);
  const usd_per_million_tokens = usdPerMillionTokens(run);
  if (usd_per_million_tokens === null || usd_per_million_tokens === 0)
    throw new CliError(
      `There is no cost per token of run "${name}": give --like a run that stored tokens on TPUs with a price`,
    );
  const path = paths.pool(run.pool);
  const written = await store.get(path);
  if (!written)
    throw new CliError(
      `There is no pool document of run "${name}" with its TPU type: try again after the end of its first TPU`,
    );
  const pool = poolRecords.parse(path, written);
  if (pool.accelerator !== accelerator)
    throw new CliError(
      `There is no speed for ${accelerator} in run "${name}", which used ${pool.accelerator}: give --accelerator ${pool.accelerator}`,
    );
  const workers = workerRecords.parseAll(await store.query('workers'), () => {});
  // A worker that later served another run no longer shows the price of this run.
  const usd_per_hour = usdPerHourFor(name, workers) ?? meanUsdPerHour(prices, pool);
  if (!usd_per_hour)
    throw new CliError(`There is no price per hour of the TPUs of run "${name}": set prices/chips`);
  return {run: name, usd_per_million_tokens, usd_per_hour};
}
