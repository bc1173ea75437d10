/** `gleaner smoke`: ten steps on a deployment, from its project to a verified run, with a ceiling of dollars. */
import {resolve} from 'node:path';
import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {googleOf} from '../../client/google/api.ts';
import {CliError, Interrupted} from '../../client/text/errors.ts';
import {dollarText} from '../../client/text/format.ts';
import {print, say} from '../../client/text/output.ts';
import {openProviders} from '../../shared/google/providers.ts';
import {CLOCK, type Clock} from '../deploy/until-ready.ts';
import {requireConsent, requireTerminal} from '../terminal/ask.ts';
import {abortedAtStop} from '../terminal/stop-signal.ts';
import {type Bench, openJobs, openRuns, spentBy} from './bench.ts';
import {type Result, readState, writeState} from './state.ts';
import {STEPS} from './steps.ts';

type SmokeOptions = CloudOptions & {
  budget_usd: number;
  model?: string;
  state_bucket?: string;
  state_file: string;
};

/** Runs the steps that have not passed yet, and stops at the first failure with exit code 1. */
export async function smoke(options: SmokeOptions): Promise<void> {
  await withCloud(options, cloud => smokeIn(cloud, options));
}

async function smokeIn(cloud: Cloud, options: SmokeOptions): Promise<void> {
  const {connection} = cloud;
  const {is_google, project, deployment} = connection;
  const {budget_usd, model, state_bucket, json, yes} = options;
  const file = resolve(options.state_file);
  const state = readState(file, connection);
  if (is_google) {
    requireTerminal(options);
    await requireConsent([`This buys TPUs for at most ${dollarText(budget_usd)} in ${project}.`], {yes});
  }
  const api = googleOf(connection);
  const endpoints = {tpu: api.endpoint, compute: api.endpoint};
  const tpus = openProviders(['tpu-api', 'compute-engine'], {project, endpoints, token: api.token});
  const keep = () => writeState(file, state);
  keep();
  const stop = abortedAtStop();
  const clock: Clock = {...CLOCK, sleep: seconds => CLOCK.sleep(seconds, stop)};
  const bench: Bench = {cloud, api, tpus, clock, state, keep, budget_usd, model, record: {state_bucket}};
  say(`The smoke test of ${deployment} in ${project} keeps its state in ${file}`);
  try {
    const steps = await runSteps(bench, is_google, stop);
    const ok = steps.every(({status}) => status !== 'failed');
    const spent_usd = await spentBy(bench);
    const next = ok
      ? `. To try every step again, delete ${file}`
      : `, and the same command continues at the failed step${await leftText(bench)}`;
    print<'smoke'>(json, {ok, spent_usd, steps}, [
      `The smoke test ${ok ? 'passed' : 'failed'} for ${dollarText(spent_usd)}${next}`,
    ]);
    if (!ok) process.exitCode = 1;
  } catch (error) {
    if (!stop.aborted) throw error;
    const text = `Interrupted: the same command continues at the interrupted step${await leftText(bench)}`;
    throw new Interrupted(text, {cause: error});
  }
}

/** Names the work that a step left, and the commands that end it. */
export async function leftText(bench: Pick<Bench, 'cloud' | 'state'>): Promise<string> {
  const left = [
    ...(await openRuns(bench)).map(run => ({name: run, command: `gleaner run stop ${run}`})),
    ...(await openJobs(bench)).map(job => ({name: job, command: `gleaner jobs cancel ${job}`})),
  ];
  return left
    .map(({name, command}) => `. ${name} still runs within its budget: \`${command}\` ends it`)
    .join('');
}

export async function runSteps(
  bench: Bench,
  is_google: boolean,
  stop: AbortSignal,
): Promise<({step: string} & Result)[]> {
  const {state, keep} = bench;
  const steps: ({step: string} & Result)[] = [];
  for (const [index, {name, only_google, run}] of STEPS.entries()) {
    stop.throwIfAborted();
    const before = state.steps[name];
    const isDone = before !== undefined && before.status !== 'failed';
    const result: Result = isDone
      ? before
      : only_google && !is_google
        ? {status: 'only on Google Cloud', saw: ''}
        : await tryStep(() => run(bench));
    state.steps[name] = result;
    keep();
    steps.push({step: name, ...result});
    say(
      `${String(index + 1).padStart(2)}  ${name}: ${result.status}${isDone ? ' before' : ''}${result.saw ? `, ${result.saw}` : ''}`,
    );
    if (result.status === 'failed') break;
  }
  return steps;
}

async function tryStep(run: () => Promise<string>): Promise<Result> {
  try {
    return {status: 'passed', saw: await run()};
  } catch (error) {
    if (!(error instanceof CliError)) throw error;
    return {status: 'failed', saw: error.message};
  }
}
