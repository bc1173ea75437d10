/** Rights of the service accounts in the bucket of their deployment. `test/terraform/roles.test.ts` compares them with Terraform's. */
import type {Deployment} from '../functions/subscriptions.ts';
import {accountWith} from '../http/access-tokens.ts';
import {ApiError} from '../http/errors.ts';
import type {Request} from '../http/http.ts';
import {accountsOf} from '../http/identity.ts';
import {leaves, type Right} from './boundary.ts';

const READ: Right[] = ['get', 'list'];
const CREATE: Right[] = ['create', ...READ];
const REPLACE: Right[] = ['create', 'delete', ...READ];

type Folders = Record<string, readonly Right[]>;

/** By account and folder. A local cloud has the logs in the bucket of the data. The event functions do the requests of worker-api there. */
export const ACCOUNT_RIGHTS: Record<'worker' | 'control' | 'worker-api', Folders> = {
  worker: {
    'bundles/': READ,
    'environments/': READ,
  },
  control: {
    'activations/': REPLACE,
    'datasets/': READ,
    'jobs/': READ,
    'models/': READ,
    'partials/': ['delete', ...READ],
    'system/': REPLACE,
  },
  'worker-api': {
    'activations/': CREATE,
    'code/': READ,
    'datasets/': READ,
    'execs/': CREATE,
    'jobs/': CREATE,
    'logs/': ['create', 'delete'],
    'models/': READ,
    'partials/': REPLACE,
  },
};

/** Throws where the account of the request lacks the right. The token of the cloud has every right. */
export type RequireRight = (request: Request, right: Right, bucket: string, name: string) => void;

export function rightsOf(project: string, token: string, deployments: readonly Deployment[]): RequireRight {
  return ({headers}, right, bucket, name) => {
    const account = accountWith(headers, token);
    if (account === undefined) return;
    const {email, boundary} = account;
    const isInBounds = boundary === undefined || leaves(boundary, right, bucket, name);
    if (isInBounds && mayAccess(project, deployments, email, right, bucket, name)) return;
    throw new ApiError(
      403,
      `${email} does not have storage.objects.${right} access to the Google Cloud Storage object. Permission 'storage.objects.${right}' denied on resource (or it may not exist): ${bucket}/${name}`,
    );
  };
}

function mayAccess(
  project: string,
  deployments: readonly Deployment[],
  email: string,
  right: Right,
  bucket: string,
  name: string,
): boolean {
  const deployment = deployments.find(each => each.bucket === bucket);
  if (!deployment) return false;
  const accounts = accountsOf(project, deployment.name);
  const account = (['worker', 'control', 'worker-api'] as const).find(each => accounts[each] === email);
  const folders: Folders = account === undefined ? {} : ACCOUNT_RIGHTS[account];
  const folder = Object.keys(folders).find(each => name.startsWith(each));
  return folder !== undefined && (folders[folder] ?? []).includes(right);
}
