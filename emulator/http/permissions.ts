/** What the accounts of a deployment may call, following their roles at Google. The token of the cloud may call everything. */
import {nameIn} from '../../shared/domain/deployment.ts';
import type {Caller, Role} from './access-tokens.ts';
import {ApiError} from './errors.ts';
import type {Request, Route} from './http.ts';

/** Google requires no permission, or the handler checks the object or the secret itself. */
const NONE = '';
export const PUBLISH = 'pubsub.topics.publish';
/** Every other permission of Pub/Sub, which no account has. */
export const PUBSUB = 'pubsub';

/** Permission of a route that names none, by its method and template. The first matching row applies, and each route needs one. */
const PERMISSIONS: readonly (readonly [routes: RegExp, permission: string])[] = [
  [/^GET (\/_local|\/oauth2\/v1\/certs|\/v1\/services\/\{service\}\/skus)$|^POST \/v1\/token$/, NONE],
  [/^\S+ (\/\w+)*\/b\/\{bucket\}\/o(\/.*)?$|^GET \/\{bucket\}\/|^POST \/batch\/|^GET .*:access$/, NONE],
  [/^\S+ (\/storage\/v1)?\/b(\/|$)/, 'storage.buckets'],
  [/^\S+ \/_local\//, 'local'],
  [/^\S+ \/functions\//, 'run.routes.invoke'],
  [/^POST .*\/topics\/\{topic\}:publish$/, PUBLISH],
  [/^\S+ \/v1\/projects\/\{project\}\/(topics|subscriptions)(\/|$)/, PUBSUB],
  [/^\S+ \/v1\/projects\/\{project\}\/locations\/\{location\}\/jobs(\/|$)/, 'cloudscheduler.jobs'],
];

/** Permissions of each account, and the topics on which it publishes. `test/terraform/roles.test.ts` compares them with Terraform's. */
export const ACCOUNT_PERMISSIONS: Record<Role, {permissions: readonly string[]; topics: readonly string[]}> =
  {
    worker: {permissions: [], topics: []},
    control: {
      permissions: [
        ...['create', 'delete', 'get', 'list'].flatMap(verb => [
          `tpu.nodes.${verb}`,
          `compute.instances.${verb}`,
        ]),
        ...['tpu.operations.get', 'compute.zoneOperations.get'],
      ],
      topics: ['tasks', 'tick', 'tpu'],
    },
    'worker-api': {permissions: [], topics: ['tasks', 'tick']},
  };

/** Throws for a route without a row. */
export function permissionOf([method, template, , permission]: Route): string {
  if (permission !== undefined) return permission;
  const route = `${method} ${template}`;
  const row = PERMISSIONS.find(([routes]) => routes.test(route));
  if (!row) throw new Error(`There is no permission for ${route}: add a row to PERMISSIONS`);
  return row[1];
}

/** The routes, restricted to callers with their permission. */
export function authorized(routes: readonly Route[]): Route[] {
  return routes.map(route => {
    const [method, template, handler] = route;
    const permission = permissionOf(route);
    const answer = (request: Request) => {
      requirePermission(request.caller, permission, request.params.topic);
      return handler(request);
    };
    return [method, template, answer];
  });
}

/** Throws if an account lacks a permission. `topic`: only for a publish. */
export function requirePermission(caller: Caller, permission: string, topic = ''): void {
  if (caller === undefined || caller === 'cloud' || permission === NONE) return;
  const {email, role, deployment} = caller;
  const given = role && ACCOUNT_PERMISSIONS[role];
  const has =
    permission === PUBLISH
      ? given?.topics.some(each => nameIn(deployment, each) === topic)
      : given?.permissions.includes(permission);
  if (!has) throw new ApiError(403, `Permission '${permission}' denied for ${email}`);
}
