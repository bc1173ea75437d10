/** The rights of TPUs, the state and the work of the smoke test. test/e2e/smoke.test.ts runs the steps. */
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {type Bench, newRun, openRuns, spentBy, testTpus} from '../../../cli/smoke/bench.ts';
import {FOLDERS, tokenOf, tryRights} from '../../../cli/smoke/rights.ts';
import {leftText, runSteps} from '../../../cli/smoke/smoke.ts';
import {readState, writeState} from '../../../cli/smoke/state.ts';
import {STEPS} from '../../../cli/smoke/steps.ts';
import type {Cloud} from '../../../client/cloud/cloud.ts';
import {openGoogle} from '../../../client/google/api.ts';
import type {LocalCloud} from '../../../emulator/cloud.ts';
import {accessTokenOf} from '../../../emulator/http/access-tokens.ts';
import {ApiError} from '../../../emulator/http/errors.ts';
import {accountsOf} from '../../../emulator/http/identity.ts';
import {labelsOf} from '../../../shared/domain/deployment.ts';
import {shardObject, specObject, streamObject} from '../../../shared/domain/names.ts';
import type {Store, Tpu} from '../../../shared/ports/ports.ts';
import {namedCommands, whyUnknown} from '../../support/docs/known-commands.ts';
import {serveControl} from '../../support/fakes/control-topic.ts';
import {steppedClock} from '../../support/fakes/stepped-clock.ts';
import {GoogleProject, PROJECT} from '../../support/google/google-project.ts';
import {Scratch} from '../../support/machine/a-cloud.ts';
import {Folder} from '../../support/machine/folder.ts';
import {ROOT} from '../../support/machine/process.ts';
import {FakeBucket} from '../../world/bucket.ts';
import {aRun, aTpu, aWorker, T0} from '../../world/builders.ts';
import {callAtOnce} from '../../world/call.ts';
import {aStore, putDocuments} from '../../world/scenes/put-documents.ts';

const ACCOUNT = `gleaner-worker@${PROJECT}.iam.gserviceaccount.com`;

