import {existsSync} from 'node:fs';
import {mkdtemp, rm, writeFile} from 'node:fs/promises';
import {tmpdir} from 'node:os';
import {join, resolve} from 'node:path';
import {useCloud} from '../../client/connection/choose.ts';
import {cloudName, cloudText, homeText, parseCloudName} from '../../client/connection/cloud-name.ts';
import {projectIn, SETTINGS_FILE} from '../../client/connection/settings-file.ts';
import {type GoogleApi, openGoogle} from '../../client/google/api.ts';
import {CliError, Interrupted} from '../../client/text/errors.ts';
import {nameCloud, print, say} from '../../client/text/output.ts';
import {DEFAULT_DEPLOYMENT} from '../../shared/domain/deployment.ts';
import {quotaIdsOf, quotaSizeOf} from '../../shared/domain/fleet/accelerators.ts';
import {utcText} from '../../shared/domain/time.ts';
import {isForbidden, kindOf} from '../../shared/google/errors.ts';
import {policyMend} from '../../shared/google/known-errors.ts';
import type {Objects} from '../../shared/ports/ports.ts';
import {buildArtifacts, builtArtifacts, DIST, VARIABLES_FILE} from '../build/artifacts.ts';
import {buildEnvironment, builtEnvironment} from '../build/environment/environment.ts';
import {sayNotes} from '../checks/findings.ts';
import {checkOffer} from '../checks/pool.ts';
import {requireConsent, requireTerminal} from '../terminal/ask.ts';
import {withClock} from '../terminal/progress-clock.ts';
import {abortedAtStop} from '../terminal/stop-signal.ts';
import type {Resource} from '../terraform/mocked-apply.ts';
import {type Ceilings, costLines, mostAnHour} from './cost.ts';
import {restoreArtifacts} from './earlier-artifacts.ts';
import {wrongFunctions} from './functions.ts';
import {keptOf} from './kept.ts';
import {mockedPlan, type Plan, readPlan, whyMocked} from './plan.ts';
import {type Forbidden, forbiddenBy, forbiddenText} from './policies.ts';
import {enableApis, makeIdentities, makeStateBucket, missingIn, missingLines, type Place} from './project.ts';
import {latestRecord, openStateBucket, recordOf, restoreLock, stateBucketOf, writeRecord} from './records.ts';
import {unservedRegions} from './regions.ts';
import {deployedOf, EXAMPLE, readSettings, type Settings} from './settings.ts';
import {LOCK_FILE, Terraform, VERSIONS_FILE} from './terraform.ts';
import {CLOCK, type Clock, untilReady} from './until-ready.ts';

/** Text of the last plan, which is too long for a terminal. */
const PLAN_TEXT = join(DIST, 'plan.txt');
const NOT_APPLIED =
  'The plan is not applied; the APIs and the bucket of the state stay, and cost next to nothing';
/** Resources that a line of the repeat names. */
const MOST_NAMED = 8;

export type DeployOptions = {
  cloud?: string | undefined;
  plan?: boolean;
  yes?: boolean;
  json?: boolean;
  state_bucket?: string;
  /** Start of the digest of the functions of an earlier deployment. */
  artifacts?: string;
};

export type Machine = {clock: Clock; lock_file: string};

/** Prepares the project, builds the artefacts, plans, asks, applies, and records. Plain Terraform can take over at any step. */
export async function deploy(
  file: string | undefined,
  options: DeployOptions,
  machine: Machine = {clock: CLOCK, lock_file: LOCK_FILE},
): Promise<void> {
  // A plan contains the key of the tickets.
  const folder = await mkdtemp(join(tmpdir(), 'gleaner-plan-'));
  // Terraform ends in order by itself.
  const stop = abortedAtStop();
  try {
    const api = openGoogle();
    const {GLEANER_CLOUD} = process.env;
    const named = {...options, cloud: options.cloud ?? GLEANER_CLOUD};
    const {path, settings} = await chooseSettings(file, named, {api, folder});
    if (!options.plan) requireTerminal(options);
    const {project, name = DEFAULT_DEPLOYMENT, region} = settings;
    if (!options.plan) nameCloud(cloudText({kind: 'project', project, deployment: name}));
    const place = {project, region: String(region), state_bucket: stateBucketOf(project, options)};
    const state = openStateBucket(api, project, place.state_bucket);
    const terraform = new Terraform(stop);
    const saved = join(folder, 'plan');
    const deployment = {api, state, terraform, settings, name, path, place, saved, stop, machine};
    // A build takes minutes, and a project that forbids the deployment needs none.
    if (!options.plan) await prepareProject(deployment, options);
    await makeArtifacts({api, state, project, name}, options);
    await deployWith(deployment, options);
  } catch (error) {
    throw stop.aborted ? new Interrupted('Interrupted: run the command again', {cause: error}) : error;
  } finally {
    await rm(folder, {recursive: true, force: true});
  }
}

