/** Policies of an organization that a deployment may break: asked before the first apply, and by doctor. */
import type {GoogleApi, Json} from '../../client/google/api.ts';
import {isBadRequest, isForbidden, isNotFound} from '../../shared/google/errors.ts';
import {neededApis} from './project.ts';
import type {Deployed, Settings} from './settings.ts';

/** An effective policy: `enforced`, or lists of values. Empty lists allow all. */
type Policy = {enforced: boolean; denies_all: boolean; allowed: string[]; denied: string[]};

/**
 * What a constraint must allow: all of some values, or one of them; without both, it must not be enforced. `what`: that, for a person.
 * `depends`: a list may name groups, folders or organizations, or leave out what Google always allows; only what it denies is sure.
 */
type Rule = {constraint: string; all?: string[]; one?: string[]; what?: string; depends?: true};

/** No list names it, so each list forbids it. */
const ANY = ['any'];
/** Settings with members, who may be of another organization. */
const MEMBERS = ['operators', 'users', 'exec_publishers', 'dashboard_members'];

type Deployment = Pick<Deployed, 'region' | 'provider'> & {settings: Settings};

function rulesOf({region, provider, settings}: Deployment): Rule[] {
  const {external_ips = false, nat = true} = (settings.network ?? {}) as Record<string, boolean>;
  const given = MEMBERS.filter(name => ((settings[name] ?? []) as unknown[]).length > 0);
  const members = `members of other organizations in ${given.map(name => `\`${name}\``).join(', ')}`;
  const area = region.split('-', 1)[0];
  const only = (isAsked: boolean, ...rules: Rule[]) => (isAsked ? rules : []);
  return [
    {constraint: 'iam.disableServiceAccountCreation', what: 'the accounts of a deployment'},
    {
      constraint: 'gcp.restrictServiceUsage',
      all: neededApis().map(name => `${name}.googleapis.com`),
      depends: true,
    },
    {
      constraint: 'gcp.resourceLocations',
      one: [region, `in:${region}-locations`, `in:${area}-locations`],
      depends: true,
    },
    {constraint: 'cloudfunctions.allowedIngressSettings', one: ['ALLOW_ALL']},
    {constraint: 'run.allowedIngress', one: ['all']},
    {constraint: 'compute.requireShieldedVm', what: 'TPU VMs, which have no Secure Boot'},
    ...only(provider === 'compute-engine', {
      constraint: 'compute.trustedImageProjects',
      one: ['projects/ubuntu-os-accelerator-images'],
    }),
    ...only(external_ips, {
      constraint: 'compute.vmExternalIpAccess',
      all: ANY,
      what: 'external addresses',
      depends: true,
    }),
    ...only(nat, {constraint: 'compute.restrictCloudNATUsage', all: ANY, what: 'Cloud NAT', depends: true}),
    ...only(
      given.length > 0,
      {constraint: 'iam.allowedPolicyMemberDomains', all: ANY, what: members, depends: true},
      {constraint: 'iam.managed.allowedPolicyMembers', all: ANY, what: members, depends: true},
    ),
  ];
}

const isIn = (list: string[], value: string) => list.includes(value) || list.includes(`is:${value}`);

function forbiddenOf({constraint, all = [], one = [], ...rule}: Rule, policy: Policy): Forbidden[] {
  const {enforced, denies_all, allowed, denied} = policy;
  if (all.length + one.length === 0)
    return enforced ? [{constraint, what: rule.what ?? '', depends: false}] : [];
  const isDenied = (value: string) => denies_all || isIn(denied, value);
  const isAllowed = (value: string) => !isDenied(value) && (allowed.length === 0 || isIn(allowed, value));
  const isOneLeft = one.length === 0 || (one.some(isAllowed) && !one.some(isDenied));
  const missing = [...all.filter(value => !isAllowed(value)), ...(isOneLeft ? [] : one.slice(0, 1))];
  if (missing.length === 0) return [];
  const depends = rule.depends === true && ![...all, ...one].some(isDenied);
  return [{constraint, what: rule.what ?? missing.join(', '), depends}];
}

/** `what`: what the policy forbids, for a person; `depends`: or may forbid. */
export type Forbidden = {constraint: string; what: string; depends: boolean};

/** The policies that forbid a part of a deployment. */
export async function forbiddenBy(
  api: GoogleApi,
  project: string,
  deployment: Deployment,
): Promise<Forbidden[]> {
  const found = rulesOf(deployment).map(async rule => {
    const ask = rule.constraint.includes('.managed.') ? managedPolicy : effectivePolicy;
    const policy = await ask(api, project, rule.constraint);
    return policy ? forbiddenOf(rule, policy) : [];
  });
  return (await Promise.all(found)).flat();
}

export const forbiddenText = ({constraint, what, depends}: Forbidden) =>
  `constraints/${constraint} ${depends ? 'may forbid' : 'forbids'} ${what}`;

type Answer = {
  booleanPolicy?: {enforced?: boolean};
  listPolicy?: {allValues?: string; allowedValues?: string[]; deniedValues?: string[]};
};

async function effectivePolicy(api: GoogleApi, project: string, constraint: string): Promise<Policy> {
  const address = `cloudresourcemanager.googleapis.com/v1/projects/${project}:getEffectiveOrgPolicy`;
  const answer = (await api.call('POST', address, {constraint: `constraints/${constraint}`})) as Answer;
  const {allValues, allowedValues: allowed = [], deniedValues: denied = []} = answer.listPolicy ?? {};
  const enforced = answer.booleanPolicy?.enforced === true;
  return {enforced, denies_all: allValues === 'DENY', allowed, denied};
}

/** Undefined where the API of policies is off, or the organization has no such constraint. */
async function managedPolicy(api: GoogleApi, project: string, constraint: string) {
  const address = `orgpolicy.googleapis.com/v2/projects/${project}/policies/${constraint}:getEffectivePolicy`;
  try {
    const {rules = []} = (await api.call('GET', address)).spec as {rules?: Json[]};
    const enforcing = rules.filter(({enforce}) => enforce === true);
    const allowed = enforcing.flatMap(({parameters}) => Object.values(parameters ?? {}) as string[][]).flat();
    return {enforced: enforcing.length > 0, denies_all: false, allowed, denied: []};
  } catch (error) {
    if (isForbidden(error) || isNotFound(error) || isBadRequest(error)) return undefined;
    throw error;
  }
}
