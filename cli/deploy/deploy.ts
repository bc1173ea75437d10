import {existsSync} from 'node:fs';
import {mkdtemp, rm} from 'node:fs/promises';
import {tmpdir} from 'node:os';
import {join, resolve} from 'node:path';
import {setTimeout as sleep} from 'node:timers/promises';
import {DEFAULT_DEPLOYMENT} from '../../shared/domain/deployment.ts';
import {buildArtifacts, DIST, VARIABLES_FILE} from '../build/artifacts.ts';
import {buildEnvironment, builtEnvironment} from '../build/environment/environment.ts';
import {SETTINGS_FILE} from '../cloud/google-connection.ts';
import {requireConsent, requireTerminal} from '../terminal/ask.ts';
import {CliError, Interrupted} from '../terminal/errors.ts';
import {print, quoted, say} from '../terminal/output.ts';
import type {Resource} from '../terraform/mocked-apply.ts';
import {isTooEarly} from './advice.ts';
import {costLines, mostAnHour} from './cost.ts';
import {mockedPlan, type Plan, readPlan, whyMocked} from './plan.ts';
import {EXAMPLE, readSettings, type Settings} from './settings.ts';
import {StepFailed, Terraform} from './terraform.ts';

const SIGNALS = ['SIGINT', 'SIGTERM'] as const;

export type DeployOptions = {
  plan?: boolean;
  yes?: boolean;
  json?: boolean;
  state_bucket?: string;
  /** Seconds before the repeat: Google creates service agents and spreads new roles within some minutes. */
  repeat_after: number;
};

/** Builds the artefacts, plans, asks and applies. Keeps no state of its own: plain Terraform can take over at any step. */
export async function deploy(file: string | undefined, options: DeployOptions): Promise<void> {
  const isExample = file === undefined && options.plan === true && !existsSync(SETTINGS_FILE);
  const path = isExample ? EXAMPLE : resolve(file ?? SETTINGS_FILE);
  const settings = await readSettings(path);
  if (isExample)
    say(`There is no ${SETTINGS_FILE}: the plan has the settings of terraform/example.tfvars.json`);
  if (!options.plan) requireTerminal(options);
  const environment = options.plan ? await builtEnvironment() : await buildEnvironment({say});
  say('Building the functions and the worker bundle');
  await buildArtifacts(environment);
  // A plan contains the key of the tickets.
  const folder = await mkdtemp(join(tmpdir(), 'gleaner-plan-'));
  const stop = new AbortController();
  const interrupt = () => stop.abort();
  for (const signal of SIGNALS) process.on(signal, interrupt);
  try {
    const terraform = new Terraform(stop.signal);
    await deployWith({terraform, settings, path, saved: join(folder, 'plan'), stop: stop.signal}, options);
  } catch (error) {
    throw stop.signal.aborted ? new Interrupted('Interrupted: run the command again', {cause: error}) : error;
  } finally {
    for (const signal of SIGNALS) process.off(signal, interrupt);
    await rm(folder, {recursive: true, force: true});
  }
}

type Deployment = {
  terraform: Terraform;
  settings: Settings;
  /** File of the settings. */
  path: string;
  /** File of the plan. */
  saved: string;
  stop: AbortSignal;
};

async function deployWith(deployment: Deployment, options: DeployOptions): Promise<void> {
  const {terraform, settings, path, saved, stop} = deployment;
  const {project, name = DEFAULT_DEPLOYMENT} = settings;
  const bucket = options.state_bucket ?? `${project}-gleaner-terraform`;
  const plan = async () => {
    await terraform.plan(saved, [path, join(DIST, VARIABLES_FILE)]);
    return readPlan(await terraform.show(saved));
  };
  let planned: Plan;
  try {
    say(`Reading the state in gs://${bucket}`);
    await terraform.init(bucket, name);
    planned = await plan();
  } catch (error) {
    const why = options.plan ? whyMocked(error) : undefined;
    if (why === undefined) throw withCommand(error, bucket, settings);
    say(`This plan is mocked, because ${why}. It shows a first deployment; a real plan also asks Google.`);
    return report(await mockedPlan(settings), settings, {...options, mocked: true});
  }
  report(planned, settings, {...options, mocked: false});
  if (options.plan) return;
  await requireConsent([`This applies the plan to the project ${project}.`], {
    yes: options.yes,
    signal: stop,
  });
  await terraform.apply(saved).catch(async error => {
    if (!(error instanceof StepFailed && isTooEarly(error.output))) throw error;
    say(`Google has not finished an earlier step. Repeating once in ${options.repeat_after} s`);
    await sleep(options.repeat_after * 1000, undefined, {signal: stop});
    await plan();
    await terraform.apply(saved);
  });
  const outputs = await terraform.outputs();
  say(`${name} is deployed to ${project}.`);
  print<'deploy'>(options.json, {deployed: name, project, outputs}, nextLines(outputs));
}

type Reported = {json?: boolean; plan?: boolean; mocked: boolean};

/** Prints the resources and the costs: as the result of `--plan`, otherwise beside the questions of a deployment. */
function report({resources, ceilings}: Plan, settings: Settings, {json, plan, mocked}: Reported): void {
  const most = mostAnHour(resources, ceilings);
  const lines = [
    ...countsOf(resources).map(([type, count]) => `  ${String(count).padStart(4)}  ${type}`),
    `${resources.length} resources in the project ${settings.project}`,
    '',
    ...costLines(most, settings),
  ];
  if (!plan) {
    lines.forEach(say);
    return;
  }
  const addresses = resources.map(({address}) => address);
  print<'deploy'>(json, {mocked, project: settings.project, resources: addresses, most_an_hour: most}, lines);
}

function countsOf(resources: Resource[]): [type: string, count: number][] {
  const counts = new Map<string, number>();
  for (const {type} of resources) counts.set(type, (counts.get(type) ?? 0) + 1);
  return [...counts].sort();
}

/** Adds the command that makes the bucket of the state, which Terraform cannot make for itself. */
function withCommand(error: unknown, bucket: string, {project, region}: Settings): unknown {
  if (!(error instanceof StepFailed && /bucket.{0,40}(doesn't|does not) exist/i.test(error.output)))
    return error;
  const command = `gcloud storage buckets create gs://${quoted(bucket)} --project=${quoted(project)} --location=${quoted(String(region))} --uniform-bucket-level-access --public-access-prevention`;
  return new CliError(`There is no bucket ${bucket} for the state of Terraform: make it with\n  ${command}`, {
    cause: error,
  });
}

/** Lines that a person can paste: the environment of the commands of gleaner, and further commands. */
function nextLines({environment, next_commands}: Record<string, unknown>): string[] {
  const variables = Object.entries((environment ?? {}) as Record<string, string>);
  const exported = variables.map(([name, value]) => `${name}=${quoted(value)}`);
  return [`export ${exported.join(' ')}`, ...Object.values((next_commands ?? {}) as Record<string, string>)];
}
