import assert from 'node:assert/strict';
import {gzipSync} from 'node:zlib';
import {World} from '../support/control-plane-harness.ts';
import {rejections} from '../support/other-run.ts';
import {ONE_SLOT} from '../support/places.ts';
import {someLines} from '../support/shard-plan.ts';

const STREAM = 'datasets/my-run/stream_000.jsonl';

describe('a stream', () => {
  it('that is empty fails by name, alone, and fails its run with that reason', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, '');
    world.drop('my-run', 1, someLines(3));
    await world.untilAsleep();
    const stream = await world.stream('my-run', '000');
    assert.deepEqual(
      [stream?.status, stream?.last_error],
      ['failed', `${STREAM} is empty: it holds no record`],
    );
    await world.assertStoredOnce('my-run', '001', someLines(3));
    const run = await world.run('my-run');
    assert.deepEqual(
      [run?.status, run?.reason],
      ['failed', `stream 000: ${STREAM} is empty: it holds no record`],
    );
  });

  it('that is the only one and empty fails its run', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, '');
    await world.untilAsleep();
    const run = await world.run('my-run');
    assert.deepEqual([run?.status, run?.streams_failed], ['failed', 1]);
    assert.deepEqual(world.tpus.made, []);
  });

  it('that is empty gets no TPU by a retry, which revives the others of its run', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, '');
    await world.untilAsleep();
    world.control({action: 'retry', run: 'my-run'});
    world.control({action: 'retry', run: 'my-run', stream: '000'});
    await world.deliverAll();
    await world.untilAsleep();
    assert.deepEqual(world.tpus.made, []);
    assert.equal((await world.run('my-run'))?.status, 'failed');
    assert.match(
      (await world.timeline('control')).join('\n'),
      /rejected: stream my-run\/000 is empty: drop it again/,
    );
    world.drop('my-run', 1, someLines(5));
    world.control({action: 'cancel', run: 'my-run', stream: '001'});
    await world.untilAsleep();
    world.control({action: 'retry', run: 'my-run'});
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '001', someLines(5));
    assert.equal((await world.stream('my-run', '000'))?.status, 'failed');
  });

  it('that was empty is registered when it is dropped again with records', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, '');
    await world.untilAsleep();
    world.drop('my-run', 0, someLines(3));
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(3));
    assert.equal((await world.run('my-run'))?.status, 'completed');
  });

  it('that is dropped again without a record fails', async () => {
    const world = new World(ONE_SLOT);
    world.tpus.zone('us-central1-a').soldOut = true;
    world.drop('my-run', 0, someLines(3));
    await world.deliverAll();
    world.drop('my-run', 0, '');
    await world.untilAsleep();
    assert.match((await world.stream('my-run', '000'))?.last_error ?? '', /is empty/);
    assert.equal((await world.run('my-run'))?.status, 'failed');
  });

  it('with and without .gz: the second object of an index is refused, the first goes on', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(3));
    await world.deliverAll();
    world.objects.put(`${STREAM}.gz`, gzipSync(someLines(9)));
    await world.deliverAll();
    assert.match(
      await rejections(world),
      /stream_000.jsonl.gz has the same index as .*stream_000.jsonl, which was there first/,
    );
    await world.untilAsleep();
    assert.equal((await rejections(world)).split('has the same index').length, 2, 'it is recorded once');
    await world.assertStoredOnce('my-run', '000', someLines(3));
    assert.equal((await world.run('my-run'))?.status, 'completed');
  });

  it('that is gone before its event is read makes no run', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(3));
    await world.objects.delete(STREAM);
    await world.deliverAll();
    assert.deepEqual([await world.store.query('runs'), world.objects.names('activations/')], [[], []]);
    assert.ok(await world.isAsleep());
  });
});
