/** Names of a deployment. Several deployments share a project, and each touches only resources with its own name. */

export const DEFAULT_DEPLOYMENT = 'gleaner';

/** 4 to 15 characters: the id of a Firestore database needs 4, and the account `NAME-worker-api` may have 30. */
export const DEPLOYMENT = /^[a-z][a-z0-9-]{2,13}[a-z0-9]$/;

export const isDeployment = (text: string) => DEPLOYMENT.test(text);

/** Name of a topic or a pool in Google Cloud: deployments other than the default one add a prefix. The control plane uses the plain name only. */
export function nameIn(deployment: string, name: string): string {
  return deployment === DEFAULT_DEPLOYMENT ? name : `${deployment}-${name}`;
}

/** Name of the pool, and the start of the name of every node. */
export const poolOf = (deployment: string) => nameIn(deployment, 'tpu');

export const POOL = /^[a-z][a-z0-9-]{0,30}$/;

/** Why this deployment cannot have a pool of this name, or undefined. Other deployments have other pool names. */
export function poolNameProblem(name: string, deployment: string): string | undefined {
  if (!POOL.test(name))
    return `"${name}" is not a pool name: use 1 to 31 lower-case letters, digits and dashes`;
  const prefix = nameIn(deployment, '');
  return name.startsWith(prefix) ? undefined : `pool names of this deployment start with ${prefix}`;
}

export const tickJobOf = (deployment: string) => `${deployment}-tick`;

const DEPLOYMENT_LABEL = 'gleaner-deployment';

type Labels = Record<string, string>;

export function labelsOf(deployment: string): Labels {
  return {'managed-by': 'gleaner', [DEPLOYMENT_LABEL]: deployment};
}

/** True for labels of the deployment. */
export function isLabelled(labels: Labels, deployment: string): boolean {
  return labels['managed-by'] === 'gleaner' && labels[DEPLOYMENT_LABEL] === deployment;
}
