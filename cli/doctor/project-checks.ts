/** Checks of the project: its APIs, accounts, roles, policies and quotas. */

import type {GoogleApi} from '../../client/google/api.ts';
import {quoted} from '../../client/text/output.ts';
import {nameIn} from '../../shared/domain/deployment.ts';
import {isRegional, QUOTA_SERVICE, quotaIdsOf, quotaSizeOf} from '../../shared/domain/fleet/accelerators.ts';
import {regionOf} from '../../shared/domain/names.ts';
import {machineTypeOf} from '../../shared/domain/records/providers.ts';
import {isForbidden, isNotFound} from '../../shared/google/errors.ts';
import {policyMend} from '../../shared/google/known-errors.ts';
import {grantLine, SECRET_READER} from '../../shared/google/secrets.ts';
import type {Store} from '../../shared/ports/ports.ts';
import {forbiddenBy, forbiddenText} from '../deploy/policies.ts';
import {enabledApis, neededApis} from '../deploy/project.ts';
import type {Settings} from '../deploy/settings.ts';
import {broken, type Check, type Context, grantsIn, ok, warning} from './context.ts';

const RESOURCES = 'cloudresourcemanager.googleapis.com/v1/projects';
const IAM = 'iam.googleapis.com/v1/projects';
const ACCOUNTS = ['build', 'control', 'invoker', 'worker', 'worker-api'];

/** Permissions that the commands need on the project, each with a role that has it. */
const PROJECT_PERMISSIONS: Readonly<Record<string, string>> = {
  'cloudscheduler.jobs.get': 'roles/cloudscheduler.viewer',
  'tpu.nodes.list': 'roles/tpu.viewer',
};

const emailOf = ({name, project}: Context, account: string) =>
  `${name}-${account}@${project}.iam.gserviceaccount.com`;

const apis: Check = {
  name: 'APIs',
  async check({api, project}) {
    const enabled = await enabledApis(api, project);
    const off = neededApis().filter(name => !enabled.has(name));
    if (off.length === 0) return ok(`${enabled.size} are on`);
    const services = off.map(each => `${each}.googleapis.com`).join(' ');
    return broken(
      `these are off: ${off.join(', ')}`,
      `gcloud services enable ${services} --project=${project}`,
    );
  },
};

const accounts: Check = {
  name: 'service accounts',
  async check(context) {
    const {api, project} = context;
    const problems: string[] = [];
    for (const account of ACCOUNTS) {
      const email = emailOf(context, account);
      try {
        const {disabled} = await api.call('GET', `${IAM}/${project}/serviceAccounts/${email}`);
        if (disabled) problems.push(`${email} is disabled`);
      } catch (error) {
        if (!isNotFound(error)) throw error;
        problems.push(`${email} is absent`);
      }
    }
    const disabled = problems.find(each => each.endsWith('disabled'))?.split(' ', 1)[0];
    if (problems.length === 0) return ok(`${ACCOUNTS.length} exist`);
    const cure = disabled
      ? `gcloud iam service-accounts enable ${disabled} --project=${project}`
      : 'gleaner deploy';
    return broken(problems.join(', '), cure);
  },
};

