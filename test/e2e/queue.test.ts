import assert from 'node:assert/strict';
import {SPEC, TestHome, texts} from '../support/machine/home.ts';

const ZONE = 'us-central1-a';
const WORKER = `${ZONE}-0`;

describe('A pool with queued resources on a local cloud', () => {
  let home: TestHome;
  before(async () => {
    home = await TestHome.start(1);
  });
  after(() => home.remove());

  const queued = async () => (await home.state()).queued_resources.map(({name, state}) => `${name} ${state}`);

  it('completes a run after a stock-out and a suspended queued resource, and empties the queue @long', async () => {
    await home.publish({action: 'scale', provisioning: 'queued-resource'});
    await home.fault('stockout', ZONE);
    await home.drop('datasets/patient/run.json', SPEC);
    await home.drop('datasets/patient/stream_000.jsonl', texts(400, 'a'));
    await home.until(
      'a waiting queued resource',
      queued,
      names => names.join() === `tpu-${WORKER} WAITING_FOR_RESOURCES`,
    );
    await home.fault('clear', 'stockout');
    await home.until(
      'the first shard',
      () => home.view('patient'),
      view => (view?.streams[0]?.total_shards ?? 0) > 0,
    );
    assert.deepEqual(await queued(), [`tpu-${WORKER} ACTIVE`]);
    await home.fault('suspend', `tpu-${WORKER}`);
    const view = await home.runEnds('patient');
    assert.equal(view?.run.status, 'completed');
    const report = await home.verify('patient');
    assert.deepEqual([report.ok, report.stored_once], [true, 400]);
    await home.until('an empty queue', queued, names => names.length === 0);
    assert.deepEqual((await home.state()).tpus, []);
  });
});
