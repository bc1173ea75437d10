/** `gleaner smoke`: ten steps on a deployment, from its project to a verified run, with a ceiling of dollars. */
import {resolve} from 'node:path';
import {DEFAULT_DEPLOYMENT} from '../../shared/domain/deployment.ts';
import {openTpus} from '../../shared/google/tpus.ts';
import {type Cloud, withCloud} from '../cloud/cloud.ts';
import {type CloudOptions, requireCredentials} from '../cloud/connect.ts';
import {type Connection, requireRunning} from '../cloud/connection.ts';
import {googleConnection} from '../cloud/google-connection.ts';
import {CLOCK} from '../deploy/clock.ts';
import {openGoogle} from '../google/api.ts';
import {requireConsent, requireTerminal} from '../terminal/ask.ts';
import {CliError} from '../terminal/errors.ts';
import {dollarText} from '../terminal/format.ts';
import {print, say} from '../terminal/output.ts';
import {type Bench, spentBy} from './bench.ts';
import {type Result, readState, writeState} from './state.ts';
import {STEPS} from './steps.ts';

export type SmokeOptions = CloudOptions & {
  project?: string;
  budget_usd: number;
  model?: string;
  state_file: string;
};

/** Runs the steps that have not passed yet, and stops at the first failure with exit code 1. */
export async function smoke(options: SmokeOptions): Promise<void> {
  const connection = options.project ? await connectionOf(options.project) : undefined;
  await withCloud(options, cloud => smokeIn(cloud, options), connection);
}

async function connectionOf(project: string): Promise<Connection | undefined> {
  await requireCredentials();
  const {GLEANER_DEPLOYMENT: deployment = DEFAULT_DEPLOYMENT} = process.env;
  const named = {
    GLEANER_PROJECT: project,
    GLEANER_DEPLOYMENT: deployment,
    GLEANER_BUCKET: `${project}-${deployment}`,
  };
  return googleConnection(named);
}

async function smokeIn(cloud: Cloud, options: SmokeOptions): Promise<void> {
  const {connection} = cloud;
  requireRunning(connection, options.dir);
  const {is_google, project, deployment, storage_endpoint: endpoint, token} = connection;
  const {budget_usd, model, json, yes} = options;
  const file = resolve(options.state_file);
  const state = readState(file, connection);
  if (is_google) {
    requireTerminal(options);
    await requireConsent([`This buys TPUs for at most ${dollarText(budget_usd)} in ${project}.`], {yes});
  }
  const api = is_google ? openGoogle() : openGoogle({endpoint, token});
  const tpus = openTpus({project, endpoint: api.endpoint, token: api.token});
  const keep = () => writeState(file, state);
  const bench: Bench = {cloud, api, tpus, clock: CLOCK, state, keep, budget_usd, model};
  say(`The smoke test of ${deployment} in ${project} keeps its state in ${file}`);
  const steps: ({step: string} & Result)[] = [];
  for (const [index, {name, only_google, run}] of STEPS.entries()) {
    const before = state.steps[name];
    const isDone = before !== undefined && before.status !== 'failed';
    const result: Result = isDone
      ? before
      : only_google && !is_google
        ? {status: 'only on Google Cloud', saw: ''}
        : await tried(() => run(bench));
    state.steps[name] = result;
    keep();
    steps.push({step: name, ...result});
    say(
      `${String(index + 1).padStart(2)}  ${name}: ${result.status}${isDone ? ' before' : ''}${result.saw ? `, ${result.saw}` : ''}`,
    );
    if (result.status === 'failed') break;
  }
  const ok = steps.every(({status}) => status !== 'failed');
  const spent_usd = await spentBy(bench);
  const left = ok ? '' : ', and the same command goes on at the failed step';
  print<'smoke'>(json, {ok, spent_usd, steps}, [
    `The smoke test ${ok ? 'passed' : 'failed'} for ${dollarText(spent_usd)}${left}`,
  ]);
  if (!ok) process.exitCode = 1;
}

async function tried(run: () => Promise<string>): Promise<Result> {
  try {
    return {status: 'passed', saw: await run()};
  } catch (error) {
    if (!(error instanceof CliError)) throw error;
    return {status: 'failed', saw: error.message};
  }
}
