/** The rights of TPUs, the state and the work of the smoke test. test/e2e/smoke.test.ts runs the steps. */
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import type {Cloud} from '../../../cli/cloud/cloud.ts';
import {openGoogle} from '../../../cli/google/api.ts';
import {type Bench, newRun, openRuns, spentBy, testTpus} from '../../../cli/smoke/bench.ts';
import {FOLDERS, tokenOf, tryRights} from '../../../cli/smoke/rights.ts';
import {leftText, runSteps} from '../../../cli/smoke/smoke.ts';
import {readState, writeState} from '../../../cli/smoke/state.ts';
import {STEPS} from '../../../cli/smoke/steps.ts';
import {ApiError} from '../../../emulator/http/errors.ts';
import {labelsOf} from '../../../shared/domain/deployment.ts';
import {specObject} from '../../../shared/domain/names.ts';
import type {Store, Tpu} from '../../../shared/ports.ts';
import {aRun, aTpu, aWorker, T0} from '../../support/builders.ts';
import {callAtOnce} from '../../support/call.ts';
import {controlTopic} from '../../support/control-topic.ts';
import {FakeBucket} from '../../support/fake-bucket.ts';
import {Folder} from '../../support/folder.ts';
import {GoogleProject, PROJECT} from '../../support/google-project.ts';
import {namedCommands, whyUnknown} from '../../support/known-commands.ts';
import {ROOT} from '../../support/process.ts';
import {aStore, putDocuments} from '../../support/put-documents.ts';
import {steppedClock} from '../../support/stepped-clock.ts';

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
    const buckets = readFileSync(`${ROOT}terraform/buckets.tf`, 'utf8');
    const [, folders = ''] = /folders = \{\n(.*?)\n {2}\}/s.exec(buckets) ?? [];
    const given = [...folders.matchAll(/^ +(\w+) += \{.*\bworker += /gm)];
    const withCondition = buckets.matchAll(
      /managed_folder\.data\["(\w+)"\]\.name\n[^}]*account\["worker"\]\.member/g,
    );
    const names = [...given, ...withCondition].map(([, name]) => `${name}/`);
    assert.deepEqual(names.sort(), FOLDERS);
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