const roles: Check = {
  name: 'roles',
  async check(context) {
    const {api, project, name, settings} = context;
    const {projectNumber} = await api.call('GET', `${RESOURCES}/${project}`);
    const worker = emailOf(context, 'worker');
    const [ofProject, ofWorker] = await Promise.all([
      api.call('POST', `${RESOURCES}/${project}:getIamPolicy`, {options: {requestedPolicyVersion: 3}}),
      api.call('POST', `${IAM}/${project}/serviceAccounts/${worker}:getIamPolicy`),
    ]);
    const control = `serviceAccount:${emailOf(context, 'control')}`;
    const agent = (domain: string) =>
      `serviceAccount:service-${projectNumber}@${domain}.iam.gserviceaccount.com`;
    const tpuAgents = [
      `roles/tpu.serviceAgent ${agent('cloud-tpu')}`,
      `roles/cloudtpu.serviceAgent ${agent('gcp-sa-tpu')}`,
    ];
    const wanted = [
      `projects/${project}/roles/${name.replaceAll('-', '_')}_tpu ${control}`,
      `roles/datastore.user ${control}`,
      `roles/datastore.user serviceAccount:${emailOf(context, 'worker-api')}`,
      `roles/eventarc.serviceAgent ${agent('gcp-sa-eventarc')}`,
      `roles/pubsub.serviceAgent ${agent('gcp-sa-pubsub')}`,
    ];
    const granted = grantsIn(ofProject);
    const missing = wanted.find(grant => !granted.has(grant));
    if (missing !== undefined) {
      const [role, member] = missing.split(' ');
      // The roles of the deployment have conditions, which Terraform writes.
      const cure = role?.endsWith('.serviceAgent')
        ? `gcloud projects add-iam-policy-binding ${project} --member=${member} --role=${role}`
        : 'gleaner deploy';
      return broken(`${member} lacks ${role}`, cure);
    }
    if (!grantsIn(ofWorker).has(`roles/iam.serviceAccountUser ${control}`))
      return broken(`${control} may not give nodes the account ${worker}`, 'gleaner deploy');
    const late = tpuAgents.find(grant => !granted.has(grant))?.split(' ');
    if (late)
      return warning(
        `${late[1]} lacks ${late[0]}: Google makes this account with the first TPU, which may be refused meanwhile`,
        `gcloud beta services identity create --service=tpu.googleapis.com --project=${project}`,
      );
    const host = hostOf(settings, project);
    const shared = `; ${host}, which has the network, must grant roles/tpu.xpnAgent to ${agent('cloud-tpu')}`;
    return ok(`${wanted.length + tpuAgents.length + 1} are granted${host ? shared : ''}`);
  },
};

/** The other project that shares its network with this one; undefined for a network of this project. */
function hostOf({network}: Settings, project: string): string | undefined {
  const {name = ''} = (network ?? {}) as {name?: string};
  const [, host] = /\bprojects\/([^/]+)\//.exec(name) ?? [];
  return host === project ? undefined : host;
}

const PUBLISH = 'pubsub.topics.publish';
const READ_STATE = 'datastore.entities.list';

/** Asks on the topic and in the database, because `operators` get their roles there and not on the project. */
const permissions: Check = {
  name: 'your permissions',
  async check({api, project, name, store}) {
    const topic = `pubsub.googleapis.com/v1/projects/${project}/topics/${nameIn(name, 'control')}`;
    const asked = Object.keys(PROJECT_PERMISSIONS);
    const held = new Set([
      ...(await heldOf(api, `${RESOURCES}/${project}`, asked)),
      ...(await heldOf(api, topic, [PUBLISH])),
      ...((await readsState(store)) ? [READ_STATE] : []),
    ]);
    const wanted = [...asked, READ_STATE, PUBLISH];
    const missing = wanted.filter(each => !held.has(each));
    if (missing.length === 0) return ok(`${wanted.length} of ${wanted.length}`);
    if (missing.includes(PUBLISH) && (await isAbsent(api, topic)))
      return broken(`there is no topic ${nameIn(name, 'control')}`, 'gleaner deploy');
    const account = await api.account();
    const member = `${account.endsWith('.gserviceaccount.com') ? 'serviceAccount' : 'user'}:${quoted(account)}`;
    const cures = missing.flatMap(each => {
      const role = PROJECT_PERMISSIONS[each];
      return role
        ? `gcloud projects add-iam-policy-binding ${project} --member=${member} --role=${role}`
        : [];
    });
    if (missing.includes(READ_STATE) || missing.includes(PUBLISH))
      cures.push(`add ${account} to \`operators\` in the settings, and run \`gleaner deploy\``);
    return warning(
      `this account lacks ${missing.join(', ')}`,
      `use the account that deployed; or ${cures.join('; ')}; a new role needs some minutes`,
    );
  },
};

async function heldOf(api: GoogleApi, resource: string, asked: string[]): Promise<string[]> {
  const {permissions: held = []} = await api.call('POST', `${resource}:testIamPermissions`, {
    permissions: asked,
  });
  return held as string[];
}

