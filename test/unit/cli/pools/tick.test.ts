import assert from 'node:assert/strict';
import type {LocalCloud} from '../../../../emulator/cloud.ts';
import {Scratch} from '../../../support/machine/a-cloud.ts';
import {gleaner} from '../../../support/machine/command.ts';
import {Folder} from '../../../support/machine/folder.ts';

describe('gleaner tick @full', () => {
  const scratch = new Scratch(after);
  const folder = new Folder(after);
  let cloud: LocalCloud;
  before(async () => {
    cloud = await scratch.cloud();
  });

  it('runs, pauses, resumes and shows the job, and a dry run changes nothing', async () => {
    const at = ['--port', new URL(cloud.url).port, '--json'];
    const stateAfter = async (...args: string[]) => {
      const {code, stdout} = await gleaner(['tick', ...args, ...at]);
      assert.equal(code, 0);
      return JSON.parse(stdout);
    };
    assert.equal((await stateAfter('state')).state, 'ENABLED');
    assert.equal((await stateAfter('pause')).state, 'PAUSED');
    const {command} = await stateAfter('resume', '--dry-run');
    assert.match(
      command,
      /^gcloud scheduler jobs resume gleaner-tick --location=us-central1 --project=[\w-]+$/,
    );
    assert.equal((await stateAfter()).state, 'PAUSED');
    assert.equal((await stateAfter('resume')).state, 'ENABLED');
  });

  for (const [what, given, location] of [
    ['its own region', {scheduler_region: 'us-east1'}, 'us-east1'],
    ['no region of its own', {}, 'europe-west9'],
  ] as const)
    it(`gleaner tick finds the job in ${location} if the settings give it ${what}`, async () => {
      const settings = {project: 'my-project-1', region: 'europe-west9', zones: ['us-east1-c']};
      folder.put('gleaner.tfvars.json', JSON.stringify({...settings, max_budget_usd: 5, ...given}));
      const {stdout} = await gleaner(['tick', '--dry-run', '--cloud', 'my-project-1'], {
        ...{cwd: folder.path, env: {FIRESTORE_EMULATOR_HOST: '127.0.0.1:1'}},
      });
      assert.match(stdout, new RegExp(`^gcloud scheduler jobs run gleaner-tick --location=${location} `));
    });

  it('gleaner tick exits with 1 for a region without the job', async () => {
    const {code, stderr} = await gleaner(['tick', '--location', 'x', '--port', new URL(cloud.url).port]);
    assert.equal(code, 1);
    assert.match(stderr, /\ngleaner: Failed to run .*Job not found.*name its --location/);
  });
});