describe('The work of the smoke test', () => {
  let google: GoogleProject;
  let store: Store;
  let sent: string[];
  let bucket: FakeBucket;
  let listed: Tpu[];
  let bench: Bench;
  beforeEach(async () => {
    store = await aStore({});
    sent = [];
    google = await new GoogleProject().start([
      controlTopic(store, ({action, run, job}) => {
        sent.push(`${action} ${run ?? job}`);
        return 'applied';
      }),
    ]);
    bucket = new FakeBucket(() => T0);
    listed = [];
    const connection = {
      project: PROJECT,
      deployment: 'gleaner',
      storage_endpoint: google.url,
      bucket: 'bucket',
    };
    bench = {
      cloud: {store, objects: bucket.through(callAtOnce), connection, jobs: 'jobs'} as unknown as Cloud,
      api: openGoogle({endpoint: google.url}),
      tpus: {list: async () => ({tpus: listed, unreachable: []})} as unknown as Bench['tpus'],
      clock: steppedClock(),
      state: {project: PROJECT, deployment: 'gleaner', id: 'x', attempts: 0, runs: {}, jobs: [], steps: {}},
      keep: () => {},
      budget_usd: 5,
      model: undefined,
      record: {},
    };
  });
  afterEach(() => google.close());
  const register = (run: string, changes: object = {}) =>
    putDocuments(store, {[`runs/${run}`]: aRun({run, ...changes})});

  it('counts TPUs and network against the ceiling', async () => {
    bench.state.runs.ten = 'smoke-x-ten-1';
    await register('smoke-x-ten-1', {cost_usd: 1, network_usd: 2, download_usd: 0.5});
    assert.equal(await spentBy(bench), 3.5);
  });

  it('goes on with a run that waits for its first shard', async () => {
    const run = await newRun(bench, 'ten', ['a']);
    await register(run);
    assert.equal(await newRun(bench, 'ten', ['a', 'b']), run);
    assert.deepEqual(sent, []);
    assert.equal(bucket.list(`datasets/${run}/stream_`).length, 2, 'the rest of an interrupted upload');
  });

  const replaced: {name: string; changes: object; model?: string}[] = [
    {name: 'that has shards', changes: {total_shards: 1}},
    {name: 'that is paused', changes: {status: 'paused'}},
    {name: 'of another model', changes: {}, model: 'tiny'},
  ];
  for (const {name, changes, model} of replaced)
    it(`stops a run ${name} before it starts another`, async () => {
      const run = await newRun(bench, 'ten', ['a']);
      await register(run, changes);
      assert.notEqual(await newRun({...bench, model}, 'ten', ['a']), run);
      assert.deepEqual(sent, [`stop ${run}`]);
    });

  it('waits for the document of an uploaded run, and then stops it', async () => {
    const run = await newRun(bench, 'ten', ['a']);
    assert.deepEqual(await openRuns(bench), [run]);
    await assert.rejects(newRun(bench, 'lost', ['a']), /There is no document of smoke-x-ten-1 after 120 s/);
    await register(run);
    await newRun(bench, 'lost', ['a']);
    assert.deepEqual(sent, [`stop ${run}`]);
  });

  it('does not wait for a run that was never uploaded', async () => {
    bench.state.runs.ten = 'smoke-x-ten-1';
    await newRun(bench, 'ten', ['a']);
    assert.deepEqual(sent, []);
  });

  it('names its open runs and jobs, and the commands that end them', async () => {
    bench.state.runs.ten = 'smoke-x-ten-1';
    bucket.put(specObject('smoke-x-ten-1'), '{}');
    bench.state.jobs.push('done', 'open', 'never-created');
    await putDocuments(store, {'jobs/done': {status: 'failed'}, 'jobs/open': {status: 'running'}});
    assert.match(
      await leftText(bench),
      /`gleaner run stop smoke-x-ten-1` .*`gleaner jobs cancel open` ends it$/,
    );
  });

  it('cancels an unfinished job before a new one, which has the rest of the ceiling as its budget', async () => {
    bench.state.jobs.push('open');
    await putDocuments(store, {'jobs/open': {status: 'running', spent_usd: 2}});
    const job = STEPS.find(({name}) => name === 'a job');
    await assert.rejects(async () => job?.run(bench), /There is no taken job smoke-x-1/);
    assert.deepEqual(sent, ['cancel open']);
    assert.equal((await store.get('jobs/smoke-x-1'))?.budget_usd, 3);
  });

  it('has the TPUs of its pool and of its runs, and none that works for others', async () => {
    bench.state.runs.ten = 'smoke-x-ten-1';
    bench.state.pool = 'try-v5litepod-1';
    const workers = {
      'tpu-us-central1-a-0': {work: 'smoke-x-ten-1/000'},
      'tpu-us-central1-a-1': {charged_to: 'smoke-x-ten-1'},
      'tpu-us-central1-a-2': {costs: {'smoke-x-ten-1': 1}, work: 'other/000'},
      'tpu-us-central1-a-3': {},
    };
    for (const [name, changes] of Object.entries(workers))
      await putDocuments(store, {[`workers/${name}`]: aWorker({name, phase: 'idle', ...changes})});
    const names = [...Object.keys(workers), 'try-v5litepod-1-us-central1-a-0', 'tpu-v5-us-central1-a-0'];
    listed = names.map(name => aTpu({name, labels: labelsOf('gleaner')}));
    const own = (await testTpus(bench)).map(({name}) => name);
    assert.deepEqual(own, [
      ...['tpu-us-central1-a-0', 'tpu-us-central1-a-1'],
      'try-v5litepod-1-us-central1-a-0',
    ]);
  });

  it('begins no step after a signal', () =>
    assert.rejects(runSteps(bench, false, AbortSignal.abort()), {name: 'AbortError'}));
});