/** Pub/Sub answers a question about the permissions of an absent topic with none. */
async function isAbsent(api: GoogleApi, resource: string): Promise<boolean> {
  try {
    await api.call('GET', resource);
    return false;
  } catch (error) {
    if (isForbidden(error)) return false;
    if (isNotFound(error)) return true;
    throw error;
  }
}

async function readsState(store: Store): Promise<boolean> {
  try {
    await store.query('pools', {limit: 1});
    return true;
  } catch (error) {
    if (isForbidden((error as Error).cause)) return false;
    throw error;
  }
}

const policies: Check = {
  name: 'organization policies',
  async check({api, project, region, provider, settings}) {
    const forbidden = await forbiddenBy(api, project, {region, provider, settings});
    const [first] = forbidden.sort((a, b) => Number(a.depends) - Number(b.depends));
    if (!first) return ok('none forbids these settings');
    return (first.depends ? warning : broken)(forbiddenText(first), policyMend(first.constraint));
  },
};

type QuotaInfo = {
  dimensionsInfos?: {
    applicableLocations?: string[];
    /** A quota of Compute Engine may have a value for each family of machines. */
    dimensions?: {tpu_family?: string};
    details?: {value?: string};
  }[];
};

const quota: Check = {
  name: 'TPU quota',
  async check(context) {
    const {api, project, zones, accelerator, provider, spot, workers_per_zone, settings} = context;
    const size = quotaSizeOf(accelerator, provider);
    const family = machineTypeOf(accelerator)?.split('-')[0]?.toUpperCase();
    const isSpot = spot || settings.provisioning === 'flex-start';
    const seen: string[] = [];
    const short: string[] = [];
    let isZero = false;
    for (const id of quotaIdsOf(accelerator, isSpot, provider)) {
      const address = `cloudquotas.googleapis.com/v1/projects/${project}/locations/global/services/${QUOTA_SERVICE[provider]}/quotaInfos/${id}`;
      const {dimensionsInfos = []} = (await api.call('GET', address)) as QuotaInfo;
      for (const zone of zones) {
        const place = isRegional(id) ? regionOf(zone) : zone;
        const info = dimensionsInfos.find(
          ({applicableLocations, dimensions}) =>
            applicableLocations?.includes(place) && (dimensions?.tpu_family ?? family) === family,
        );
        const value = Number(info?.details?.value ?? 0);
        const wanted = size * workers_per_zone;
        // -1 is no limit.
        if (value >= 0 && value < wanted)
          short.push(`${id} is ${value} in ${place}, and ${wanted} are wanted`);
        isZero ||= value >= 0 && value < size;
        seen.push(`${value} in ${place}`);
      }
    }
    const cure = `ask for more at https://console.cloud.google.com/iam-admin/quotas?project=${project}`;
    if (short.length === 0) return ok(`${accelerator}: ${seen.join(', ')}`);
    return isZero ? broken(short.join('; '), cure) : warning(short.join('; '), cure);
  },
};

const secrets: Check = {
  name: 'secrets',
  async check(context) {
    const {hf_token_secret, git_token_secret, job_secrets} = context.settings;
    const named = [hf_token_secret, git_token_secret, ...Object.values(job_secrets ?? {})].join();
    const known = new Set(named.match(/projects\/[^/]+\/secrets\/[^/,]+/g));
    const member = `serviceAccount:${emailOf(context, 'worker-api')}`;
    for (const each of known) {
      const [, project, , secret] = each.split('/');
      const policy = await context.api.call('GET', `secretmanager.googleapis.com/v1/${each}:getIamPolicy`);
      if (!grantsIn(policy).has(`${SECRET_READER} ${member}`))
        return broken(`worker-api may not read ${each}`, grantLine(secret, project, member));
    }
    return ok(known.size === 0 ? 'the settings name none' : `worker-api may read ${known.size}`);
  },
};

export const PROJECT_CHECKS: Check[] = [apis, accounts, roles, permissions, policies, quota, secrets];
