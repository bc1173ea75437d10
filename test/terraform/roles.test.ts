import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {applyMocked, type Resource} from '../../cli/terraform/mocked-apply.ts';
import {ACCOUNT_PERMISSIONS} from '../../emulator/http/permissions.ts';
import {ACCOUNT_RIGHTS} from '../../emulator/storage/rights.ts';
import {ROOT} from '../support/machine/process.ts';
import {PROJECT, resourcesOf, VARIABLES} from './a-deployment.ts';

/** Rights of the configuration and of the table, as lines `principal | resource | role`. */
type Rights = string[];

type Values = Record<string, unknown>;

/** Resource on which a member has its role, in the words of the table. */
const PLACES: Record<string, (values: Values) => string> = {
  google_artifact_registry_repository_iam_member: () => 'repository functions',
  google_cloud_run_v2_service_iam_member: ({name}) => `function ${without('gleaner-', name)}`,
  google_project_iam_member: ({condition}) => placeOf(condition),
  google_pubsub_subscription_iam_member: ({subscription}) =>
    `subscription ${without('gleaner-', subscription)}`,
  google_pubsub_topic_iam_member: ({topic}) => `topic ${topic}`,
  google_secret_manager_secret_iam_member: ({secret_id}) => `secret ${without('gleaner-', secret_id)}`,
  google_service_account_iam_member: ({service_account_id}) =>
    `account ${/serviceAccounts\/gleaner-([a-z-]+)@/.exec(String(service_account_id))?.[1]}`,
  google_storage_bucket_iam_member: ({bucket}) => `${/-(\w+)$/.exec(String(bucket))?.[1]} bucket`,
  google_storage_managed_folder_iam_member: ({bucket, managed_folder}) =>
    [...(/-(logs|checkpoints)$/.exec(String(bucket))?.slice(1) ?? []), 'folder', managed_folder].join(' '),
};

const CONDITIONS: Record<string, string> = {
  [`resource.name == "projects/${PROJECT}/databases/gleaner"`]: 'database',
  'resource.name.startsWith("projects/_/buckets/gcf-v2-sources-123456789012-us-central1/objects/")':
    'sources of functions',
};

const PEOPLE: Record<string, string> = {
  'group:operators@example.com': 'operators',
  'group:users@example.com': 'users',
};

const AGENTS: Record<string, string> = {
  'service-123456789012@gcp-sa-pubsub.iam.gserviceaccount.com': 'Pub/Sub agent',
  'service-123456789012@gs-project-accounts.iam.gserviceaccount.com': 'Storage agent',
};

function without(prefix: string, value: unknown): string {
  return String(value).replace(prefix, '');
}

function placeOf(condition: unknown): string {
  const [found] = condition as {expression: string}[];
  return found ? (CONDITIONS[found.expression] ?? found.expression) : 'project';
}

function principalOf(member: string): string {
  const email = without('serviceAccount:', member);
  const [, account] = new RegExp(`^gleaner-([a-z-]+)@${PROJECT}\\.iam`).exec(email) ?? [];
  return account ?? AGENTS[email] ?? PEOPLE[member] ?? member;
}

function rightsOf(resources: Resource[]): Rights {
  const custom = new Map(
    customRoles(resources).map(({values}) => [values.id, without('gleaner_', values.role_id)]),
  );
  return resources
    .filter(({type}) => type.includes('_iam_') && type !== 'google_project_iam_custom_role')
    .map(({type, values}) => {
      const place = PLACES[type]?.(values) ?? type;
      const role = custom.get(values.role) ?? String(values.role);
      return `${principalOf(String(values.member))} | ${place} | ${role}`;
    })
    .toSorted();
}

function customRoles(resources: Resource[]): Resource[] {
  return resources.filter(({type}) => type === 'google_project_iam_custom_role');
}

/** Cells of the rows under the heading row that begins with this text. */
function tableOf(heading: string): string[][] {
  const lines = readFileSync(`${ROOT}docs/inside/security.md`, 'utf8').split('\n');
  const start = lines.findIndex(line => line.startsWith(heading)) + 2;
  const end = lines.findIndex((line, index) => index >= start && !line.startsWith('|'));
  return lines.slice(start, end).map(line =>
    line
      .split('|')
      .slice(1, -1)
      .map(cell => cell.trim()),
  );
}

