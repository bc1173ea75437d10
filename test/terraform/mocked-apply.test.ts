import assert from 'node:assert/strict';
import {applyMocked, type Resource, TerraformRefused} from '../../cli/terraform/mocked-apply.ts';
import {CliError} from '../../client/text/errors.ts';
import {loadConfig} from '../../shared/contracts/settings/config.ts';
import {Folder} from '../support/machine/folder.ts';
import {resourcesOf, VARIABLES} from './a-deployment.ts';

async function withSetting(name: string, value: string, work: () => Promise<void>): Promise<void> {
  const before = process.env[name];
  process.env[name] = value;
  try {
    await work();
  } finally {
    if (before === undefined) delete process.env[name];
    else process.env[name] = before;
  }
}

describe('a mocked apply', () => {
  const folder = new Folder(after);

  it('gives each function an environment that the control plane accepts', async () => {
    const functions = (await resourcesOf()).filter(({type}) => type === 'google_cloudfunctions2_function');
    assert.equal(functions.length, 8);
    for (const {values} of functions) {
      const [service] = values.service_config as {environment_variables: Record<string, string>}[];
      const config = loadConfig({...service?.environment_variables, GLEANER_TICKET_KEY: 'a'.repeat(64)});
      assert.equal(config.store, 'firestore:gleaner');
      assert.deepEqual(config.pool.zones, VARIABLES.zones);
      assert.equal(config.ceilings.max_budget_usd, VARIABLES.max_budget_usd);
    }
  });

  it('takes values as they are, also with signs of a template, and no worker environment, which only a deployment builds', async () => {
    const {environment: _, ...artifacts} = VARIABLES.artifacts as Record<string, object>;
    const alert_email = `some${'$'}{1}%{2}"one\\@example.com`;
    const places = {scheduler_region: 'us-east1', eventarc_location: 'none'};
    const {resources} = await applyMocked({...VARIABLES, artifacts, alert_email, ...places});
    const valuesOf = (type: string): Resource['values'][] =>
      resources.flatMap(each => (each.type === type ? [each.values] : []));
    assert.equal(valuesOf('google_cloud_scheduler_job')[0]?.region, 'us-east1');
    assert.deepEqual(valuesOf('google_eventarc_trigger'), []);
    const objects = resources.filter(({type}) => type === 'google_storage_bucket_object');
    assert.deepEqual(objects.map(({name}) => name).toSorted(), ['bundle', 'functions']);
    const channel = resources.find(({type}) => type === 'google_monitoring_notification_channel');
    assert.deepEqual(channel?.values.labels, {email_address: alert_email});
  });

  it('refuses a wrong variable with one line, and leaves no copy', async () => {
    await withSetting('TMPDIR', folder.path, () =>
      assert.rejects(applyMocked({...VARIABLES, region: 'us'}), (error: Error) => {
        assert.ok(error instanceof TerraformRefused);
        assert.match(
          error.message,
          /^Invalid value for variable: region must be a region such as us-central1.*$/,
        );
        return true;
      }),
    );
    assert.deepEqual(folder.names(), []);
  });

  it('names the missing program where terraform is not installed', () =>
    withSetting('PATH', '', () => assert.rejects(applyMocked(VARIABLES), CliError)));
});