type Chosen = {path: string; settings: Settings};

/**
 * The named file, the file of the folder, the settings of the last deployment that `cloud` names, or the example for a plan. In this order; a
 * file of another deployment than `cloud` is not read.
 */
export async function chooseSettings(
  file: string | undefined,
  {cloud, ...options}: Pick<DeployOptions, 'cloud' | 'plan' | 'state_bucket'>,
  {api, folder}: {api: GoogleApi; folder: string},
): Promise<Chosen> {
  const path = resolve(file ?? SETTINGS_FILE);
  if (file !== undefined) return {path, settings: await readSettings(path)};
  const named = cloud ? parseCloudName(cloud) : undefined;
  const wanted = named?.kind === 'project' ? named : undefined;
  if (existsSync(path) && (!wanted || cloudName(projectIn(path)) === cloudName(wanted)))
    return {path, settings: await readSettings(path)};
  if (wanted) {
    const {project, deployment: name} = wanted;
    const bucket = stateBucketOf(project, options);
    const applied = await latestRecord(openStateBucket(api, project, bucket), name);
    if (!applied)
      throw new CliError(
        `There is no ${SETTINGS_FILE} of ${cloudName(wanted)} here, and no record of it in gs://${bucket}`,
      );
    const {deployed_at, account} = applied;
    say(
      `There is no ${SETTINGS_FILE} of ${cloudName(wanted)} here: taking the settings that ${account} applied at ${utcText(deployed_at)}`,
    );
    const copy = join(folder, SETTINGS_FILE);
    await writeFile(copy, JSON.stringify(applied.settings));
    return {path: copy, settings: await readSettings(copy)};
  }
  if (!options.plan) return {path, settings: await readSettings(path)};
  say(`There is no ${SETTINGS_FILE}: the plan has the settings of terraform/example.tfvars.json`);
  return {path: EXAMPLE, settings: await readSettings(EXAMPLE)};
}

type Origin = {api: GoogleApi; state: Objects; project: string; name: string};

/** Builds the artefacts of this clone, or takes those of an earlier deployment. */
async function makeArtifacts({api, state, project, name}: Origin, options: DeployOptions): Promise<void> {
  const {artifacts} = options;
  if (artifacts === undefined) {
    const environment = options.plan ? await builtEnvironment() : await buildEnvironment({say});
    say('Building the functions and the worker bundle');
    await buildArtifacts(environment);
    return;
  }
  const {endpoint, token} = api;
  const data = {project, bucket: `${project}-${name}`, endpoint, token};
  await restoreArtifacts(data, await recordOf(state, name, artifacts));
}

type Deployment = {
  api: GoogleApi;
  state: Objects;
  terraform: Terraform;
  settings: Settings;
  name: string;
  path: string;
  place: Place;
  saved: string;
  stop: AbortSignal;
  machine: Machine;
};

