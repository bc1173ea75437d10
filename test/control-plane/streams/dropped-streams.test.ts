import assert from 'node:assert/strict';
import {gzipSync} from 'node:zlib';
import {aWorldWithAStream} from '../../world/scenes/one-worker.ts';
import {rejections} from '../../world/scenes/other-run.ts';
import {ONE_SLOT} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

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

  it('that is empty gets no TPU by a retry, which revives the others of its run', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, '');
    await world.untilAsleep();
    world.control({action: 'retry', run: 'my-run'});
    await world.order({action: 'retry', run: 'my-run', stream: '000'});
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
    await world.untilStoredOnce('my-run', '001', someLines(5));
    assert.equal((await world.stream('my-run', '000'))?.status, 'failed');
  });

  it('that was empty is registered when it is dropped again with records', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, '');
    await world.untilAsleep();
    world.drop('my-run', 0, someLines(3));
    await world.untilStoredOnce('my-run', '000', someLines(3));
    assert.equal((await world.run('my-run'))?.status, 'completed');
  });

  it('with and without .gz: the second object of an index is refused, the first goes on', async () => {
    const world = aWorldWithAStream(3);
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
    const world = aWorldWithAStream(3);
    await world.objects.delete(STREAM);
    await world.deliverAll();
    assert.deepEqual([await world.store.query('runs'), world.objects.names('activations/')], [[], []]);
    assert.ok(await world.isAsleep());
  });
});

describe('a task whose reads of streams are slow', () => {
  it('registers streams for less than a minute, and its next message goes on where it stopped', async () => {
    const world = new World(ONE_SLOT);
    for (let stream = 0; stream < 1_800; stream++) world.drop('my-run', stream, someLines(1));
    world.queue.length = 0;
    world.control({action: 'start', run: 'my-run'});
    world.control({action: 'pause', run: 'my-run'});
    for (let message = 0; message < 2; message++) await world.deliverNext('control');
    const {deps} = world;
    const {store} = deps;
    let reads = 0;
    const get: typeof store.get = async path => {
      if (/\/streams\//.test(path)) {
        reads += 1;
        world.now += 25;
      }
      return store.get(path);
    };
    world.deps = {...deps, store: {...store, get}};
    const registered = [];
    const took_ms = [];
    do {
      const began = world.now;
      assert.ok(await world.deliverNext('tasks'));
      took_ms.push(world.now - began);
      registered.push(await store.count('runs/my-run/streams'));
    } while (world.queue.some(({topic}) => topic === 'tasks'));
    assert.ok((registered[0] ?? 0) > 0 && (registered[0] ?? 0) < 1_800, `${registered}`);
    assert.equal(registered.at(-1), 1_800, `${registered}`);
    assert.ok(Math.max(...took_ms) < 60_000, `${took_ms}`);
    assert.equal(reads, 2 * 1_800, 'no message repeats the reads of an earlier one');
  });
});