describe('The rights of TPUs in the smoke test', () => {
  const scratch = new Scratch(after);
  let cloud: LocalCloud;
  before(async () => {
    cloud = await scratch.cloud({storage_only: true});
  });
  const accounts = accountsOf('gleaner-local', 'gleaner');
  const tokenFor = (account: keyof typeof accounts) => accessTokenOf(cloud.token, accounts[account]);
  const tried = (worker: string, worker_api: string) =>
    tryRights({worker, worker_api}, {bucket: cloud.bucket, logs_bucket: cloud.bucket, id: 'x'}, cloud.url);

  it('the rights of TPUs in the smoke test are right with the rights that Terraform gives, also at a second attempt', async () => {
    for (let time = 0; time < 2; time++)
      assert.match(await tried(tokenFor('worker'), tokenFor('worker-api')), /it overwrites its own log/);
  });

  it('the rights of TPUs in the smoke test are tried in every folder that Terraform gives to TPUs', () => {
    const buckets = readFileSync(`${ROOT}terraform/buckets.tf`, 'utf8');
    const [, folders = ''] = /folders = \{\n(.*?)\n {2}\}/s.exec(buckets) ?? [];
    const given = [...folders.matchAll(/^ +(\w+) += \{.*\bworker += /gm)].map(([, name]) => `${name}/`);
    assert.deepEqual(given.sort(), FOLDERS);
  });

  it('the rights of TPUs in the smoke test are wrong where the account of TPUs has more or less', async () => {
    await assert.rejects(
      tried(tokenFor('worker-api'), tokenFor('worker-api')),
      /does not have storage.*list/,
    );
    await assert.rejects(
      tried(cloud.token, tokenFor('worker-api')),
      /A TPU may create an object by its own account: compare the roles/,
    );
  });

  it('the rights of TPUs in the smoke test are wrong where worker-api has less', async () => {
    await assert.rejects(
      tried(tokenFor('worker'), tokenFor('control')),
      /gleaner-control@.* does not have storage\.objects\.create/,
    );
    await assert.rejects(
      tried(tokenFor('worker'), tokenFor('worker')),
      /gleaner-worker@.* does not have storage\.objects\.list/,
    );
  });

  it('the rights of TPUs in the smoke test need a token, and the error names the role', async () => {
    const google = await new GoogleProject().start();
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
    await google.close();
  });
});

describe('The state of the smoke test', () => {
  const folder = new Folder(afterEach);
  const place = {project: PROJECT, deployment: 'gleaner'};

  it('the state of the smoke test comes back from its file, and belongs to one deployment', () => {
    const file = folder.at('smoke.json');
    const state = {...readState(file, place), runs: {ten: 'smoke-x-ten-1'}, zone: 'us-central1-a'};
    writeState(file, state);
    assert.deepEqual(readState(file, place), state);
    assert.deepEqual(folder.names(), ['smoke.json']);
    assert.throws(() => readState(file, {...place, deployment: 'team-a'}), /name another --state-file/);
  });

  for (const text of ['', '{"project": 1}', '[]'])
    it(`the state of the smoke test of a file with ${text || 'nothing'} is refused, with what to do`, () => {
      const file = folder.put('smoke.json', text);
      assert.throws(() => readState(file, place), /smoke\.json.*delete the file/s);
    });

  it('the state of the smoke test needs a folder that takes it, before anything is bought', () => {
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
    google = await new GoogleProject().start();
    serveControl(google, store, ({action, run, job}) => {
      sent.push(`${action} ${run ?? job}`);
      return 'applied';
    });
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

  it('the work of the smoke test counts TPUs and network against the ceiling', async () => {
    bench.state.runs.ten = 'smoke-x-ten-1';
    await register('smoke-x-ten-1', {cost_usd: 1, network_usd: 2, download_usd: 0.5});
    assert.equal(await spentBy(bench), 3.5);
  });

  it('the work of the smoke test goes on with a run that waits for its first shard', async () => {
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
    it(`the work of the smoke test stops a run ${name} before it starts another`, async () => {
      const run = await newRun(bench, 'ten', ['a']);
      await register(run, changes);
      assert.notEqual(await newRun({...bench, model}, 'ten', ['a']), run);
      assert.deepEqual(sent, [`stop ${run}`]);
    });

  it('the work of the smoke test waits for the document of an uploaded run, and then stops it', async () => {
    const run = await newRun(bench, 'ten', ['a']);
    assert.deepEqual(await openRuns(bench), [run]);
    await assert.rejects(newRun(bench, 'lost', ['a']), /No document of smoke-x-ten-1 after 120 s/);
    await register(run);
    await newRun(bench, 'lost', ['a']);
    assert.deepEqual(sent, [`stop ${run}`]);
  });

  it('the work of the smoke test does not wait for a run that was never uploaded', async () => {
    bench.state.runs.ten = 'smoke-x-ten-1';
    await newRun(bench, 'ten', ['a']);
    assert.deepEqual(sent, []);
  });

  it('the work of the smoke test names its open runs and jobs, and the commands that end them', async () => {
    bench.state.runs.ten = 'smoke-x-ten-1';
    bucket.put(specObject('smoke-x-ten-1'), '{}');
    bench.state.jobs.push('done', 'open', 'never-created');
    await putDocuments(store, {'jobs/done': {status: 'failed'}, 'jobs/open': {status: 'running'}});
    assert.match(
      await leftText(bench),
      /`gleaner run stop smoke-x-ten-1` .*`gleaner jobs cancel open` ends it$/,
    );
  });

  it('the work of the smoke test cancels an unfinished job before a new one, which has the rest of the ceiling as its budget', async () => {
    bench.state.jobs.push('open');
    await putDocuments(store, {'jobs/open': {status: 'running', spent_usd: 2}});
    const job = STEPS.find(({name}) => name === 'a job');
    await assert.rejects(async () => job?.run(bench), /No taken job smoke-x-1/);
    assert.deepEqual(sent, ['cancel open']);
    assert.equal((await store.get('jobs/smoke-x-1'))?.budget_usd, 3);
  });

  it('the work of the smoke test has the TPUs of its pool and of its runs, and none that works for others', async () => {
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

  const losses = [
    {name: 'again with four times the records', ends: ['completed', 'failed'], next: 40, says: 'is failed'},
    {
      name: 'twice at most',
      ends: ['completed', 'completed'],
      next: 160,
      says: 'was completed before .* tries 160 records$',
    },
    {name: 'once where the run ends otherwise', ends: ['failed'], next: 10, says: 'is failed'},
  ];
  for (const {name, ends, next, says} of losses)
    it(`the work of the smoke test loses a TPU at the first shard in the bucket, ${name}`, async () => {
      const {state, clock} = bench;
      state.lost_records = 10;
      const runs: string[] = [];
      const worker = {name: 'tpu-us-central1-a-0', zone: 'us-central1-a', phase: 'working' as const};
      const sleep = async (seconds: number) => {
        const run = state.runs.lost ?? '';
        await register(run);
        await putDocuments(store, {[`workers/${worker.name}`]: aWorker({...worker, work: `${run}/000`})});
        bucket.put(shardObject(run, '000', 1, 'safetensors'), '');
        await clock.sleep(seconds);
      };
      bench.clock = {...clock, sleep};
      bench.tpus.delete = async name => {
        assert.equal(name, worker.name);
        const run = state.runs.lost ?? '';
        await register(run, {status: ends[runs.push(run) - 1]});
        return 'started';
      };
      const step = STEPS.find(each => each.name === 'a lost node');
      await assert.rejects(async () => step?.run(bench), {
        message: new RegExp(`^smoke-x-lost-${ends.length} ${says}`),
      });
      const lines = runs.map(run => bucket.text(streamObject(run, '000'))?.trim().split('\n').length);
      assert.deepEqual(lines, [10, 40].slice(0, ends.length));
      assert.equal(state.lost_records, next);
    });

  it('the work of the smoke test begins no step after a signal', () =>
    assert.rejects(runSteps(bench, false, AbortSignal.abort()), {name: 'AbortError'}));
});
