/** Checks before a run gets its streams: model, layers, first records, type of TPU and budget. */

import type {Cloud} from '../../client/cloud/cloud.ts';
import {readFleet, requirePool} from '../../client/cloud/fleet.ts';
import {warn} from '../../client/text/output.ts';
import type {Sampled} from '../../client/views/assumptions.ts';
import type {RunSpecInput} from '../../shared/contracts/spec/spec.ts';
import {readPrices} from '../../shared/control-plane/documents/prices.ts';
import {poolOf} from '../../shared/domain/deployment.ts';
import {runAcceleratorProblem} from '../../shared/domain/fleet/accelerators.ts';
import {type Finding, refuseProblems} from '../checks/findings.ts';
import {checkModel, checkReductions, readModelConfig} from '../checks/model.ts';
import {checkBudget} from '../checks/pool.ts';
import {checkRecords} from '../checks/records.ts';
import type {StreamFile} from '../streams/folder.ts';
import {requireConsent} from '../terminal/ask.ts';
import {completeIn} from './spec/spec.ts';

/**
 * Throws `CliError` where the run cannot succeed. `streams`: files of this machine, none for streams in the bucket. Returns the counts of
 * their first records, if the worker's code has read them.
 */
export async function checkRun(
  cloud: Cloud,
  {run, input, streams}: {run: string; input: RunSpecInput; streams: readonly StreamFile[]},
): Promise<Sampled | undefined> {
  const what = `start run ${run}`;
  const spec = completeIn(cloud, input);
  const findings = await checkPoolOf(cloud, input);
  const config = await readModelConfig(cloud, spec);
  const ofReductions = await checkReductions(cloud, config, spec);
  refuseProblems(what, [...findings, ...checkModel(config, spec), ...ofReductions]);
  const isSilent = 'silent' in config;
  if (isSilent) await requireDecision(what, config.silent);
  // The worker's code would ask the same hub for minutes.
  const connection = isSilent ? undefined : cloud.connection;
  const {findings: ofRecords, sampled} = await checkRecords(streams, spec, connection);
  refuseProblems(what, ofRecords);
  return sampled;
}

/** A mistyped model fails on TPUs that cost money. Without a terminal, `--no-check` decides. */
async function requireDecision(what: string, silent: string): Promise<void> {
  if (!process.stdin.isTTY) refuseProblems(what, [{problem: silent}]);
  await requireConsent([`Not checked: ${silent}`, 'TPUs cost money until they find out.'], {});
}

/** Checks the type of the pool, and that the budget pays for one of its TPUs. */
async function checkPoolOf(cloud: Cloud, {budget_usd = null, pool}: RunSpecInput): Promise<Finding[]> {
  const fleet = await readFleet(cloud);
  const name = pool ?? poolOf(cloud.connection.deployment);
  requirePool(fleet, name);
  const found = fleet.pools.find(each => each.pool === name);
  const accelerator = found?.accelerator ?? '';
  const problem = runAcceleratorProblem(accelerator);
  if (problem) return [{problem}];
  if (budget_usd === null) return [];
  const prices = await readPrices({store: cloud.store, log: warn}, found ? [{accelerator}] : []);
  return checkBudget(budget_usd, found, prices);
}
