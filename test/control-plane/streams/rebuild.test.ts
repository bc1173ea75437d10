import assert from 'node:assert/strict';
import type {Document} from '../../../shared/ports/ports.ts';
import {aDoneWorld, documentsOf} from '../../world/scenes/finished-runs.ts';
import {aWipedWorld} from '../../world/scenes/lost-store.ts';
import {aWorldWithSpec} from '../../world/scenes/one-worker.ts';
import {A0, ONE_SLOT} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

describe('a rebuild', () => {
  it('without a run makes the documents of every run again as they were, and needs no TPU', async () => {
    const world = await aDoneWorld();
    const before = await documentsOf(world);
    const made = world.tpus.made.length;
    await world.wipe();
    await world.order({action: 'rebuild'});
    const {status, result} = (await world.store.get('tasks/rebuild')) ?? {};
    assert.equal(status, 'done');
    assert.match(String(result), /2 runs have a rebuild task each/);
    await world.untilAsleep();
    assert.deepEqual(await documentsOf(world), before);
    assert.equal(world.tpus.made.length, made);
  });

  it('without a run opens the task of each run once, also where a page is repeated', async () => {
    const world = await aDoneWorld();
    await world.wipe();
    world.control({action: 'rebuild'});
    const {publish} = world.deps.bus;
    const task = (id: string) => world.store.get(`tasks/${id}`);
    let opened_at: unknown;
    world.deps.bus.publish = async (topic, message) => {
      if (message.run !== 'other') return publish(topic, message);
      world.deps.bus.publish = publish;
      opened_at = (await task('rebuild-my-run'))?.created_at;
      world.now += 1000;
      throw new Error('the bus is away');
    };
    await world.deliverAll();
    await world.minutes(2, 0);
    assert.ok(world.logs.some(({message}) => /Task rebuild failed, and is tried again/.test(message)));
    const tasks = await Promise.all(['rebuild', 'rebuild-my-run', 'rebuild-other'].map(task));
    assert.deepEqual(
      tasks.map(each => each?.status),
      ['done', 'done', 'done'],
    );
    assert.equal(tasks[1]?.created_at, opened_at);
  });

  it('of a run whose shards have expired is refused, and its stored counts stay', async () => {
    const world = aWorldWithSpec({expire_days: 2}, 20);
    await world.untilAsleep();
    const before = (await world.run('my-run')) ?? assert.fail();
    assert.deepEqual([before.status, before.expire_days], ['completed', 2]);
    world.now += 3 * 86_400_000;
    const shards = await world.deps.objects.list('activations/my-run/tpu_0/');
    for (const {name} of shards) await world.deps.objects.delete(name);
    world.control({action: 'rebuild', run: 'my-run'});
    await world.untilAsleep();
    assert.match(
      String((await world.store.get('tasks/rebuild-my-run'))?.result),
      /^refused: shards of run my-run have/,
    );
    const {status, total_shards, reason} = (await world.run('my-run')) ?? assert.fail();
    assert.deepEqual([status, total_shards, reason], ['completed', before.total_shards, before.reason]);
  });

  const damages: {
    name: string;
    path: string;
    change: (data: Document) => Document | undefined;
    says: RegExp;
  }[] = [
    {
      name: 'a count that is too high',
      path: 'runs/my-run/streams/000',
      change: data => ({...data, total_shards: 99, last_processed_sample_idx: 500}),
      says: /last_processed_sample_idx is 500, and 19 in the bucket/,
    },
    {
      name: 'a complete stream that is called failed',
      path: 'runs/my-run/streams/000',
      change: data => ({...data, status: 'failed', last_error: 'an operator wrote this'}),
      says: /it is failed, and its last shard is in the bucket/,
    },
    {
      name: 'a stream without a document',
      path: 'runs/my-run/streams/001',
      change: () => undefined,
      says: /1 stream mended \(was missing\)/,
    },
    {
      name: 'a shard without a document',
      path: 'runs/my-run/streams/000/shards/0003',
      change: () => undefined,
      says: /9 shards have a document/,
    },
    {
      name: 'a document without a shard',
      path: 'runs/my-run/streams/000/shards/0011',
      change: () => ({shard: 11}),
      says: /11 shards have a document/,
    },
  ];
  for (const {name, path, change, says} of damages)
    it(`mends ${name}, and changes no other document`, async () => {
      const world = await aDoneWorld();
      const before = await documentsOf(world);
      await world.store.transaction(async tx => {
        const damaged = change((await tx.get(path)) ?? {});
        if (damaged) tx.set(path, damaged);
        else tx.delete(path);
      });
      const id = await world.order({action: 'rebuild', run: 'my-run'});
      const record = await world.store.get(`control/${id}`);
      assert.equal(record?.outcome, 'applied', String(record?.reason));
      const task = await world.store.get('tasks/rebuild-my-run');
      assert.equal(task?.status, 'done');
      assert.match(`${task?.result} ${await world.timeline('stream')}`, says);
      await world.untilAsleep();
      assert.deepEqual(await documentsOf(world), before);
    });

  for (const [path, change, says] of [
    ['runs/my-run/streams/000', {epoch: 'seven'}, /1 left-alone/],
    ['runs/my-run', {status: 'archived'}, /refused: Failed to read runs\/my-run: status/],
  ] as const)
    it(`leaves ${path} alone where this release does not understand it`, async () => {
      const world = await aDoneWorld();
      await world.edit(path, change);
      const before = await documentsOf(world);
      await world.order({action: 'rebuild', run: 'my-run'});
      assert.match(String((await world.store.get('tasks/rebuild-my-run'))?.result), says);
      assert.deepEqual(await documentsOf(world), before);
    });

  it('uncounts a shard that is gone from the bucket, and that shard alone is computed again', async () => {
    const world = await aDoneWorld();
    await world.objects.delete('activations/my-run/tpu_0/shard_0010.safetensors');
    const kept = await world.objects.list('activations/my-run/tpu_0/shard_');
    world.control({action: 'rebuild', run: 'my-run'});
    await world.untilStoredOnce('my-run', '000', someLines(20));
    const after = await world.objects.list('activations/my-run/tpu_0/shard_');
    assert.deepEqual(after.slice(0, kept.length), kept);
    assert.equal((await world.run('my-run'))?.status, 'completed');
  });

  it('keeps a newer count that was stored after its listing', async () => {
    const world = await aDoneWorld();
    const path = 'runs/my-run/streams/000';
    const right = (await world.store.get(path)) ?? assert.fail();
    const set = (data: Document) => world.store.transaction(async tx => tx.set(path, data));
    await set({...right, total_shards: 3});
    const {list} = world.deps.objects;
    let listings = 0;
    world.deps.objects.list = async (prefix, options) => {
      const found = await list(prefix, options);
      // The second listing is the one that counts: the last shard was stored and counted after it.
      if (!prefix.endsWith('/tpu_0/') || ++listings !== 2) return found;
      await set({...right, updated_at: new Date(world.now).toISOString()});
      return found.filter(({name}) => !name.includes('shard_0010'));
    };
    await world.order({action: 'rebuild', run: 'my-run'});
    const after = await world.stream('my-run', '000');
    assert.deepEqual([listings, after?.total_shards, after?.status], [3, 10, 'completed']);
  });

  it('counts no shard for content that replaced its own after the listing', async () => {
    const world = await aWipedWorld();
    const {list} = world.deps.objects;
    world.deps.objects.list = async (prefix, options) => {
      const found = await list(prefix, options);
      if (prefix.startsWith('datasets/my-run/') && found.length === 2) {
        world.deps.objects.list = list;
        world.drop('my-run', 0, someLines(9, 'other'));
        await world.deliverNext('object');
      }
      return found;
    };
    const shards = (await list('activations/my-run/tpu_0/shard_')).length;
    await world.order({action: 'rebuild', run: 'my-run'});
    const stream = await world.stream('my-run', '000');
    assert.deepEqual([shards > 0, stream?.total_shards, stream?.status], [true, 0, 'failed']);
    assert.match(stream?.last_error ?? '', /was made from other content of its stream/);
  });

  it('of a run at work disturbs no worker, however often it is asked for', async () => {
    const world = await aWipedWorld();
    for (let minute = 0; minute < 12; minute++) {
      world.control({action: 'rebuild', run: 'my-run'});
      await world.minute(1);
      if (minute === 0) await world.resume('my-run');
    }
    await world.untilStoredOnce('my-run', '000', someLines(20));
    await world.assertStoredOnce('my-run', '001', someLines(4, 'b'));
    assert.deepEqual(world.tpus.made, [`${A0}#1`, `${A0}#2`]);
  });

  /** A stopped run of two streams that has lost the events of its last shards. */
  async function aStoppedWorld(): Promise<World> {
    const world = new World(ONE_SLOT);
    for (const index of [0, 1]) world.drop('my-run', index, someLines(20, `s${index}`));
    await world.until('work', () => [...world.agents.values()].some(({state}) => state === 'working'), 9, 1);
    for (let step = 0; step < 4; step++) await world.agent(A0).step();
    world.queue.splice(0);
    await world.order({action: 'stop', run: 'my-run'});
    await world.minutes(2, 0);
    return world;
  }
  const totalOf = async (world: World, field: 'total_shards' | 'total_tokens') => {
    const streams = await Promise.all(['000', '001'].map(id => world.stream('my-run', id)));
    return streams.reduce((sum, stream) => sum + (stream?.[field] ?? 0), 0);
  };

  it('whose page is repeated after a failure counts what the first attempt found', async () => {
    const world = await aStoppedWorld();
    const {list} = world.deps.objects;
    const before = await totalOf(world, 'total_shards');
    // The stream that no worker has leased: the shards are those of the other one.
    const idle = (await world.stream('my-run', '000'))?.epoch === 0 ? 0 : 1;
    let hasFailed = false;
    world.deps.objects.list = async (prefix, options) => {
      if (hasFailed || !prefix.startsWith(`activations/my-run/tpu_${idle}`)) return list(prefix, options);
      while ((await totalOf(world, 'total_shards')) === before) await new Promise(setImmediate);
      hasFailed = true;
      throw new Error('the bucket is away');
    };
    await world.order({action: 'rebuild', run: 'my-run'});
    await world.minutes(3, 0);
    assert.ok(hasFailed);
    assert.equal((await world.run('my-run'))?.total_shards, await totalOf(world, 'total_shards'));
  });

  it('of a stopped run mends totals other than the number of shards too', async () => {
    const world = await aStoppedWorld();
    for (const path of ['runs/my-run', 'runs/my-run/streams/000'])
      await world.edit(path, {total_tokens: Number((await world.store.get(path))?.total_tokens) + 1000});
    await world.order({action: 'rebuild', run: 'my-run'});
    const run = await world.run('my-run');
    assert.deepEqual([run?.status, run?.total_tokens], ['stopped', await totalOf(world, 'total_tokens')]);
  });

  it('of a run without a stream in the bucket is refused', async () => {
    const world = new World(ONE_SLOT);
    const id = await world.order({action: 'rebuild', run: 'no-run'});
    const record = await world.store.get(`control/${id}`);
    assert.deepEqual(
      [record?.outcome, record?.reason],
      ['rejected', 'there is nothing to rebuild: the bucket holds no stream of run "no-run"'],
    );
  });
});