async function deployWith(deployment: Deployment, options: DeployOptions): Promise<void> {
  const {api, terraform, settings, name, path, place, saved, stop, machine} = deployment;
  const {project, state_bucket} = place;
  const {clock} = machine;
  const files = [path, join(DIST, VARIABLES_FILE)];
  const plan = async (replace: readonly string[] = []) => {
    const text = await withClock('Terraform has planned', () => terraform.plan(saved, files, replace));
    await writeFile(PLAN_TEXT, text);
    return readPlan(await terraform.show(saved));
  };
  let planned: Plan;
  try {
    say(`Reading the state in gs://${state_bucket}`);
    await terraform.init(state_bucket, name);
    planned = options.plan ? await plan() : await untilReady(() => plan(), clock, stop);
  } catch (error) {
    const why = options.plan ? whyMocked(error) : undefined;
    if (why === undefined) throw error;
    say(`This plan is mocked, because ${why}. It shows a first deployment; a real plan also asks Google.`);
    return report(await mockedPlan(settings), settings, {...options, mocked: true});
  }
  const kept = await keptOf(api, project, planned.changes);
  const keptLine = `This takes over what an earlier deployment left: ${kept.map(({id}) => id).join(', ')}.`;
  if (kept.length > 0 && !options.plan) {
    await requireConsent([keptLine], {yes: options.yes, signal: stop, refused: NOT_APPLIED});
    for (const each of kept) {
      say(`Taking over ${each.id}`);
      await terraform.import(files, each);
    }
    planned = await plan();
  } else if (kept.length > 0) say(keptLine);
  report(planned, settings, {...options, mocked: false});
  say(`The whole plan is in ${homeText(PLAN_TEXT)}`);
  if (options.plan) return;
  await requireConsent([`This applies the plan to the project ${project}.`], {
    ...{yes: options.yes, signal: stop},
    refused: NOT_APPLIED,
  });
  say("Making the accounts of Google's services");
  await makeIdentities(api, project, clock);
  const apply = async (attempt: number) => {
    if (attempt > 0) say(leftLine(await plan()));
    await terraform.apply(saved);
  };
  await untilReady(apply, clock, stop);
  const planAndApply = async (replaced: readonly string[]) => {
    await plan(replaced);
    await terraform.apply(saved);
  };
  await replaceWrongFunctions(deployment, async addresses => {
    // The rights on a service go with it, and only a plan after that finds them missing.
    for (const replaced of [addresses, []])
      await untilReady(attempt => planAndApply(attempt > 0 ? [] : replaced), clock, stop);
  });
  const outputs = await terraform.outputs();
  await recordDeployment(deployment);
  // A person who deploys from a folder has decided for it.
  if (path === resolve(SETTINGS_FILE)) useCloud(`${project}/${name}`);
  const commands = Object.entries((outputs.next_commands ?? {}) as Record<string, string>);
  print<'deploy'>(options.json, {deployed: name, project, outputs}, [
    `The deployment ${name} is in ${project}. Its commands:`,
    ...commands.map(([what, command]) => `  ${what.padEnd(6)}  ${command}`),
  ]);
}

/**
 * An update that fails leaves a function with the code of before, and Terraform with the state of the new code. Makes such functions anew.
 * Throws `CliError` for one that stays wrong.
 */
async function replaceWrongFunctions(
  {api, settings, name, place}: Deployment,
  replace: (addresses: string[]) => Promise<void>,
): Promise<void> {
  const artifacts = await builtArtifacts();
  const at = {project: place.project, region: deployedOf(settings).region, name};
  const wrong = await wrongFunctions(api, at, artifacts);
  if (wrong.length === 0) return;
  for (const {evidence} of wrong) say(`${evidence}: replacing it`);
  await replace(wrong.map(each => `google_cloudfunctions2_function.function["${each.function}"]`));
  const [left] = await wrongFunctions(api, at, artifacts);
  if (!left) return;
  const why = left.cure.startsWith('gcloud') ? `; \`${left.cure}\` says why` : '';
  throw new CliError(
    `Failed to deploy: ${left.evidence}${why}; this deployment is not recorded: run the command again`,
  );
}

/** Turns on APIs and makes the bucket of the state, with consent; restores the lock file of the provider. */
async function prepareProject(deployment: Deployment, {yes}: DeployOptions): Promise<void> {
  const {api, state, name, place, stop, machine} = deployment;
  const missing = await missingIn(api, place);
  const lines = missingLines(missing, place);
  if (lines.length > 0) {
    await requireConsent(lines, {yes, signal: stop});
    if (yes) lines.forEach(say);
    await enableApis(api, missing, place, machine.clock);
  }
  await untilReady(() => requirePermitted(deployment), machine.clock, stop);
  await makeStateBucket(api, missing, place);
  const files = {lock_file: machine.lock_file, versions_file: VERSIONS_FILE};
  if (await restoreLock(state, name, files))
    say('Taking the hashes of the provider from the last deployment');
}

