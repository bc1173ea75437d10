/** The question of commands that delete or buy, in a terminal. */
import assert from 'node:assert/strict';
import {delimiter} from 'node:path';
import {FakeTerraform} from '../../support/google/fake-terraform.ts';
import {GoogleProject, PROJECT} from '../../support/google/google-project.ts';
import {putBuiltEnvironment} from '../../support/machine/built-environment.ts';
import {Folder} from '../../support/machine/folder.ts';
import {GLEANER} from '../../support/machine/process.ts';
import {CTRL_C, CTRL_D, inTerminal} from '../../support/machine/pty.ts';

const SETTINGS = {project: PROJECT, region: 'us-central1', zones: ['us-central1-a'], max_budget_usd: 5};
const ANSWERS = [
  {name: 'yes', keys: 'yes\r', code: 1, says: /no local cloud in .*absent/},
  {name: 'another word', keys: 'y\r', code: 1, says: /Nothing is changed/},
  {name: 'the end of the input', keys: CTRL_D, code: 1, says: /Nothing is changed/},
  {name: 'Ctrl-C', keys: CTRL_C, code: 130, says: /Interrupted: Nothing is changed/},
];

describe('The question before a change @full', () => {
  const folder = new Folder(afterEach);
  beforeEach(async () => {
    await putBuiltEnvironment(folder.at('cache'));
    folder.put('gleaner.tfvars.json', JSON.stringify(SETTINGS));
  });

  const answered = (args: string[], keys: string, env: Record<string, string> = {}) =>
    inTerminal([process.execPath, GLEANER, ...args], {
      prompt: 'Type yes: ',
      keys,
      cwd: folder.path,
      env: {
        ...env,
        PATH: `${folder.path}${delimiter}${process.env.PATH}`,
        XDG_CACHE_HOME: folder.at('cache'),
      },
    });

  for (const {name, keys, code, says} of ANSWERS)
    it(`the question before a change of a delete takes ${name}`, async () => {
      const shown = await answered(['jobs', 'clear', '--dir', 'absent'], keys);
      assert.equal(shown.code, code, shown.text);
      assert.match(shown.text, says);
      assert.doesNotMatch(shown.text, /\n\s+at /);
    });

  describe('of a deployment', () => {
    let google: GoogleProject;
    let terraform: FakeTerraform;
    beforeEach(async () => {
      google = await new GoogleProject().start();
      terraform = await new FakeTerraform(google).start(folder.path);
    });
    afterEach(async () => {
      await terraform.close();
      await google.close();
    });
    const deployed = (keys: string) =>
      answered(['deploy'], keys, {GLEANER_GOOGLE_APIS: `${google.url}/{host}`});

    it('the question before a change of a deployment leaves a new project as it is without yes', async () => {
      const {code, text} = await deployed(CTRL_D);
      assert.equal(code, 1, text);
      assert.match(
        text,
        /turns on 1\d APIs .*cloudresourcemanager[\s\S]*makes the bucket gs:\/\/my-project-123-gleaner-terraform/,
      );
      assert.equal(google.apis.has('pubsub'), false);
      assert.deepEqual(terraform.verbs, []);
    });

    it('the question before a change of a deployment applies the plan after yes alone', async () => {
      google.prepare();
      const refused = await deployed(CTRL_D);
      assert.equal(refused.code, 1, refused.text);
      assert.doesNotMatch(refused.text, /\n\s+at /);
      assert.ok(!terraform.verbs.includes('apply'));
      assert.equal((await deployed('yes\r')).code, 0);
      assert.ok(terraform.verbs.includes('apply'));
    });
  });
});
