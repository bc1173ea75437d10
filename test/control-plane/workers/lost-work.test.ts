/** Work that goes on from the bucket after the database was lost. */
import assert from 'node:assert/strict';
import {poolRecords} from '../../../shared/control-plane/documents/documents.ts';
import {aWipedWorld} from '../../world/scenes/lost-store.ts';
import {aWorkingWorld, aWorldWithAStream, aWorldWithSpec} from '../../world/scenes/one-worker.ts';
import {A0, ONE_SLOT} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

describe('work under a lost database', () => {
  it('goes on after one message, and no stored shard is written again', async () => {
    const world = await aWipedWorld();
    const stored = await world.objects.list('activations/my-run/tpu_0/');
    assert.ok(stored.length >= 3 && stored.length < 10);
    await world.order({action: 'start', run: 'my-run'});
    const stream = await world.stream('my-run', '000');
    assert.deepEqual([stream?.total_shards, stream?.status], [stored.length, 'pending']);
    const run = await world.run('my-run');
    assert.deepEqual([run?.spec?.seed, run?.priority], [7, 3]);
    await world.untilStoredOnce('my-run', '000', someLines(20));
    await world.assertStoredOnce('my-run', '001', someLines(4, 'b'));
    const after = await world.objects.list('activations/my-run/tpu_0/shard_');
    assert.deepEqual(after.slice(0, stored.length), stored);
  });

  it('repeats no incarnation of a node, though the nodes cannot be listed at first', async () => {
    const world = await aWorkingWorld();
    world.control({action: 'recreate', worker: A0});
    await world.until('a second incarnation', () => world.agents.get(A0)?.incarnation === 2, 9, 1);
    await world.minutes(2, 1);
    await world.wipe();
    const {list} = world.deps.tpus;
    world.deps.tpus.list = async () => {
      throw new Error('403 Permission denied');
    };
    await assert.rejects(() => world.tick(), /403/);
    await world.deliverAll();
    world.deps.tpus.list = list;
    await world.untilAsleep();
    await world.resume('my-run');
    await world.untilStoredOnce('my-run', '000', someLines(20));
    assert.deepEqual(world.tpus.made, [`${A0}#1`, `${A0}#2`, `${A0}#3`]);
  });

  it('is registered by ticks alone, and its run waits for an operator', async () => {
    const world = await aWipedWorld();
    await world.untilAsleep();
    const {status, reason} = (await world.run('my-run')) ?? {};
    assert.equal(status, 'paused');
    assert.match(reason ?? '', /topics publish control --message='{"action":"resume","run":"my-run"}'$/);
    assert.ok(((await world.stream('my-run', '000'))?.total_shards ?? 0) >= 3);
    await world.resume('my-run');
    await world.untilStoredOnce('my-run', '000', someLines(20));
    await world.assertStoredOnce('my-run', '001', someLines(4, 'b'));
  });

  it('of a complete run needs no TPU', async () => {
    const world = aWorldWithAStream(5);
    await world.untilAsleep();
    const made = world.tpus.made.length;
    await world.wipe();
    world.control({action: 'start', run: 'my-run'});
    await world.untilStoredOnce('my-run', '000', someLines(5));
    assert.equal((await world.run('my-run'))?.status, 'completed');
    assert.equal(world.tpus.made.length, made);
  });

  it('of a complete run is registered as complete when its stream is dropped again', async () => {
    const world = aWorldWithAStream(5);
    await world.untilAsleep();
    await world.wipe();
    world.drop('my-run', 0, someLines(5));
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'completed', 'the run does not stay active for ever');
    await world.assertStoredOnce('my-run', '000', someLines(5));
  });

  it('keeps the spec of its manifest, with any later run.json', async () => {
    for (const text of ['{"seed": 8}', '{"modle": "x"}', '{']) {
      const world = await aWipedWorld();
      world.objects.put('datasets/my-run/run.json', text);
      world.control({action: 'start', run: 'my-run'});
      await world.untilAsleep();
      assert.equal((await world.run('my-run'))?.spec?.seed, 7);
      await world.assertStoredOnce('my-run', '000', someLines(20));
    }
  });

  it('keeps the order in which its runs began', async () => {
    const world = new World(ONE_SLOT);
    world.drop('zzz', 0, someLines(40));
    await world.minutes(5);
    world.drop('aaa', 0, someLines(40));
    await world.minutes(2, 0);
    await world.wipe();
    await world.minutes(3, 0);
    const [older, newer] = [await world.run('zzz'), await world.run('aaa')];
    assert.ok(String(older?.created_at) < String(newer?.created_at));
  });

  it('whose stream objects were deleted leaves no TPU behind', async () => {
    const world = await aWorkingWorld();
    await world.objects.delete('datasets/my-run/stream_000.jsonl');
    await world.wipe();
    await world.untilAsleep();
    assert.equal(world.tpus.nodes.size, 0);
  });

  it('creates no second node of a name when a stream is dropped before the first tick', async () => {
    const world = await aWipedWorld();
    world.drop('other', 0, someLines(2));
    await world.deliverNext('object');
    assert.equal((await world.run('other'))?.status, 'active');
    assert.equal(await world.worker(A0), undefined);
    await world.untilAsleep();
    assert.deepEqual(world.tpus.made, [`${A0}#1`, `${A0}#2`]);
    await world.assertStoredOnce('other', '000', someLines(2));
    assert.equal((await world.run('my-run'))?.status, 'paused');
  });

  it('does not mix contents: a stream that was overwritten since fails for the shards that it has', async () => {
    const world = await aWipedWorld();
    world.drop('my-run', 0, someLines(20, 'new'));
    await world.untilAsleep();
    const stream = await world.stream('my-run', '000');
    assert.equal(stream?.status, 'failed');
    assert.match(stream?.last_error ?? '', /shard_0001.safetensors was made from other content/);
  });
});