const codes = (cell: string) => [...cell.matchAll(/`([^`]+)`/g)].map(([, code = '']) => code);

/** Rights of a row: each principal on each resource. */
function rightsIn([principals = '', places = '', role = '']: string[]): Rights {
  const names = codes(places);
  const kind = places.replace(/ `.*/, '').replace(/^(topic|folder|function|subscription)s$/, '$1');
  const resources = names.length > 0 ? names.map(name => `${kind} ${name}`) : [places];
  const who = codes(principals).length > 0 ? codes(principals) : [principals];
  return who.flatMap(each => resources.map(place => `${each} | ${place} | ${codes(role).join()}`));
}

describe('the rights of accounts on the local cloud', () => {
  it('are those that Terraform gives', async () => {
    const resources = await resourcesOf();
    const rightsOfRole = new Map(
      customRoles(resources).map(({values}) => [
        without('gleaner_', values.role_id),
        (values.permissions as string[]).map(each => without('storage.objects.', each)).toSorted(),
      ]),
    );
    const given = rightsOf(resources).flatMap(line => {
      const [who = '', place = '', role = ''] = line.split(' | ');
      const [, folder] = /^(?:(?:logs|checkpoints) )?folder (\S+)/.exec(place) ?? [];
      return folder && who in ACCOUNT_RIGHTS ? [[`${who} ${folder}`, rightsOfRole.get(role)]] : [];
    });
    const local = Object.entries(ACCOUNT_RIGHTS).flatMap(([who, folders]) =>
      Object.entries(folders).map(([folder, rights]) => [`${who} ${folder}`, rights.toSorted()]),
    );
    assert.deepEqual(Object.fromEntries(local), Object.fromEntries(given));
  });

  it('are those that Terraform gives on topics, TPUs and instances, with both providers', async () => {
    const {resources} = await applyMocked({...VARIABLES, tpu_providers: ['tpu-api', 'compute-engine']});
    const lines = rightsOf(resources);
    const [role] = customRoles(resources).filter(({values}) => values.role_id === 'gleaner_tpu');
    // An instance comes with parts that have permissions of their own.
    const permissions = ((role?.values.permissions ?? []) as string[]).filter(
      each => !/^compute\.(disks|subnetworks)\.|\.set/.test(each),
    );
    for (const [who, local] of Object.entries(ACCOUNT_PERMISSIONS)) {
      const topics = lines.flatMap(line => new RegExp(`^${who} \\| topic (\\S+) `).exec(line)?.[1] ?? []);
      assert.deepEqual(local.topics, topics, who);
      const given = lines.includes(`${who} | project | tpu`) ? permissions : [];
      assert.deepEqual(local.permissions.toSorted(), given.toSorted(), who);
    }
  });
});

describe('the table of roles in docs/inside/security.md', () => {
  let resources: Resource[];
  before(async () => {
    resources = await resourcesOf();
  });

  it('has every role that Terraform gives, and no other', () => {
    assert.deepEqual(rightsOf(resources), tableOf('| principal |').flatMap(rightsIn).toSorted());
  });

  it('has every permission of the roles that Terraform makes', () => {
    const made = customRoles(resources).map(({values}) => [
      without('gleaner_', values.role_id),
      (values.permissions as string[]).toSorted(),
    ]);
    const listed = tableOf('| role |').map(([role = '', permissions = '']) => [
      codes(role).join(),
      codes(permissions).toSorted(),
    ]);
    assert.deepEqual(Object.fromEntries(made), Object.fromEntries(listed));
  });

  it('gives no role to everybody, and no basic role', () => {
    for (const right of rightsOf(resources))
      assert.doesNotMatch(right, /allUsers|allAuthenticatedUsers|roles\/(owner|editor|viewer)\b/);
  });

  it('leaves no policy or binding that replaces the rights of others', () => {
    const types = new Set(
      resources.map(({type}) => type).filter(type => /_iam_|_acl|access_control/.test(type)),
    );
    assert.deepEqual(
      [...types].toSorted(),
      [...Object.keys(PLACES), 'google_project_iam_custom_role'].toSorted(),
    );
  });
});
