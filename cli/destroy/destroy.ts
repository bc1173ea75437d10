/** `gleaner destroy`: drains, waits until no TPU is left, pauses the Scheduler, destroys with Terraform, and lists what stays. */
import {mkdtemp, rm, writeFile} from 'node:fs/promises';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import {cloudName} from '../../client/connection/cloud-name.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {requireRunning} from '../../client/connection/connection.ts';
import {projectIn} from '../../client/connection/settings-file.ts';
import {absentAsNull, type GoogleApi, googleOf} from '../../client/google/api.ts';
import {openSchedule} from '../../client/google/schedule.ts';
import type {Answers} from '../../client/json/index.ts';
import {counted} from '../../client/text/format.ts';
import {print, quoted, say} from '../../client/text/output.ts';
import {tickLocation} from '../../emulator/scheduler.ts';
import {tickJobOf} from '../../shared/domain/deployment.ts';
import {openProviders} from '../../shared/google/providers.ts';
import {chooseSettings} from '../deploy/deploy.ts';
import {latestRecord, openStateBucket, restoreLock, stateBucketOf} from '../deploy/records.ts';
import {deployedOf, type Settings} from '../deploy/settings.ts';
import {LOCK_FILE, Terraform, VERSIONS_FILE} from '../deploy/terraform.ts';
import {CLOCK} from '../deploy/until-ready.ts';
import {requireConsent, requireTerminal} from '../terminal/ask.ts';
import {type Draining, drain, fleetOf, leftIn} from './drain.ts';

type DestroyOptions = CloudOptions & {state_bucket?: string};

type Staying = Answers['destroy']['stays'][number];

/** `file`: settings of a deployment on Google Cloud, in place of the cloud that the other commands find. */
export async function destroy(file: string | undefined, options: DestroyOptions): Promise<void> {
  const {changes} = options;
  const named = file === undefined ? options : {changes, cloud: cloudName(projectIn(file))};
  await withCloud(named, cloud => destroyIn(cloud, file, options));
}

async function destroyIn(cloud: Cloud, file: string | undefined, options: DestroyOptions): Promise<void> {
  const {connection} = cloud;
  requireRunning(connection);
  const {project, deployment, is_google} = connection;
  const api = googleOf(connection);
  const folder = await mkdtemp(join(tmpdir(), 'gleaner-destroy-'));
  try {
    const named = {...options, cloud: `${project}/${deployment}`};
    const chosen = is_google ? await chooseSettings(file, named, {api, folder}) : undefined;
    const {zones, scheduler_region} = deployedOf(chosen?.settings ?? {project, region: tickLocation});
    const schedule = openSchedule(api, {project, location: scheduler_region, deployment});
    const draining: Draining = {
      cloud,
      api,
      // Earlier settings may have had another provider.
      tpus: openProviders(['tpu-api', 'compute-engine'], {
        ...{project, token: api.token},
        endpoints: {tpu: api.endpoint, compute: api.endpoint},
      }),
      zones,
      // A tick deletes what an earlier tick missed, so the ticks end after the drain.
      pauseTick: async () => void (await absentAsNull(schedule.pause())),
      clock: CLOCK,
    };
    const fleet = await fleetOf(cloud, zones);
    const left = await leftIn(draining, fleet);
    const stays = staysOf(cloud, options, chosen?.settings);
    const goes = [
      `${counted(left.length, 'TPU')} of ${deployment}, after the shards at work`,
      `the job ${tickJobOf(deployment)} is paused`,
      ...(is_google
        ? ['functions, topics, subscriptions, accounts, network, alerts and the bucket of logs']
        : []),
    ];
    const lines = ['Goes:', ...goes.map(each => `  ${each}`), 'Stays:', ...linesOf(stays)];
    if (options.dry_run) return print<'destroy'>(options.json, {destroyed: false, goes, stays}, lines);
    requireTerminal(options);
    await requireConsent([`This destroys ${deployment} in ${project}.`, ...lines], {yes: options.yes});
    await drain(draining, fleet);
    await draining.pauseTick();
    if (chosen) await destroyResources({api, folder, ...chosen}, options);
    print<'destroy'>(options.json, {destroyed: true, goes, stays}, [
      `The deployment ${deployment} is destroyed. These stay:`,
      ...linesOf(stays),
    ]);
  } finally {
    await rm(folder, {recursive: true, force: true});
  }
}

