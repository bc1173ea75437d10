import assert from 'node:assert/strict';
import type {Cloud} from '../../../client/cloud/cloud.ts';
import {countKnown, openAgentLog} from '../../../client/logs/agent-log.ts';
import {logsBucketOf} from '../../../client/logs/agent-logs.ts';
import {logText, parseLogLine} from '../../../client/logs/log-line.ts';
import {tpusOfRun} from '../../../client/logs/run-tpus.ts';
import {Tail} from '../../../client/logs/tail.ts';
import {kindOf} from '../../../client/logs/target.ts';
import type {Store} from '../../../shared/ports/ports.ts';
import {FakeBucket} from '../../world/bucket.ts';
import {aLeasedStream, aRun, at, aWorker, T0} from '../../world/builders.ts';
import {callAtOnce} from '../../world/call.ts';
import {aStore} from '../../world/scenes/put-documents.ts';

const A = 'tpu-us-central1-a-0';
const B = 'tpu-us-central1-a-1';

describe('A line of a log', () => {
  for (const {name, raw, lines} of [
    {
      name: 'is its time, severity and message',
      raw: '{"time":"2026-01-02T03:04:05.678Z","severity":"INFO","message":"Leased"}',
      lines: ['03:04:05 INFO Leased'],
    },
    {
      name: 'has its traceback below',
      raw: '{"time":"2026-01-02T03:04:05.678Z","severity":"ERROR","message":"No","traceback":"T:\\n  x\\n"}',
      lines: ['03:04:05 ERROR No', '  T:', '    x'],
    },
    {
      name: 'has the time of a boot',
      raw: '2026-01-02T03:04:05Z startup: Step of the boot: bundle',
      lines: ['03:04:05 startup: Step of the boot: bundle'],
    },
    {name: 'is whole where it is no JSON', raw: 'Killed {', lines: ['Killed {']},
    {name: 'is whole where it is JSON of another kind', raw: '{"a":1}', lines: ['{"a":1}']},
    {
      name: 'has no time where its time is invalid',
      raw: '{"time":"soon","severity":"INFO","message":"m"}',
      lines: ['INFO m'],
    },
  ])
    it(name, () => assert.deepEqual(logText(parseLogLine(raw)), lines));
});

describe('A log that its agent rewrites', () => {
  for (const {name, lines, last, known} of [
    {name: 'without earlier lines', lines: ['a'], last: [], known: 0},
    {name: 'with further lines', lines: ['a', 'b', 'c'], last: ['a', 'b'], known: 2},
    {name: 'without its oldest lines', lines: ['c', 'd'], last: ['a', 'b', 'c'], known: 1},
    {name: 'with repeated lines', lines: ['a', 'a', 'a', 'b'], last: ['a', 'a'], known: 3},
    {name: 'with other content', lines: ['x', 'y'], last: ['a', 'b'], known: 0},
  ])
    it(`a log that its agent rewrites has ${known} known lines ${name}`, () =>
      assert.equal(countKnown(lines, last), known));

  it('a log that its agent rewrites gives each line once', async () => {
    const bucket = new FakeBucket(() => T0);
    const log = openAgentLog(bucket.through(callAtOnce), A, 2, 0);
    assert.equal(await log.read(), undefined);
    bucket.put(log.name, '1\n2\n');
    assert.deepEqual(await log.read(), ['1', '2']);
    assert.deepEqual(await log.read(), []);
    bucket.put(log.name, '2\n3\n4');
    assert.deepEqual(await log.read(), ['3', '4']);
  });
});

describe('The tail of a log', () => {
  const shown = (most: number) => {
    const lines: number[] = [];
    const tail = new Tail<number>(most, line => lines.push(line));
    for (let line = 0; line < 3000; line++) tail.add(line);
    tail.flush();
    tail.add(3000);
    return lines;
  };

  it('the tail of a log is its last lines, and every later line', () => {
    assert.deepEqual(shown(2), [2998, 2999, 3000]);
    assert.deepEqual(shown(0), [3000]);
    assert.equal(shown(Number.POSITIVE_INFINITY).length, 3001);
  });
});

describe('The bucket of logs', () => {
  const google = {project: 'p', deployment: 'gleaner', bucket: 'data', storage_endpoint: undefined};
  it('the bucket of logs is that of the environment, of Terraform, or of a local cloud', () => {
    assert.equal(logsBucketOf(google, {GLEANER_LOGS_BUCKET: 'mine'}), 'mine');
    assert.equal(logsBucketOf(google, {}), 'p-gleaner-logs');
    assert.equal(logsBucketOf({...google, storage_endpoint: 'http://127.0.0.1:1'}, {}), 'data');
  });
});

describe('The TPUs of a run', () => {
  it('the TPUs of a run hold its leases, worked for it or ended for it, each with its newest incarnation', async () => {
    const attempt = {
      ...{worker: B, cause: 'it was preempted', ready_at: null, ended_at: at(1), expire_at: at(2)},
      ...{costs: {'my-run': 1}, cost_usd: 1},
    };
    const store = await aStore({
      'runs/my-run/streams/007': aLeasedStream(),
      'runs/my-run/streams/008': {status: 'in_progress', lease: 'gone'},
      [`workers/${A}`]: aWorker({incarnation: 2}),
      [`workers/${B}`]: aWorker({name: B, incarnation: 9, phase: 'gone'}),
      'workers/tpu-us-central1-a-2': aWorker({name: 'tpu-us-central1-a-2', work: 'other/001'}),
      'workers/tpu-us-central1-a-3': {name: 'tpu-us-central1-a-3', phase: 3},
      [`workers/${B}/attempts/000004`]: {...attempt, incarnation: 4},
      [`workers/${B}/attempts/000005`]: {...attempt, incarnation: 5},
      [`workers/${B}/attempts/000006`]: {...attempt, incarnation: 6, costs: {other: 1}},
    });
    assert.deepEqual(await tpusOfRun(store, 'my-run'), [
      {tpu: A, incarnation: 2},
      {tpu: B, incarnation: 5},
    ]);
    await store.close();
  });
});

describe('The name of a log', () => {
  let store: Store;
  const kind = (name: string, given = {}) => kindOf({store, jobs: 'jobs'} as Cloud, name, given);
  before(async () => {
    store = await aStore({
      'runs/my-run': aRun(),
      [`runs/${A}`]: aRun({run: A}),
      [`workers/${A}`]: aWorker(),
      'jobs/J1': {created_at: at(0)},
    });
  });
  after(() => store.close());

  it('the name of a log is a run, a TPU or a job', async () => {
    assert.equal(await kind('my-run'), 'run');
    assert.equal(await kind('J1'), 'job');
    assert.equal(await kind(A, {tpu: true}), 'tpu');
  });

  it('a name that is both a run and a TPU needs its kind', () =>
    assert.rejects(kind(A), /There is a run and a TPU ".*": add --run or --tpu/));

  it('the name of a log is answered with near names where it is unknown', async () => {
    await assert.rejects(
      kind('my-rum'),
      /There is no run, TPU or job "my-rum": check the name; did you mean "my-run"\?/,
    );
    await assert.rejects(
      kind('J2', {job: true}),
      /There is no job "J2": check the name; did you mean "J1"\?/,
    );
    await assert.rejects(kind('../runs/my-run'), /There is no run, TPU or job/);
  });
});
