import assert from 'node:assert/strict';
import {spawnSync} from 'node:child_process';
import {mkdtempSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {googleConnection} from '../../../cli/connect.ts';

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
    it(`has the database of ${what}`, () => {
      const found = googleConnection({...place, ...env});
      assert.deepEqual([found?.deployment, found?.store], [deployment, store]);
    });

  it('needs a project and a bucket', () => {
    assert.equal(googleConnection({GLEANER_PROJECT: 'p'}), undefined);
    assert.equal(googleConnection({GLEANER_BUCKET: 'b'}), undefined);
  });

  it('needs a valid name', () => {
    assert.throws(
      () => googleConnection({...place, GLEANER_DEPLOYMENT: 'Team B'}),
      /GLEANER_DEPLOYMENT is "Team B"/,
    );
  });
});

describe('Commands without credentials of Google', function () {
  this.timeout(60_000);
  const MAIN = fileURLToPath(new URL('../../../cli/main.ts', import.meta.url));
  let home: string;
  before(() => {
    home = mkdtempSync(join(tmpdir(), 'gleaner-home-'));
  });
  after(() => rmSync(home, {recursive: true}));

  for (const command of [['status'], ['rebuild', '--dry-run'], ['tick', 'state'], ['verify', 'my-run']])
    it(`say how to sign in, on one line: ${command.join(' ')}`, () => {
      const env = {
        ...{PATH: process.env.PATH, HOME: home, METADATA_SERVER_DETECTION: 'none'},
        ...{GLEANER_PROJECT: 'my-project-123', GLEANER_BUCKET: 'my-project-123-gleaner'},
      };
      const {status, stderr} = spawnSync(process.execPath, [MAIN, ...command], {cwd: home, env});
      assert.equal(status, 1);
      assert.match(
        stderr.toString(),
        /^gleaner: Failed to sign in to Google Cloud: .*; sign in with `gcloud auth application-default login`\n$/,
      );
    });
});