/** Terraform wants every variable; those of the artefacts change nothing here. */
const NO_ARTIFACT = {file: 'none', sha256: '0'.repeat(64)};

export async function destroyResources(
  {api, folder, path, settings}: {api: GoogleApi; folder: string; path: string; settings: Settings},
  options: DestroyOptions,
): Promise<void> {
  const {project} = settings;
  const {name} = deployedOf(settings);
  const bucket = stateBucketOf(project, options);
  const state = openStateBucket(api, project, bucket);
  await restoreLock(state, name, {lock_file: LOCK_FILE, versions_file: VERSIONS_FILE});
  const applied = await latestRecord(state, name);
  const artifacts = applied?.artifacts ?? {functions: NO_ARTIFACT, bundle: NO_ARTIFACT};
  const variables = join(folder, 'artifacts.tfvars.json');
  await writeFile(variables, JSON.stringify({artifacts}));
  const terraform = new Terraform(new AbortController().signal);
  say(`Reading the state in gs://${bucket}`);
  await terraform.init(bucket, name);
  // The database stays, and so does its daily backup.
  await terraform.forget('google_firestore_backup_schedule');
  await terraform.destroy([path, variables]);
}

/** Places that hold data, each with the command that deletes it. */
export function staysOf(
  {connection}: Pick<Cloud, 'connection'>,
  options: Pick<DestroyOptions, 'state_bucket'>,
  settings: Settings | undefined,
): Staying[] {
  const {project, deployment, bucket, folder} = connection;
  if (folder !== undefined || !settings)
    return [
      {
        what: 'the local cloud, which Ctrl-C ends, and its files',
        command: `rm -r ${quoted(folder ?? bucket)}`,
      },
    ];
  const at = `--project=${quoted(project)}`;
  const remove = (name: string) => `gcloud storage rm --recursive gs://${name}`;
  const {daily_days = 7} = (settings.backups ?? {}) as {daily_days?: number};
  const notify = (settings.notify ?? {}) as {url_secret?: string; key_secret?: string};
  const database = `--database=${deployment} ${at}`;
  return [
    {what: `the data bucket: datasets, activations, models`, command: remove(bucket)},
    {what: `the bucket of checkpoints of jobs`, command: remove(`${bucket}-checkpoints`)},
    {
      what: `the database ${deployment}`,
      command: `gcloud firestore databases update ${database} --no-delete-protection && gcloud firestore databases delete ${database}`,
    },
    ...(daily_days > 0
      ? [
          {
            what: `daily backups of the database, which expire after ${counted(daily_days, 'day')}`,
            command: `gcloud firestore backups list ${at} && gcloud firestore backups delete --backup=BACKUP --location=LOCATION ${at}`,
          },
        ]
      : []),
    {
      what: 'the custom roles, whose ids Google would block for 37 days',
      command: `gcloud iam roles list ${at} --filter='name~/roles/${deployment.replaceAll('-', '_')}_(tpu|storage)' && gcloud iam roles delete ROLE ${at}`,
    },
    ...secretStays('the token of the hub', settings.hf_token_secret),
    ...secretStays('the token of private repositories', settings.git_token_secret),
    ...Object.entries(settings.job_secrets ?? {}).flatMap(([name, secret]) => secretStays(name, secret)),
    ...secretStays('the address of notifications', notify.url_secret),
    ...secretStays('the key of notifications', notify.key_secret),
    {
      what: 'the bucket of Cloud Functions with the sources of every function of the region',
      command: `gcloud storage ls ${at} | grep gcf-v2-sources, then gcloud storage rm --recursive BUCKET`,
    },
    {
      what: 'the state of Terraform, the records of deployments and the hashes of the provider',
      command: remove(`${stateBucketOf(project, options)}/${deployment}`),
    },
  ];
}

/** `name`: HOST=projects/P/secrets/S, or the same without a host. */
function secretStays(of: string, name: unknown): Staying[] {
  const [, owner = '', , secret] = String(name ?? '').split('/');
  if (secret === undefined) return [];
  const command = `gcloud secrets delete ${quoted(secret)} --project=${quoted(owner)}`;
  return [{what: `the secret with ${of}, which other deployments may use`, command}];
}

function linesOf(stays: readonly Staying[]): string[] {
  return stays.flatMap(({what, command}) => [`  ${what}`, `    ${command}`]);
}
