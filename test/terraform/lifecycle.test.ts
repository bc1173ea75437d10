import assert from 'node:assert/strict';
import {RULES} from '../../emulator/storage/lifecycle.ts';
import {resourcesOf} from './a-deployment.ts';

type TerraformRule = {action: {type: string}[]; condition: Record<string, unknown>[]};

describe('the lifecycle rules of the local cloud', () => {
  it('are the deletes of the data bucket in Terraform', async () => {
    const buckets = (await resourcesOf()).filter(({type}) => type === 'google_storage_bucket');
    const data = buckets.find(({values}) => values.name === 'my-project-123-gleaner') ?? assert.fail();
    const rules = (data.values.lifecycle_rule as TerraformRule[]).filter(
      ({action}) => action[0]?.type === 'Delete',
    );
    const written = rules.map(({condition: [given = {}]}) => {
      const {age, days_since_custom_time} = given;
      const [prefix] = given.matches_prefix as string[];
      return {prefix, ...(age ? {age} : {}), ...(days_since_custom_time ? {days_since_custom_time} : {})};
    });
    assert.deepEqual(written, RULES);
  });
});
