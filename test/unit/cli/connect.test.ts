import assert from 'node:assert/strict';
import {spawnSync} from 'node:child_process';
import {fileURLToPath} from 'node:url';
import {googleConnection} from '../../../client/connection/google-connection.ts';
import {Folder} from '../../support/machine/folder.ts';

describe('The deployment on Google Cloud that the environment names', () => {
  const place = {GLEANER_PROJECT: 'p', GLEANER_BUCKET: 'b'};
  const rows: {what: string; env: Record<string, string>; deployment: string; store: string}[] = [
    {what: 'the default deployment', env: {}, deployment: 'gleaner', store: 'firestore:gleaner'},
    {
      what: 'a second deployment',
      env: {GLEANER_DEPLOYMENT: 'other'},
      deployment: 'other',
      store: 'firestore:other',
    },
    {
      what: 'a named store',
      env: {GLEANER_DEPLOYMENT: 'other', GLEANER_STORE: 'firestore:kept'},
      deployment: 'other',
      store: 'firestore:kept',
    },
  ];
  for (const {what, env, deployment, store} of rows)
    it(`the deployment on Google Cloud that the environment names has the database of ${what}`, () => {
      const found = googleConnection({...place, ...env});
      assert.deepEqual([found?.deployment, found?.store], [deployment, store]);
    });

  it('the deployment on Google Cloud that the environment names needs a project and a bucket', () => {
    assert.equal(googleConnection({GLEANER_PROJECT: 'p'}), undefined);
    assert.equal(googleConnection({GLEANER_BUCKET: 'b'}), undefined);
  });

  it('the deployment on Google Cloud that the environment names needs a valid name', () => {
    assert.throws(
      () => googleConnection({...place, GLEANER_DEPLOYMENT: 'Team B'}),
      /GLEANER_DEPLOYMENT is "Team B"/,
    );
  });
});

describe('The deployment on Google Cloud that gleaner.tfvars.json names', () => {
  const folder = new Folder(after);
  const fileWith = (text: string) => folder.put('gleaner.tfvars.json', text);

  it('the deployment on Google Cloud that gleaner.tfvars.json names has the bucket and the database that Terraform names', () => {
    const file = fileWith('{"project": "p", "name": "other", "jobs_collection": "tpu_jobs"}');
    const {project, deployment, bucket, store, jobs, origin} = googleConnection({}, file) ?? {};
    assert.deepEqual(
      [project, deployment, bucket, store, jobs],
      ['p', 'other', 'p-other', 'firestore:other', 'tpu_jobs'],
    );
    assert.equal(origin, file);
  });

  it('the deployment on Google Cloud that gleaner.tfvars.json names gives way to the environment', () => {
    const found = googleConnection({GLEANER_PROJECT: 'q', GLEANER_BUCKET: 'b'}, fileWith('{"project": "p"}'));
    assert.deepEqual([found?.project, found?.bucket], ['q', 'b']);
  });

  for (const [text, error] of [
    ['{"region": "us-central1"}', /gleaner\.tfvars\.json names no project: set "project" in it/],
    ['[]', /names no project/],
    ['null', /it is not a JSON object/],
    ['{', /Failed to read the settings in /],
    ['{"project": "p", "name": "A"}', /"name" in .* is "A": set it to 4 to 15/],
  ] as const)
    it(`the deployment on Google Cloud that gleaner.tfvars.json names is refused with a reason: ${text}`, () =>
      assert.throws(() => googleConnection({}, fileWith(text)), error));
});

describe('Commands without credentials of Google', () => {
  const MAIN = fileURLToPath(new URL('../../../cli/main.ts', import.meta.url));
  const home = new Folder();
  after(() => home.end());

  for (const {command, tier} of [
    {command: ['status'], tier: '@full'},
    {command: ['tick', 'state'], tier: '@long'},
  ])
    it(`commands without credentials of Google say how to sign in, on one line: ${command.join(' ')} ${tier}`, () => {
      const env = {
        ...{PATH: process.env.PATH, HOME: home.path, METADATA_SERVER_DETECTION: 'none'},
        ...{GLEANER_PROJECT: 'my-project-123', GLEANER_BUCKET: 'my-project-123-gleaner'},
      };
      const {status, stderr} = spawnSync(process.execPath, [MAIN, ...command], {cwd: home.path, env});
      assert.equal(status, 1);
      assert.match(
        stderr.toString(),
        /^gleaner: Failed to sign in to Google Cloud: .*; sign in with `gcloud auth application-default login`\n$/,
      );
    });
});