/** Throws `CliError` for a service that is not in the region, and for a policy of the organization: an apply would stop half-way. */
async function requirePermitted({api, settings}: Deployment): Promise<void> {
  const {project} = settings;
  const deployed = deployedOf(settings);
  const [unserved, forbidden, offers] = await Promise.all([
    unlessForbidden(unservedRegions(api, settings)),
    unlessForbidden(forbiddenBy(api, project, {...deployed, settings})),
    checkOffer(api, project, deployed),
  ]);
  // Google hides what a project has no quota for, so these are no errors yet.
  sayNotes(offers.map(each => ('problem' in each ? {note: each.problem} : each)));
  const textOf = (each: Forbidden) => `${forbiddenText(each)}; ${policyMend(each.constraint)}`;
  for (const each of forbidden) if (each.depends) say(textOf(each));
  const problems = [...unserved, ...forbidden.filter(({depends}) => !depends).map(textOf)];
  if (problems.length > 0) throw new CliError(`Failed to deploy to ${project}: ${problems.join('; ')}`);
}

/** Whoever deploys need not have the right to ask. Roles that are seconds old are asked again. */
async function unlessForbidden<T>(asked: Promise<T[]>): Promise<T[]> {
  return asked.catch((error: Error) => {
    if (!isForbidden(error) || kindOf(error) === 'early') throw error;
    say(`Not checked: ${error.message}`);
    return [];
  });
}

/** Writes the record of a finished deployment. Throws `CliError`, because a deployment without a record cannot be gone back to. */
async function recordDeployment(deployment: Deployment): Promise<void> {
  const {api, state, name, settings, machine} = deployment;
  const {clock, lock_file} = machine;
  try {
    const account = await api.account();
    await writeRecord(state, name, {settings, account, now_ms: clock.now(), lock_file});
  } catch (cause) {
    const why = (cause as Error).message;
    throw new CliError(`${name} is deployed, but its record is missing: ${why}; run the command again`, {
      cause,
    });
  }
}

function leftLine({changes}: Plan): string {
  const addresses = changes.map(({address}) => address);
  const named = addresses.slice(0, MOST_NAMED).join(', ');
  const more = changes.length > MOST_NAMED ? ` and ${changes.length - MOST_NAMED} more` : '';
  return `${changes.length} resources are left: ${named}${more}`;
}

type Reported = {json?: boolean; plan?: boolean; mocked: boolean};

/** Prints the resources and the costs: as the result of `--plan`, otherwise beside the questions of a deployment. */
function report(
  {resources, changes, ceilings}: Plan,
  settings: Settings,
  {json, plan, mocked}: Reported,
): void {
  const most = mostAnHour(resources, ceilings, settings);
  const actions = (wanted: string) => changes.filter(each => each.actions.join() === wanted);
  const replaced = [...actions('delete,create'), ...actions('create,delete')];
  const slow = changes.filter(({type}) => type === 'google_firestore_field').length;
  const lines = [
    ...countsOf(resources).map(([type, count]) => `  ${String(count).padStart(4)}  ${type}`),
    `${resources.length} resources in the project ${settings.project}: this creates ${actions('create').length}, changes ${actions('update').length}, replaces ${replaced.length}, and destroys ${actions('delete').length}`,
    ...[...replaced, ...actions('delete')].map(each => `  ${each.actions.join(', then ')}: ${each.address}`),
    ...(slow > 0
      ? [`${slow} of them are fields of Firestore: Google takes some minutes for each, several at once.`]
      : []),
    '',
    ...costLines(most, settings),
    ...quotaLines(ceilings, settings),
  ];
  if (!plan) {
    lines.forEach(say);
    return;
  }
  const addresses = resources.map(({address}) => address);
  print<'deploy'>(json, {mocked, project: settings.project, resources: addresses, most_an_hour: most}, lines);
}

/** Quotas that the project needs before its first TPU. */
function quotaLines({accelerator, zones}: Ceilings, settings: Settings): string[] {
  const {spot, project, provisioning} = settings;
  const {provider} = deployedOf(settings);
  const ids = quotaIdsOf(accelerator, spot !== false || provisioning === 'flex-start', provider);
  if (ids.length === 0) return [];
  return [
    `Each ${accelerator} counts ${quotaSizeOf(accelerator, provider)} against the quotas ${ids.join(' and ')} of ${zones.join(', ')}.`,
    `Ask for them at https://console.cloud.google.com/iam-admin/quotas?project=${project}`,
  ];
}

function countsOf(resources: Resource[]): [type: string, count: number][] {
  const counts = new Map<string, number>();
  for (const {type} of resources) counts.set(type, (counts.get(type) ?? 0) + 1);
  return [...counts].sort();
}
