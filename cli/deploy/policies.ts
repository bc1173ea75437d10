/** Policies of an organization that a deployment may break: asked before the first apply, and by doctor. */
import type {GoogleApi, Json} from '../../client/google/api.ts';
import {isBadRequest, isForbidden, isNotFound} from '../../shared/google/errors.ts';
import {policyMend} from '../../shared/google/known-errors.ts';
import {neededApis} from './project.ts';
import type {Deployed, Settings} from './settings.ts';

/** The effective policy of a constraint: `enforced`, or lists of values; empty lists allow all. */
type Policy = {enforced: boolean; denies_all: boolean; allowed: string[]; denied: string[]};

type Asked = {constraint: string; managed?: true; forbids: (policy: Policy) => string | undefined};

const isAllowed = ({denies_all, allowed, denied}: Policy, value: string) =>
  !denies_all && !denied.includes(value) && (allowed.length === 0 || allowed.includes(value));

const enforced = (constraint: string, what: string): Asked => ({
  constraint,
  forbids: policy => (policy.enforced ? what : undefined),
});

/** A list that must allow all of the values. */
const allOf = (constraint: string, values: string[], what = ''): Asked => ({
  constraint,
  forbids: policy => {
    const missing = values.filter(value => !isAllowed(policy, value));
    return missing.length > 0 ? what || missing.join(', ') : undefined;
  },
});

/** A list that must allow one of the values. */
const oneOf = (constraint: string, values: string[]): Asked => ({
  constraint,
  forbids: policy => (values.some(value => isAllowed(policy, value)) ? undefined : values[0]),
});

/** Settings with members, who may be of another organization. */
const MEMBERS = ['operators', 'users', 'exec_publishers', 'dashboard_members'];

function asked({
  region,
  provider,
  settings,
}: Pick<Deployed, 'region' | 'provider'> & {settings: Settings}): Asked[] {
  const {external_ips = false, nat = true} = (settings.network ?? {}) as {
    external_ips?: boolean;
    nat?: boolean;
  };
  const members = MEMBERS.filter(name => ((settings[name] ?? []) as unknown[]).length > 0);
  const ofMembers = (constraint: string): Asked => ({
    constraint,
    forbids: ({allowed, denies_all}) =>
      allowed.length > 0 || denies_all
        ? `members of other organizations than ${allowed.join(', ')} in ${members.map(name => `\`${name}\``).join(', ')}`
        : undefined,
  });
  return [
    enforced('iam.disableServiceAccountCreation', 'the accounts of a deployment'),
    allOf(
      'gcp.restrictServiceUsage',
      neededApis().map(name => `${name}.googleapis.com`),
    ),
    oneOf('gcp.resourceLocations', [
      region,
      `in:${region}-locations`,
      `in:${region.split('-', 1)[0]}-locations`,
    ]),
    oneOf('cloudfunctions.allowedIngressSettings', ['ALLOW_ALL']),
    oneOf('run.allowedIngress', ['all']),
    enforced('compute.requireShieldedVm', 'TPU VMs, which have no Secure Boot'),
    ...(provider === 'compute-engine'
      ? [oneOf('compute.trustedImageProjects', ['projects/ubuntu-os-accelerator-images'])]
      : []),
    ...(external_ips ? [allOf('compute.vmExternalIpAccess', ['any'], 'external addresses of TPUs')] : []),
    ...(nat ? [allOf('compute.restrictCloudNATUsage', ['any'], 'Cloud NAT')] : []),
    ...(members.length > 0
      ? [
          ofMembers('iam.allowedPolicyMemberDomains'),
          {...ofMembers('iam.managed.allowedPolicyMembers'), managed: true as const},
        ]
      : []),
  ];
}

/** `what`: what the policy forbids, for a person. */
export type Forbidden = {constraint: string; what: string};

/** The policies that forbid a part of a deployment. */
export async function forbiddenBy(
  api: GoogleApi,
  project: string,
  deployed: Parameters<typeof asked>[0],
): Promise<Forbidden[]> {
  const found = await Promise.all(
    asked(deployed).map(async ({constraint, managed, forbids}) => {
      const policy = await (managed ? managedPolicy : listOrFlag)(api, project, constraint);
      const what = policy && forbids(policy);
      return what === undefined ? [] : [{constraint, what}];
    }),
  );
  return found.flat();
}

export const forbiddenText = ({constraint, what}: Forbidden) =>
  `constraints/${constraint} forbids ${what}; ${policyMend(constraint)}`;

type Answer = {
  booleanPolicy?: {enforced?: boolean};
  listPolicy?: {allValues?: string; allowedValues?: string[]; deniedValues?: string[]};
};

async function listOrFlag(api: GoogleApi, project: string, constraint: string): Promise<Policy> {
  const address = `cloudresourcemanager.googleapis.com/v1/projects/${project}:getEffectiveOrgPolicy`;
  const answer = (await api.call('POST', address, {constraint: `constraints/${constraint}`})) as Answer;
  const {allValues, allowedValues = [], deniedValues = []} = answer.listPolicy ?? {};
  return {
    enforced: answer.booleanPolicy?.enforced === true,
    denies_all: allValues === 'DENY',
    allowed: allowedValues,
    denied: deniedValues,
  };
}

/** Undefined where the API of policies is off, or the organization has no such constraint. */
async function managedPolicy(
  api: GoogleApi,
  project: string,
  constraint: string,
): Promise<Policy | undefined> {
  const address = `orgpolicy.googleapis.com/v2/projects/${project}/policies/${constraint}:getEffectivePolicy`;
  try {
    const {spec} = (await api.call('GET', address)) as {spec?: {rules?: Json[]}};
    const rules = spec?.rules ?? [];
    const parameters = rules.flatMap(({parameters}) =>
      Object.values((parameters ?? {}) as Record<string, string[]>),
    );
    return {
      enforced: rules.some(({enforce}) => enforce === true),
      denies_all: false,
      allowed: rules.some(({enforce}) => enforce === true) ? parameters.flat() : [],
      denied: [],
    };
  } catch (error) {
    if (isForbidden(error) || isNotFound(error) || isBadRequest(error)) return undefined;
    throw error;
  }
}
