/** Names of clouds: the folder of a local cloud, or a deployment on Google Cloud as PROJECT/DEPLOYMENT. */
import {homedir} from 'node:os';
import {join, resolve} from 'node:path';
import {DEFAULT_DEPLOYMENT, isDeployment} from '../../shared/domain/deployment.ts';
import {CliError} from '../text/errors.ts';

type LocalName = {kind: 'local'; dir: string};
export type ProjectName = {kind: 'project'; project: string; deployment: string};
export type CloudName = LocalName | ProjectName;

/** A project of Google Cloud, perhaps of a domain such as example.com:my-project, and a deployment. */
const PROJECT = /^((?:[a-z0-9.-]+:)?[a-z][a-z0-9-]{1,61}[a-z0-9])(?:\/(.+))?$/;

/**
 * Reads the name of a cloud, as a person types it: `my-project`, `my-project/gleaner`, or a path of a folder that begins with `/`, `.` or
 * `~`. Throws `CliError` for another text.
 */
export function parseCloudName(given: string): CloudName {
  if (/^~(\/|$)/.test(given)) return {kind: 'local', dir: join(homeFolder(), given.slice(1))};
  if (/^[./]/.test(given)) return {kind: 'local', dir: resolve(given)};
  const [, project, deployment = DEFAULT_DEPLOYMENT] = PROJECT.exec(given) ?? [];
  if (project !== undefined && isDeployment(deployment)) return {kind: 'project', project, deployment};
  throw new CliError(
    `"${given}" is not the name of a cloud: give a project as PROJECT or PROJECT/DEPLOYMENT, or the folder of a local cloud as a path such as ./.gleaner/local; \`gleaner cloud list\` lists those in use`,
  );
}

/** The name that `parseCloudName` reads. */
export function cloudName(cloud: CloudName): string {
  return cloud.kind === 'local' ? cloud.dir : `${cloud.project}/${cloud.deployment}`;
}

/** `local, ~/work/.gleaner/local`, or `project my-project, deployment gleaner`. */
export function cloudText(cloud: CloudName): string {
  if (cloud.kind === 'local') return `local, ${homeText(cloud.dir)}`;
  return `project ${cloud.project}, deployment ${cloud.deployment}`;
}

export const homeFolder = () => process.env.HOME || homedir();

/** A path with `~` in place of the home folder. */
export function homeText(path: string): string {
  const home = homeFolder();
  return path === home || path.startsWith(`${home}/`) ? `~${path.slice(home.length)}` : path;
}