describe('messages of a lost database', () => {
  it('are forgotten: the run waits for an operator as its manifest describes it, without costs', async () => {
    const world = aWorldWithSpec('{"priority": 3, "budget_usd": 50}', 20);
    world.drop('my-run', 1, someLines(4, 'b'));
    const stored = async () => (await world.stream('my-run', '000'))?.total_shards ?? 0;
    await world.until('some shards', async () => (await stored()) >= 2, 20, 1);
    world.control({action: 'configure', run: 'my-run', priority: 4, budget_usd: 90});
    world.control({action: 'scale', workers_per_zone: 2, provisioning: 'auto'});
    world.control({action: 'cancel', run: 'my-run', stream: '000'});
    await world.order({action: 'delete', worker: A0});
    const before = (await world.run('my-run')) ?? assert.fail();
    assert.deepEqual([before.priority, before.budget_usd, before.version], [4, 90, 1]);
    assert.ok(before.cost_usd > 0);
    assert.equal((await world.stream('my-run', '000'))?.status, 'failed');
    await world.wipe();
    await world.untilAsleep();
    const {status, priority, budget_usd, version, spent_usd} = (await world.run('my-run')) ?? assert.fail();
    assert.deepEqual([status, priority, budget_usd, version, spent_usd], ['paused', 3, 50, 0, 0]);
    assert.equal((await world.stream('my-run', '000'))?.status, 'pending');
    const pool = await poolRecords.get(world.store, world.deps.config.pool);
    assert.deepEqual([pool.workers_per_zone, pool.provisioning, pool.version], [1, 'node', 0]);
    await world.resume('my-run');
    await world.untilStoredOnce('my-run', '000', someLines(20));
    await world.assertStoredOnce('my-run', '001', someLines(4, 'b'));
    assert.match(world.tpus.made.at(-1) ?? '', new RegExp(`^${A0}#`), 'the slot is free again');
  });

  it('have no copy in the bucket but the stop', async () => {
    const world = await aWipedWorld();
    for (const action of ['start', 'pause', 'stop']) world.control({action, run: 'my-run'});
    world.control({action: 'scale', workers_per_zone: 2});
    await world.untilAsleep();
    const others = world.objects
      .names()
      .filter(name => !/^(datasets|activations\/my-run\/tpu_\d+)\//.test(name));
    assert.deepEqual(others, ['activations/my-run/manifest.json', 'system/stops/my-run.json']);
  });
});

describe('a stop that is the first message of an empty database', () => {
  it('is obeyed', async () => {
    const world = await aWipedWorld();
    const id = await world.order({action: 'stop', run: 'my-run'});
    assert.equal((await world.store.get(`control/${id}`))?.outcome, 'applied');
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'stopped');
  });
});
