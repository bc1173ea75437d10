/** Rights of the service accounts in the bucket of their deployment. `test/terraform/roles.test.ts` compares them with Terraform's. */
import type {Deployment} from '../functions/subscriptions.ts';
import type {Account, Role} from '../http/access-tokens.ts';
import {leaves, type Right} from '../http/boundary.ts';
import {ApiError} from '../http/errors.ts';
import {unauthenticated} from '../http/guard.ts';
import type {Request} from '../http/http.ts';

const READ: Right[] = ['get', 'list'];
const CREATE: Right[] = ['create', ...READ];
const REPLACE: Right[] = ['create', 'delete', ...READ];

type Folders = Record<string, readonly Right[]>;

/** By account and folder. A local cloud keeps logs and checkpoints in the data bucket, and its event functions make the requests of worker-api there. */
export const ACCOUNT_RIGHTS: Record<Role, Folders> = {
  worker: {
    'bundles/': READ,
    'environments/': READ,
  },
  control: {
    'activations/': REPLACE,
    'checkpoints/': ['delete', ...READ],
    'datasets/': ['delete', ...READ],
    'jobs/': READ,
    'models/': READ,
    'partials/': ['delete', ...READ],
    'set-aside/': CREATE,
    'system/': REPLACE,
  },
  'worker-api': {
    'activations/': CREATE,
    'checkpoints/': REPLACE,
    'code/': READ,
    'datasets/': READ,
    'execs/': CREATE,
    'jobs/': CREATE,
    'logs/': ['create', 'delete'],
    'models/': READ,
    'partials/': REPLACE,
  },
};

/** Throws if the account of the request lacks the right. The token of the cloud has every right. */
export type RequireRight = (request: Request, right: Right, bucket: string, name: string) => void;

export function rightsOf(deployments: readonly Deployment[]): RequireRight {
  return ({caller}, right, bucket, name) => {
    if (caller === 'cloud') return;
    if (caller === undefined) throw unauthenticated();
    const {email, boundary} = caller;
    const isInBounds = boundary === undefined || leaves(boundary, right, bucket, name);
    if (isInBounds && mayAccess(caller, deployments, right, bucket, name)) return;
    const permission = right === 'see' ? 'storage.buckets.get' : `storage.objects.${right}`;
    throw new ApiError(
      403,
      `${email} does not have ${permission} access to the Google Cloud Storage object. Permission '${permission}' denied on resource (or it may not exist): ${bucket}/${name}`,
    );
  };
}

function mayAccess(
  {role, deployment}: Account,
  deployments: readonly Deployment[],
  right: Right,
  bucket: string,
  name: string,
): boolean {
  const isOwn = deployments.some(each => each.bucket === bucket && each.name === deployment);
  // In Terraform of the bucket of checkpoints alone.
  if (right === 'see') return isOwn && role === 'worker-api';
  const folders: Folders = isOwn && role ? ACCOUNT_RIGHTS[role] : {};
  const folder = Object.keys(folders).find(each => name.startsWith(each));
  return folder !== undefined && (folders[folder] ?? []).includes(right);
}
