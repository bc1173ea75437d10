import assert from 'node:assert/strict';
import {TestHome, texts} from '../support/machine/home.ts';

const ZONE = 'us-central1-a';

describe('A pool of instances on a local cloud', () => {
  let home: TestHome;
  before(async () => {
    home = await TestHome.start(1, {GLEANER_PROVIDERS: 'tpu-api,compute-engine'});
  });
  after(() => home.remove());

  for (const fault of ['preempt', 'preempt-with-notice'])
    it(`completes a run after the fault ${fault}, and leaves no instance @long`, async () => {
      const pool = fault === 'preempt' ? 'fast' : 'fair';
      const terms = {provider: 'compute-engine', accelerator: 'v6e-1', zones: [ZONE], workers_per_zone: 1};
      await home.publish({action: 'pool', pool, ...terms});
      const spec = {layers: '0-1', shard_size_gb: 0.001, pool};
      await home.drop(`datasets/${pool}/run.json`, JSON.stringify(spec));
      await home.drop(`datasets/${pool}/stream_000.jsonl`, texts(6000, 'a'));
      await home.until(
        'the first shard',
        () => home.view(pool),
        view => (view?.streams[0]?.total_shards ?? 0) > 0,
      );
      await home.fault(fault, `${pool}-${ZONE}-0`);
      const view = await home.runEnds(pool);
      assert.equal(view?.run.status, 'completed');
      assert.ok((view?.streams[0]?.epoch ?? 0) > 1, 'the instance was replaced');
      const report = await home.verify(pool);
      assert.deepEqual([report.ok, report.stored_once], [true, 6000]);
      await home.until('no instance', async () => (await home.state()).tpus.length === 0);
    });
});
