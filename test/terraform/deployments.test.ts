import assert from 'node:assert/strict';
import type {Resource} from '../../cli/terraform/mocked-apply.ts';
import {resourcesOf} from './a-deployment.ts';

/** Attributes that together name a resource at Google. */
const NAMES = [
  ...['account_id', 'bucket', 'collection', 'database'],
  ...['display_name', 'field', 'location', 'managed_folder'],
  ...['member', 'name', 'object_name_prefix', 'region', 'repository', 'repository_id', 'role_id'],
  ...['secret', 'secret_id', 'service_account_id', 'subscription', 'topic'],
];
/** Parts of a project that every deployment needs, and that none removes. */
const SHARED = ['google_project_service'];

function identityOf({type, values}: Resource): string {
  const named = NAMES.flatMap(name => (typeof values[name] === 'string' ? [`${name}=${values[name]}`] : []));
  // Members of both deployments have one grant for each condition.
  const condition = values.condition ? ` ${JSON.stringify(values.condition)}` : '';
  return `${type} ${named.join(' ')}${condition}`;
}

describe('two deployments in one project', () => {
  it('share no resource, except the APIs', async () => {
    const [first, second] = await Promise.all([resourcesOf(), resourcesOf('team-b')]);
    const known = new Set(first.filter(({type}) => !SHARED.includes(type)).map(identityOf));
    const shared = second.map(identityOf).filter(identity => known.has(identity));
    assert.deepEqual(shared, []);
  });

  it('have the same resources, name by name', async () => {
    const [first, second] = await Promise.all([resourcesOf(), resourcesOf('team-b')]);
    const addresses = (resources: Resource[]) => resources.map(({address}) => address);
    assert.deepEqual(addresses(second), addresses(first));
  });
});

describe('a destroy by Terraform', () => {
  const KEPT = ['google_firestore_database', 'google_firestore_field', 'google_project_iam_custom_role'];

  for (const type of KEPT)
    it(`keeps each ${type}`, async () => {
      const policies = (await resourcesOf()).flatMap(each =>
        each.type === type ? [each.values.deletion_policy] : [],
      );
      assert.deepEqual([...new Set(policies)], ['ABANDON']);
    });
});
