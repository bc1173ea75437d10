import assert from 'node:assert/strict';
import type {Message} from '../../world/functions.ts';
import {aWorkingWorld} from '../../world/scenes/one-worker.ts';
import {A0} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import type {World} from '../../world/world.ts';

describe('the totals of a run that has ended', () => {
  /** A worker has just stored shards whose events are still on their way. */
  async function aWorldWithLateShards(): Promise<World> {
    const world = await aWorkingWorld();
    for (let step = 0; step < 4; step++) await world.agent(A0).step();
    return world;
  }
  /** The next resync counts the streams again. */
  const recount = (world: World) => world.minutes(16, 0);
  const totals = async (world: World) => {
    await recount(world);
    const found = [await world.run('my-run'), await world.stream('my-run', '000')];
    const [run, stream] = found.map(each => [
      each?.status,
      each?.total_samples_processed,
      each?.total_shards,
    ]);
    assert.deepEqual([run, stream?.[0]], [stream, 'failed']);
    return Number(stream?.[2]);
  };

  /** The run has failed, because its stream was overwritten. The events of stored shards are late. */
  async function aFailedWorld(): Promise<{world: World; late: Message[]}> {
    const world = await aWorldWithLateShards();
    const late = world.queue.splice(0);
    world.drop('my-run', 0, someLines(20, 'other'));
    await world.deliverAll();
    await recount(world);
    return {world, late};
  }

  /** The run is stopped. Its worker has its lease, and the events of stored shards have come since. */
  async function aStoppedWorld(): Promise<World> {
    const world = await aWorldWithLateShards();
    const late = world.queue.splice(0);
    world.control({action: 'stop', run: 'my-run'});
    await world.deliverNext('control');
    for (const event of late) await world.handle(event);
    return world;
  }
  const assertStopCounted = async (world: World) => {
    const [run, stream] = [await world.run('my-run'), await world.stream('my-run', '000')];
    assert.deepEqual([run?.status, stream?.lease], ['stopped', null]);
    assert.ok((stream?.total_shards ?? 0) > 0);
    assert.equal(run?.total_shards, stream?.total_shards);
  };

  it('have the shards whose events come after its end', async () => {
    const {world, late} = await aFailedWorld();
    const before = await totals(world);
    world.queue.push(...late);
    await world.deliverAll();
    assert.ok((await totals(world)) > before);
  });

  it('have the shards that were counted between the last tick and a stop', async () => {
    const world = await aWorldWithLateShards();
    await world.deliverAll();
    const {total_shards} = (await world.stream('my-run', '000')) ?? {};
    assert.notEqual((await world.run('my-run'))?.total_shards, total_shards);
    world.control({action: 'stop', run: 'my-run'});
    await world.deliverNext('control');
    assert.equal((await world.run('my-run'))?.total_shards, total_shards, 'at once');
  });

  it('have the shards that a rebuild of a stopped run found', async () => {
    const world = await aWorldWithLateShards();
    world.queue.splice(0);
    world.control({action: 'stop', run: 'my-run'});
    await world.deliverNext('control');
    await recount(world);
    const before = (await world.run('my-run'))?.total_shards ?? 0;
    await world.order({action: 'rebuild', run: 'my-run'});
    const [run, stream] = [await world.run('my-run'), await world.stream('my-run', '000')];
    assert.equal(run?.status, 'stopped');
    assert.ok(run.total_shards > before);
    assert.equal(run.total_shards, stream?.total_shards);
  });

  const ends: {name: string; end: (world: World) => Promise<void>}[] = [
    {name: 'its worker gave its stream back', end: world => world.agent(A0).preempted()},
    {
      name: 'the node of its worker was preempted',
      end: async world => {
        world.preempt(A0);
        await world.tick();
      },
    },
  ];
  for (const {name, end} of ends)
    it(`have the shards that were counted between a stop and the moment in which ${name}`, async () => {
      const world = await aStoppedWorld();
      await end(world);
      await recount(world);
      await assertStopCounted(world);
    });

  it('and its counts are those of its streams, after a stop', async () => {
    const world = await aWorldWithLateShards();
    await world.tick();
    world.control({action: 'stop', run: 'my-run'});
    await world.untilAsleep();
    await recount(world);
    const {status, streams_in_progress, streams_pending} = (await world.run('my-run')) ?? {};
    assert.deepEqual([status, streams_in_progress, streams_pending], ['stopped', 0, 1]);
  });

  it('have the shards that are counted while its end is written, though its function dies after the end', async () => {
    const world = await aWorldWithLateShards();
    const late = world.queue.splice(0);
    const {query, count} = world.deps.store;
    world.deps.store.query = async (collection, options) => {
      const found = await query(collection, options);
      const isFold = collection === 'runs/my-run/streams' && options?.limit === 500 && !options.where;
      if (isFold) for (const event of late.splice(0)) await world.handle(event);
      return found;
    };
    let hasDied = false;
    world.deps.store.count = async (collection, where) => {
      if (hasDied || (await world.run('my-run'))?.status !== 'failed') return count(collection, where);
      hasDied = true;
      throw new Error('the function was killed');
    };
    world.drop('my-run', 0, someLines(20, 'other'));
    await world.deliverAll();
    await world.minutes(3, 0);
    assert.deepEqual([late.length, hasDied], [0, true]);
    assert.ok((await totals(world)) > 0);
  });

  it('have the shards that are counted while its end is written', async () => {
    const world = await aWorldWithLateShards();
    const late = world.queue.splice(0);
    world.drop('my-run', 0, someLines(20, 'other'));
    await world.deliverNext('object');
    const {query} = world.deps.store;
    let isCounted = false;
    world.deps.store.query = async (collection, options) => {
      const found = await query(collection, options);
      // The streams are read, and the run has not ended yet.
      if (collection === 'runs/my-run/streams' && !options?.where && !isCounted) {
        isCounted = true;
        for (const event of late) await world.handle(event);
      }
      return found;
    };
    await world.tick();
    assert.equal((await world.run('my-run'))?.status, 'active');
    await world.deliverAll();
    assert.ok(isCounted);
    assert.ok((await totals(world)) > 0);
  });
});
