/** The step of the smoke test that tries the rights of TPUs. test/e2e/smoke.test.ts runs the other steps. */
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {openGoogle} from '../../../cli/google/api.ts';
import {FOLDERS, tokenOf, tryRights} from '../../../cli/smoke/rights.ts';
import {readState, writeState} from '../../../cli/smoke/state.ts';
import {ApiError} from '../../../emulator/http/errors.ts';
import {Folder} from '../../support/folder.ts';
import {GoogleProject, PROJECT} from '../../support/google-project.ts';
import {namedCommands, whyUnknown} from '../../support/known-commands.ts';
import {ROOT} from '../../support/process.ts';

const BUCKET = `${PROJECT}-gleaner`;
const PLACE = {bucket: BUCKET, logs_bucket: `${BUCKET}-logs`, id: 'x'};
const ACCOUNT = `gleaner-worker@${PROJECT}.iam.gserviceaccount.com`;
const DELETE = `DELETE /storage/v1/b/${BUCKET}/o/activations%2Fsmoke-x%2Ftpu_0%2Fright`;
const denied = new ApiError(403, `${ACCOUNT} does not have storage.objects.delete access`);

describe('The rights of TPUs in the smoke test', () => {
  let google: GoogleProject;
  beforeEach(async () => {
    google = await new GoogleProject().start();
    google.makeBucket(BUCKET);
    google.makeBucket(`${BUCKET}-logs`);
    google.answers.set(DELETE, denied);
  });
  afterEach(() => google.close());
  const tried = () => tryRights('token', PLACE, google.url);

  it('are right where TPUs create once, list and overwrite logs, also at a second attempt', async () => {
    assert.match(await tried(), /creates once, lists 9 folders, overwrites logs/);
    assert.match(await tried(), /replaces and deletes nothing/);
    assert.deepEqual(await google.names(`${BUCKET}-logs`), ['logs/smoke-x/1.log']);
  });

  it('are tried in every folder that Terraform gives to TPUs', () => {
    const [, folders = ''] =
      /folders = \{\n(.*?)\n {2}\}/s.exec(readFileSync(`${ROOT}terraform/buckets.tf`, 'utf8')) ?? [];
    const given = [...folders.matchAll(/^ +(\w+) += \{.*\bworker += /gm)].map(([, name]) => `${name}/`);
    assert.deepEqual(given.sort(), FOLDERS);
  });

  const faults: {name: string; inject: () => void; says: RegExp}[] = [
    {
      name: 'may delete',
      inject: () => google.answers.delete(DELETE),
      says: /may delete an object of activations\/: compare the roles/,
    },
    {
      name: 'may replace',
      inject: () => google.answers.set(`POST /upload/storage/v1/b/${BUCKET}/o`, {name: 'right'}),
      says: /may replace an object of activations\//,
    },
    {
      name: 'may not list',
      inject: () => google.answers.set(`GET /storage/v1/b/${BUCKET}/o`, denied),
      says: /does not have storage/,
    },
    {
      name: 'get 403 for a missing object',
      inject: () => google.answers.set(`GET /storage/v1/b/${BUCKET}/o/datasets%2Fsmoke-x%2Fabsent`, denied),
      says: /failed to read a missing object in another way/,
    },
    {
      name: 'may not overwrite logs',
      inject: () => google.answers.set(`POST /upload/storage/v1/b/${BUCKET}-logs/o`, denied),
      says: /does not have storage/,
    },
  ];
  for (const {name, inject, says} of faults)
    it(`are wrong where TPUs ${name}`, async () => {
      inject();
      await assert.rejects(tried(), says);
    });

  it('need a token, and the error names the role', async () => {
    const api = openGoogle({endpoint: google.url});
    const address = `POST /v1/projects/-/serviceAccounts/${ACCOUNT}:generateAccessToken`;
    google.answers.set(address, new ApiError(403, 'Permission iam.serviceAccounts.getAccessToken denied'));
    await assert.rejects(tokenOf(api, ACCOUNT, PROJECT), ({message}: Error) => {
      const why = namedCommands(message).map(whyUnknown);
      assert.deepEqual(why, [undefined, undefined], message);
      return /add-iam-policy-binding gleaner-worker@.*serviceAccountTokenCreator/.test(message);
    });
    google.answers.set(address, {accessToken: 'ya29.x'});
    assert.equal(await tokenOf(api, ACCOUNT, PROJECT), 'ya29.x');
  });
});

describe('The state of the smoke test', () => {
  const folder = new Folder();
  afterEach(() => folder.end());
  const place = {project: PROJECT, deployment: 'gleaner'};

  it('comes back from its file, and belongs to one deployment', () => {
    const file = folder.at('smoke.json');
    const state = {...readState(file, place), runs: {ten: 'smoke-x-ten-1'}, zone: 'us-central1-a'};
    writeState(file, state);
    assert.deepEqual(readState(file, place), state);
    assert.deepEqual(folder.names(), ['smoke.json']);
    assert.throws(() => readState(file, {...place, deployment: 'team-a'}), /name another --state-file/);
  });

  for (const text of ['', '{"project": 1}', '[]'])
    it(`of a file with ${text || 'nothing'} is refused, with what to do`, () => {
      const file = folder.put('smoke.json', text);
      assert.throws(() => readState(file, place), /smoke\.json.*delete the file/s);
    });

  it('needs a folder that takes it, before anything is bought', () => {
    const file = folder.at('absent/smoke.json');
    assert.throws(() => writeState(file, readState(file, place)), /ENOENT.*name another --state-file/);
  });
});
