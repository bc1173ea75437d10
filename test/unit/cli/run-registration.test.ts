import assert from 'node:assert/strict';
import {untilRegistered} from '../../../cli/run/registration.ts';
import {writeSpec} from '../../../cli/run/spec/write-spec.ts';
import type {Cloud} from '../../../client/cloud/cloud.ts';
import {setQuiet} from '../../../client/text/output.ts';
import {completeSpec} from '../../../shared/contracts/spec/spec.ts';
import {FakeBucket} from '../../world/bucket.ts';
import {aConfig, aRun, aStream, at, T0} from '../../world/builders.ts';
import {callAtOnce} from '../../world/call.ts';
import {aStore} from '../../world/scenes/put-documents.ts';

const SPEC_OBJECT = 'datasets/my-run/run.json';
const refusedRun = aRun({status: 'failed', spec: null, spec_hash: null, reason: 'run.json is not JSON'});

async function aCloud(documents: Record<string, object> = {}): Promise<{cloud: Cloud; bucket: FakeBucket}> {
  const store = await aStore(documents);
  const bucket = new FakeBucket(() => T0);
  return {cloud: {store, objects: bucket.through(callAtOnce)} as Cloud, bucket};
}

describe('run.json of run start', () => {
  before(() => setQuiet(true));
  after(() => setQuiet(false));

  it('run.json of run start is written once, and is left as it is by the same command', async () => {
    const {cloud, bucket} = await aCloud();
    await writeSpec(cloud, 'my-run', {seed: 3});
    const generation = bucket.info(SPEC_OBJECT)?.generation;
    await writeSpec(cloud, 'my-run', {seed: 3});
    assert.equal(bucket.info(SPEC_OBJECT)?.generation, generation);
  });

  it('run.json of run start is not replaced by another spec, whose keys are named', async () => {
    const {cloud, bucket} = await aCloud();
    bucket.put(SPEC_OBJECT, '{"seed": 3, "dtype": "bf16"}');
    await assert.rejects(
      writeSpec(cloud, 'my-run', {seed: 4, keep: ['id']}),
      /seed: 3 there, 4 here\n.*keep: the default there, \["id"\] here\n.*dtype: "bf16" there, the default here/s,
    );
    assert.equal(bucket.text(SPEC_OBJECT), '{"seed": 3, "dtype": "bf16"}');
  });

  it('`run start` on a run that has begun writes run.json with the settings of its document, which `configure` changes', async () => {
    const {cloud, bucket} = await aCloud({'runs/my-run': aRun({budget_usd: 7, priority: 2})});
    const frozen = completeSpec({seed: 3, moments: {}}, aConfig());
    bucket.put(
      'activations/my-run/manifest.json',
      JSON.stringify({schema: 'gleaner/1', run: 'my-run', spec_hash: 'a'.repeat(64), ...frozen}),
    );
    await writeSpec(cloud, 'my-run', {seed: 3, moments: {}, features: [], budget_usd: 7, priority: 2});
    await assert.rejects(
      writeSpec(cloud, 'my-run', {budget_usd: 5}),
      /budget_usd is 7, not 5; change it with `gleaner run configure my-run --budget-usd 5`/,
    );
    await assert.rejects(
      writeSpec(cloud, 'my-run', {budget_usd: null}),
      /configure my-run --budget-usd none`/,
    );
    await assert.rejects(
      writeSpec(cloud, 'my-run', {seed: 4}),
      /its spec is frozen[\s\S]*seed: 3 there, 4 here/,
    );
  });

  it('run.json of run start is replaced where the run was refused for it', async () => {
    const {cloud, bucket} = await aCloud({'runs/my-run': refusedRun});
    bucket.put(SPEC_OBJECT, '{"seed": "no"}');
    await writeSpec(cloud, 'my-run', {seed: 4});
    assert.deepEqual(JSON.parse(bucket.text(SPEC_OBJECT) ?? ''), {seed: 4});
  });
});

describe('The wait of run start', () => {
  before(() => setQuiet(true));
  after(() => setQuiet(false));
  const stopped = new AbortController().signal;
  const wait = {streams: ['000', '001'], since: at(0), stopped};

  it('the wait of run start ends when each stream is registered or rejected, and returns the reasons', async () => {
    const {cloud} = await aCloud({
      'runs/my-run': aRun(),
      'runs/my-run/streams/000': aStream(),
      'events/e1': {
        ...{at: at(1), kind: 'rejected', run: 'my-run', text: 'it is empty'},
        object: 'datasets/my-run/stream_001.jsonl.gz',
      },
    });
    assert.deepEqual(await untilRegistered(cloud, 'my-run', wait), ['it is empty']);
  });

  it('the wait of run start fails with the reason of a refused spec', async () => {
    const {cloud} = await aCloud({'runs/my-run': refusedRun});
    await assert.rejects(
      untilRegistered(cloud, 'my-run', wait),
      /Failed to start run my-run: run\.json is not JSON/,
    );
  });

  it('the wait of run start ends at Ctrl-C', async () => {
    const {cloud} = await aCloud({'runs/my-run': aRun()});
    const interrupted = {...wait, stopped: AbortSignal.abort()};
    await assert.rejects(untilRegistered(cloud, 'my-run', interrupted), {name: 'Interrupted'});
  });
});
