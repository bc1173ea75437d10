import assert from 'node:assert/strict';
import {dirname} from 'node:path';
import {earlierRun, newestRun} from '../../../cli/run/estimate/earlier-run.ts';
import {findTarget} from '../../../cli/run/estimate/estimate.ts';
import type {Cloud} from '../../../client/cloud/cloud.ts';
import {completeSpec} from '../../../shared/contracts/spec/spec.ts';
import {LIST_PRICES} from '../../../shared/domain/billing/list-prices.ts';
import {ResultFold} from '../../../shared/domain/run/result.ts';
import {Folder} from '../../support/machine/folder.ts';
import {FakeBucket} from '../../world/bucket.ts';
import {aConfig, aRun, at, aWorker, T0} from '../../world/builders.ts';
import {callAtOnce} from '../../world/call.ts';
import {aStore} from '../../world/scenes/put-documents.ts';

const NO_OBJECTS = {} as Cloud['objects'];

describe('gleaner estimate', () => {
  const folder = new Folder(after);

  it('gleaner estimate names what its target and its spec lack', async () => {
    const find = (target: string) => findTarget(target, undefined);
    await assert.rejects(find('./no.jsonl'), /There is no file and no run \.\/no\.jsonl/);
    await assert.rejects(find('cli'), /cli has \d+ files that no run reads/);
  });

  it('gleaner estimate takes every stream of a folder, with its run.json', async () => {
    const files = ['stream_000.jsonl', 'stream_001.jsonl'].map(name =>
      folder.put(`streams/${name}`, '{"text": "a"}\n'),
    );
    folder.put('streams/run.json', '{"layers": "0-3"}');
    const {what, args, input} = await findTarget(dirname(files[0] ?? ''), undefined);
    assert.match(what, /^2 streams of /);
    assert.deepEqual(args, ['--file', files[0], '--file', files[1]]);
    assert.equal(input.layers, '0-3');
  });

  it('gleaner estimate names a run that is not there, or has no cost, to estimate like', async () => {
    const store = await aStore({'runs/free': aRun({run: 'free', spent_usd: 0})});
    const like = (run: string) => earlierRun(run, {store, objects: NO_OBJECTS}, 'v5litepod-1', LIST_PRICES);
    await assert.rejects(like('no-run'), /There is no run "no-run" to compare with/);
    await assert.rejects(like('free'), /Run "free" has no cost per token/);
  });
});

describe('An earlier run', () => {
  /** Two TPUs at $3.60 an hour for 100 s each; the first served another run for half of its time. */
  const life = (tpu: string, costs: object, phases: object) => ({
    [`workers/${tpu}/attempts/1`]: {
      ...{worker: tpu, expire_at: at(9e6), incarnation: 1, cause: 'not needed', ready_at: at(0)},
      ...{ended_at: at(100), cost_usd: 0.1, costs, phases},
    },
  });
  const seconds = (entries: Record<string, number>) =>
    Object.fromEntries(Object.entries(entries).map(([name, each]) => [name, {seconds: each, usd: 0}]));
  const [A, B] = ['tpu-us-central1-a-0', 'tpu-us-central1-a-1'];
  const manifest = {
    ...{schema: 'gleaner/1', run: 'my-run', spec: {}, spec_hash: 'a'.repeat(64)},
    placement: completeSpec({}, aConfig()).placement,
    result: {...new ResultFold().result(), upload: {bytes: 5e9, seconds: 10, bound_seconds: 9}},
  };
  const cloudOf = async () => {
    const bucket = new FakeBucket(() => T0);
    bucket.put('activations/my-run/manifest.json', JSON.stringify(manifest));
    const store = await aStore({
      'runs/my-run': aRun({run: 'my-run', status: 'completed', cost_usd: 0.15, total_tokens: 90_000}),
      'pools/tpu': {...aConfig().pool, zones: ['us-central1-a']},
      'prices/chips': {v5litepod: {usd: 3.6, spot_usd: 3.6}},
      [`workers/${A}`]: aWorker({name: A, phase: 'gone'}),
      [`workers/${B}`]: aWorker({name: B, phase: 'gone'}),
      ...life(A, {'my-run': 0.05, other: 0.05}, seconds({create_wait: 9, boot: 20, extract: 80})),
      ...life(B, {'my-run': 0.1}, seconds({boot: 20, extract: 60, lost: 20})),
    });
    return {store, objects: bucket.through(callAtOnce)};
  };
  const PRICES = {v5litepod: {usd: 3.6, spot_usd: 3.6}};

  it('an earlier run gives back its own bill, whatever its TPUs did beside it', async () => {
    const earlier = await earlierRun('my-run', await cloudOf(), 'v5litepod-1', PRICES);
    const {tokens_per_s, work_s, start_s, usd_per_hour, upload} = earlier;
    // Of 150 s of the run, 120 s are work: 40 s of the TPU that another run shared, and 80 s of the other.
    assert.deepEqual([tokens_per_s, work_s, usd_per_hour], [90_000 / 120, 120, 3.6]);
    assert.ok(Math.abs(start_s - 15) < 1e-9, String(start_s));
    assert.ok(Math.abs(((90_000 / tokens_per_s + 2 * start_s) / 3600) * usd_per_hour - 0.15) < 1e-12);
    assert.deepEqual([upload?.basis, upload?.estimate], ['measured', 5e8]);
  });

  it('an earlier run is the newest completed run of the pool', async () => {
    const cloud = await cloudOf();
    assert.equal((await newestRun(cloud, 'tpu'))?.run, 'my-run');
    assert.equal(await newestRun(cloud, 'other'), undefined);
  });
});
