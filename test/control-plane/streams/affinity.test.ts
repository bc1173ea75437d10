import assert from 'node:assert/strict';
import {streamRecords} from '../../../shared/control-plane/documents/documents.ts';
import {boundSlots} from '../../../shared/control-plane/runs/count-streams.ts';
import {aRun, aStream} from '../../world/builders.ts';
import {untilShards} from '../../world/scenes/one-worker.ts';
import {TWO_SLOTS} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

const [A0, A1] = ['tpu-us-central1-a-0', 'tpu-us-central1-a-1'];

/** Two TPUs, and a run whose streams 005 and 006 are theirs, one each. */
async function aFixedWorld(lines: [number, number]): Promise<World> {
  const world = new World(TWO_SLOTS);
  world.objects.put('datasets/my-run/run.json', '{"affinity": "fixed", "stream_offset": 5}');
  for (const [index, count] of lines.entries())
    if (count > 0) world.drop('my-run', 5 + index, someLines(count, `s${index}`));
  await world.deliverAll();
  return world;
}

/** Lets minutes go by until the fleet is gone, and asserts that no further TPU is created. */
async function untilNoTpu(world: World): Promise<void> {
  await world.until('the end of every TPU', () => world.tpus.nodes.size === 0);
  const made = world.tpus.made.length;
  await world.minutes(3);
  assert.deepEqual([world.tpus.made.length, world.queue], [made, []]);
}

const works = async (world: World, stream: string) => (await world.stream('my-run', stream))?.lease?.worker;

describe('one stream a worker (affinity: fixed)', () => {
  it('gives each worker its own stream, and another TPU that is free does not take it', async () => {
    const world = await aFixedWorld([4, 30]);
    await world.until('the second stream', async () => (await works(world, '006')) === A1, 9, 1);
    assert.equal(await works(world, '005'), A0);
    await world.until(
      'the first to be done',
      async () => (await world.stream('my-run', '005'))?.finished === true,
    );
    world.tpus.node(A1).state = 'PREEMPTED';
    await world.tick();
    assert.equal(await works(world, '006'), undefined);
    for (const agent of world.agents.values()) await agent.step();
    assert.equal(await works(world, '006'), undefined, 'no other worker takes it');
    await world.until('its own TPU again', async () => (await works(world, '006')) === A1, 9, 1);
    assert.ok(((await world.worker(A1))?.incarnation ?? 0) > 1);
    assert.ok(((await world.stream('my-run', '006'))?.total_shards ?? 0) > 0, 'it resumes');
    await world.untilStoredOnce('my-run', '005', someLines(4, 's0'));
    await world.assertStoredOnce('my-run', '006', someLines(30, 's1'));
  });

  it('creates only the TPU that the stream is for', async () => {
    const world = await aFixedWorld([0, 4]);
    await world.untilAsleep();
    assert.deepEqual([...new Set(world.tpus.made.map(made => String(made).split('#')[0]))], [A1]);
    await world.assertStoredOnce('my-run', '006', someLines(4, 's1'));
  });

  it('lets a stream without a slot wait without a TPU, and records why; a larger pool takes it up', async () => {
    const world = await aFixedWorld([2, 0]);
    world.drop('my-run', 7, someLines(2, 'c'));
    world.drop('my-run', 4, someLines(2, 'd'));
    await untilNoTpu(world);
    const told = (await world.timeline('stream')).join('\n');
    assert.match(told, /my-run\/005 accepted: \d+ bytes; it is for tpu-us-central1-a-0/);
    assert.match(told, /my-run\/007 accepted: .* waits for TPU number 2, .*: scale the pool/);
    assert.match(told, /my-run\/004 accepted: .* waits for TPU number -1/);
    assert.equal((await world.run('my-run'))?.status, 'active');
    await world.order({action: 'scale', workers_per_zone: 3});
    await untilNoTpu(world);
    await world.assertStoredOnce('my-run', '007', someLines(2, 'c'));
    assert.equal((await world.stream('my-run', '004'))?.status, 'pending');
  });

  it('records which streams wait when the pool becomes too small for them', async () => {
    const world = await aFixedWorld([30, 30]);
    await world.order({action: 'scale', workers_per_zone: 1});
    const told = (await world.timeline('run')).join();
    assert.match(told, /1 streams of run my-run wait: .* scale the pool/);
    await untilNoTpu(world);
    await world.assertStoredOnce('my-run', '005', someLines(30, 's0'));
    assert.equal((await world.stream('my-run', '006'))?.status, 'pending');
  });

  it('shares its pool with runs whose streams are for any worker', async () => {
    const world = await aFixedWorld([0, 8]);
    world.drop('other', 0, someLines(8));
    await world.until(
      'both at work',
      async () => {
        const other = (await world.stream('other', '000'))?.lease?.worker;
        return other === A0 && (await works(world, '006')) === A1;
      },
      9,
      1,
    );
    await world.untilStoredOnce('other', '000', someLines(8));
  });

  it('reads no more streams in a tick than the pool has slots', async () => {
    const world = await aFixedWorld([30, 30]);
    for (let index = 7; index < 60; index++) world.drop('my-run', index, someLines(2, `more${index}`));
    await world.deliverAll();
    const {query} = world.deps.store;
    let read = 0;
    world.deps.store.query = async (collection, options) => {
      const found = await query(collection, options);
      if (collection === 'runs/my-run/streams') read += found.length;
      return found;
    };
    await world.tick();
    assert.ok(read >= 2 && read <= 4, `${read} streams were read`);
  });

  it('is kept by a rebuild of a lost database', async () => {
    const world = await aFixedWorld([4, 30]);
    await untilShards(world, 2, 20, '006');
    await world.wipe();
    world.control({action: 'rebuild'});
    await world.untilAsleep();
    await world.resume('my-run');
    await world.untilAsleep();
    const {affinity, stream_offset} = (await world.run('my-run')) ?? assert.fail();
    assert.deepEqual([affinity, stream_offset], ['fixed', 5]);
    await world.assertStoredOnce('my-run', '006', someLines(30, 's1'));
  });

  it('binds the unfinished streams of every zone of the pool to its slots', async () => {
    const {deps, store} = new World();
    const pool = {...deps.config.pool, zones: ['us-central1-a', 'us-east5-b'], workers_per_zone: 2};
    await store.transaction(async tx => {
      for (const worker_id of [4, 5, 6, 7, 8, 9])
        streamRecords.set(
          tx,
          aStream({
            ...{stream: `00${worker_id}`, worker_id},
            status: worker_id === 6 ? 'completed' : 'pending',
          }),
        );
    });
    assert.deepEqual(await boundSlots(store, aRun({affinity: 'fixed', stream_offset: 5}), pool), [
      A0,
      'tpu-us-east5-b-0',
      'tpu-us-east5-b-1',
    ]);
  });
});
