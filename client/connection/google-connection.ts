/** Deployment on Google Cloud that the environment names, or the settings file of `gleaner deploy` in the current folder. */
import {existsSync, readFileSync} from 'node:fs';
import {DEFAULT_DEPLOYMENT, isDeployment} from '../../shared/domain/deployment.ts';
import {CliError} from '../text/errors.ts';
import type {Connection} from './connection.ts';

/** File that `gleaner deploy` reads, where no other is named. */
export const SETTINGS_FILE = 'gleaner.tfvars.json';

type Settings = {project?: unknown; name?: unknown; jobs_collection?: unknown};

/** Undefined where neither the environment nor the file names a project and a bucket. The environment comes first. */
export function googleConnection(env: NodeJS.ProcessEnv, file = SETTINGS_FILE): Connection | undefined {
  const named = fromEnvironment(env) ?? fromFile(env, file);
  if (!named) return undefined;
  const {project, deployment, bucket, origins} = named;
  // Terraform gives the database the name of its deployment.
  const store = env.GLEANER_STORE ?? `firestore:${deployment}`;
  return {
    is_google: true,
    ...{storage_endpoint: undefined, pubsub_endpoint: undefined, token: undefined, folder: undefined},
    default_model: env.GLEANER_DEFAULT_MODEL,
    ...{project, deployment, bucket, store},
    jobs: env.GLEANER_JOBS_COLLECTION || named.jobs || 'jobs',
    origin: origins.project ?? '',
    origins: {
      ...origins,
      store: env.GLEANER_STORE ? 'GLEANER_STORE' : 'name of the deployment',
      ...(env.GLEANER_JOBS_COLLECTION ? {jobs: 'GLEANER_JOBS_COLLECTION'} : {}),
      default_model: env.GLEANER_DEFAULT_MODEL ? 'GLEANER_DEFAULT_MODEL' : 'default',
    },
    close: async () => {},
  };
}

type Named = {
  project: string;
  deployment: string;
  bucket: string;
  jobs?: string;
  origins: Record<string, string>;
};

function fromEnvironment(env: NodeJS.ProcessEnv): Named | undefined {
  const {GLEANER_BUCKET: bucket, GLEANER_PROJECT: project, GLEANER_DEPLOYMENT: deployment} = env;
  if (!bucket || !project) return undefined;
  return {
    ...{project, bucket, deployment: deploymentNamed(deployment ?? DEFAULT_DEPLOYMENT, 'GLEANER_DEPLOYMENT')},
    origins: {
      project: 'GLEANER_PROJECT',
      bucket: 'GLEANER_BUCKET',
      deployment: deployment === undefined ? 'default' : 'GLEANER_DEPLOYMENT',
      jobs: 'default',
    },
  };
}

function fromFile(env: NodeJS.ProcessEnv, file: string): Named | undefined {
  if (!existsSync(file)) return undefined;
  const {project, name = DEFAULT_DEPLOYMENT, jobs_collection} = readSettings(file);
  if (typeof project !== 'string') throw new CliError(`${file} names no project: set "project" in it`);
  const deployment = deploymentNamed(String(name), `"name" in ${file}`);
  return {
    // Terraform names the bucket in this way.
    ...{project, deployment, bucket: env.GLEANER_BUCKET || `${project}-${deployment}`},
    ...(typeof jobs_collection === 'string' ? {jobs: jobs_collection} : {}),
    origins: {
      project: file,
      bucket: env.GLEANER_BUCKET ? 'GLEANER_BUCKET' : file,
      deployment: name === DEFAULT_DEPLOYMENT ? 'default' : file,
      jobs: jobs_collection === undefined ? 'default' : file,
    },
  };
}

function readSettings(file: string): Settings {
  try {
    const settings: unknown = JSON.parse(readFileSync(file, 'utf8'));
    if (typeof settings === 'object' && settings !== null) return settings;
    throw new Error('it is not a JSON object');
  } catch (cause) {
    throw new CliError(`Failed to read the settings in ${file}: ${(cause as Error).message}`, {cause});
  }
}

function deploymentNamed(name: string, source: string): string {
  if (isDeployment(name)) return name;
  throw new CliError(
    `${source} is "${name}": set it to 4 to 15 lower-case letters, digits and dashes, such as gleaner`,
  );
}
