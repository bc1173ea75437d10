/** Preparation of a project for Terraform: its APIs, the accounts of Google's services, and the bucket of the state. Each step is idempotent. */
import {readFileSync} from 'node:fs';
import {fileURLToPath} from 'node:url';
import {absentAsNull, type GoogleApi, GoogleError, type Json, listAll} from '../../client/google/api.ts';
import {CliError} from '../../client/text/errors.ts';
import {say} from '../../client/text/output.ts';
import {isBadRequest, isNotFound} from '../../shared/google/errors.ts';
import type {Clock} from './until-ready.ts';

const SERVICES = fileURLToPath(new URL('../../terraform/services.tf', import.meta.url));
/** Terraform needs these two before it can turn on the others. */
const BOOTSTRAP = ['cloudresourcemanager', 'serviceusage'];
/** Services that act in the project by accounts of their own, which exist from their first use on. */
const WITH_IDENTITY = [
  ...['artifactregistry', 'cloudbuild', 'cloudfunctions', 'cloudscheduler', 'compute', 'eventarc', 'pubsub'],
  ...['run', 'tpu'],
];
const USAGE = 'serviceusage.googleapis.com';
/** APIs of one request. */
const MOST_APIS = 20;
const OPERATION_S = 2;
const MOST_OPERATION_S = 300;

export type Place = {project: string; region: string; state_bucket: string};
export type Missing = {apis: string[]; bucket: 'absent' | 'without versions' | null};

/** Names of the APIs of a deployment: those of `terraform/`, and those that Terraform itself needs. */
export function neededApis(): string[] {
  const [, list = ''] = /services = toset\(\[([^\]]*)\]\)/.exec(readFileSync(SERVICES, 'utf8')) ?? [];
  const named = [...list.matchAll(/"([a-z]+)"/g)].map(([, name = '']) => name);
  return [...new Set([...BOOTSTRAP, ...named])].sort();
}

export async function enabledApis(api: GoogleApi, project: string): Promise<Set<string>> {
  const address = `${USAGE}/v1/projects/${project}/services?filter=state:ENABLED&pageSize=200`;
  const services = await listAll(api, address, 'services');
  return new Set(services.map(({config}) => String((config as Json).name).replace('.googleapis.com', '')));
}

/** Finds what the project lacks, and changes nothing. */
export async function missingIn(api: GoogleApi, {project, state_bucket}: Place): Promise<Missing> {
  const read = api.call('GET', `storage.googleapis.com/storage/v1/b/${state_bucket}`);
  const [enabled, bucket] = await Promise.all([enabledApis(api, project), absentAsNull(read)]);
  const hasVersions = (bucket?.versioning as Json | undefined)?.enabled === true;
  return {
    apis: neededApis().filter(name => !enabled.has(name)),
    bucket: bucket === null ? 'absent' : hasVersions ? null : 'without versions',
  };
}

/** Lines for the person who consents to `prepare`; empty where nothing is missing. */
export function missingLines({apis, bucket}: Missing, {project, region, state_bucket}: Place): string[] {
  return [
    ...(apis.length > 0
      ? [`This turns on ${apis.length} APIs in the project ${project}: ${apis.join(', ')}.`]
      : []),
    ...(bucket === 'absent'
      ? [
          `This makes the bucket gs://${state_bucket} in ${region}, with versions, for the state of Terraform.`,
        ]
      : []),
    ...(bucket === 'without versions' ? [`This turns on versions in the bucket gs://${state_bucket}.`] : []),
  ];
}

export async function enableApis(
  api: GoogleApi,
  {apis}: Missing,
  {project}: Place,
  clock: Clock,
): Promise<void> {
  for (let from = 0; from < apis.length; from += MOST_APIS) {
    const serviceIds = apis.slice(from, from + MOST_APIS).map(name => `${name}.googleapis.com`);
    const started = await api.call('POST', `${USAGE}/v1/projects/${project}/services:batchEnable`, {
      serviceIds,
    });
    await untilDone(api, 'turn on the APIs', started, clock);
  }
}

export async function makeStateBucket(
  api: GoogleApi,
  {bucket}: Missing,
  {project, region, state_bucket}: Place,
): Promise<void> {
  const buckets = 'storage.googleapis.com/storage/v1/b';
  if (bucket === 'absent')
    await api.call('POST', `${buckets}?project=${project}`, {
      ...{name: state_bucket, location: region, versioning: {enabled: true}},
      iamConfiguration: {uniformBucketLevelAccess: {enabled: true}, publicAccessPrevention: 'enforced'},
    });
  if (bucket === 'without versions')
    await api.call('PATCH', `${buckets}/${state_bucket}`, {versioning: {enabled: true}});
}

/** Makes the account of each service that acts in the project, or finds it. */
export async function makeIdentities(api: GoogleApi, project: string, clock: Clock): Promise<void> {
  const make = async (service: string) => {
    const address = `${USAGE}/v1beta1/projects/${project}/services/${service}.googleapis.com:generateServiceIdentity`;
    try {
      await untilDone(api, `make the account of ${service}`, await api.call('POST', address), clock);
    } catch (error) {
      // Some services have an account from the start. The apply names an account that is missing.
      if (!isNotFound(error) && !isBadRequest(error)) throw error;
      say(`${service} has no account to make: ${(error as Error).message}`);
    }
  };
  await Promise.all(WITH_IDENTITY.map(make));
}

async function untilDone(api: GoogleApi, what: string, started: Json, clock: Clock): Promise<void> {
  let operation = started;
  for (const end_ms = clock.now() + MOST_OPERATION_S * 1000; operation.done !== true; ) {
    if (clock.now() > end_ms)
      throw new CliError(`Failed to ${what}: no end after ${MOST_OPERATION_S} s; run the command again`);
    await clock.sleep(OPERATION_S);
    operation = await api.call('GET', `${USAGE}/v1/${operation.name}`);
  }
  const {code, message} = (operation.error ?? {}) as {code?: number; message?: string};
  if (operation.error) throw new GoogleError(code ?? 2, what, String(message));
}
