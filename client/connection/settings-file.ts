/** The deployment that a settings file of `gleaner deploy` names. */
import {readFileSync} from 'node:fs';
import {DEFAULT_DEPLOYMENT, isDeployment} from '../../shared/domain/deployment.ts';
import {CliError} from '../text/errors.ts';
import type {ProjectName} from './cloud-name.ts';

/** File that `gleaner deploy` reads, where no other is named. */
export const SETTINGS_FILE = 'gleaner.tfvars.json';

type Settings = {project?: unknown; name?: unknown; jobs_collection?: unknown};

/** Throws `CliError` for a file that names no project, or a deployment that cannot exist. */
export function projectIn(file: string): ProjectName {
  const {project, name = DEFAULT_DEPLOYMENT} = readSettings(file);
  if (typeof project !== 'string') throw new CliError(`${file} names no project: set "project" in it`);
  const deployment = String(name);
  if (isDeployment(deployment)) return {kind: 'project', project, deployment};
  throw new CliError(
    `"name" in ${file} is "${deployment}": set it to 4 to 15 lower-case letters, digits and dashes, such as gleaner`,
  );
}

/** Collection of the documents of jobs; undefined for the default one. */
export function jobsIn(file: string): string | undefined {
  const {jobs_collection: jobs} = readSettings(file);
  return typeof jobs === 'string' ? jobs : undefined;
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
