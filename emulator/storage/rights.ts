/** Rights of the service accounts in the bucket of their deployment. `test/terraform/roles.test.ts` compares them with Terraform's. */
import type {Deployment} from '../functions/subscriptions.ts';
import {ApiError} from '../http/errors.ts';
import {accountWith} from '../http/guard.ts';
import type {Request} from '../http/http.ts';
import {accountsOf} from '../http/identity.ts';

export type Right = 'create' | 'delete' | 'get' | 'list' | 'update';

const READ: Right[] = ['get', 'list'];
const CREATE: Right[] = ['create', ...READ];
const REPLACE: Right[] = ['create', 'delete', ...READ];

type Folders = Record<string, readonly Right[]>;

/** By account and folder. A local cloud has the logs in the bucket of the data. */
export const ACCOUNT_RIGHTS: Record<'worker' | 'control', Folders> = {
  worker: {
    'activations/': CREATE,
    'bundles/': READ,
    'code/': READ,
    'datasets/': READ,
    'environments/': READ,
    'execs/': CREATE,
    'jobs/': CREATE,
    'logs/': ['create', 'delete'],
    'models/': READ,
    'partials/': CREATE,
  },
  control: {
    'activations/': REPLACE,
    'datasets/': READ,
    'jobs/': READ,
    'models/': READ,
    'partials/': ['delete', ...READ],
    'system/': REPLACE,
  },
};

/** Objects in the folders of the workers that the control plane alone writes. */
export const NOT_OF_WORKERS = '/manifest.json';

/** Throws where the account of the request lacks the right. The token of the cloud has every right. */
export type RequireRight = (request: Request, right: Right, bucket: string, name: string) => void;

export function rightsOf(project: string, token: string, deployments: readonly Deployment[]): RequireRight {
  return ({headers}, right, bucket, name) => {
    const email = accountWith(headers, token);
    if (email === undefined || mayAccess(project, deployments, email, right, bucket, name)) return;
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
  const {worker, control} = accountsOf(project, deployment.name);
  const folders = email === worker ? ACCOUNT_RIGHTS.worker : email === control ? ACCOUNT_RIGHTS.control : {};
  if (email === worker && name.endsWith(NOT_OF_WORKERS)) return false;
  const folder = Object.keys(folders).find(each => name.startsWith(each));
  return folder !== undefined && (folders[folder] ?? []).includes(right);
}
