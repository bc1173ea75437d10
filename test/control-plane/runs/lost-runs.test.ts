/** Documents of runs and streams that are made again from the bucket, or come from a backup. */
import assert from 'node:assert/strict';
import {manifestObject} from '../../../shared/domain/names.ts';
import {LOST_AFTER_S} from '../../../shared/domain/records/run.ts';
import type {Stored} from '../../../shared/ports/ports.ts';
import {aStoringFleet, orphanAlerts} from '../../world/scenes/lost-store.ts';
import {aWorldWithAStream} from '../../world/scenes/one-worker.ts';
import {A0, ONE_SLOT, ZONE} from '../../world/scenes/places.ts';
import {putDocuments} from '../../world/scenes/put-documents.ts';
import {planShards, shardBytes, shardMetadata, someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

/** One worker that has stored some shards of a long stream. */
async function aWorkingWorld(): Promise<World> {
  const world = aWorldWithAStream(40);
  const stored = async () => (await world.stream('my-run', '000'))?.total_shards ?? 0;
  await world.until('some shards', async () => (await stored()) >= 3, 20, 1);
  return world;
}

/** A world that has accepted stream my-run/000, and a way to store a shard of it of any epoch: two samples a shard. */
async function anAcceptedStream(): Promise<{world: World; store: (shard: number, epoch: number) => void}> {
  const world = aWorldWithAStream(20);
  await world.deliverAll();
  const {spec_hash} = (await world.run('my-run')) ?? {};
  const {crc32c} = (await world.stream('my-run', '000')) ?? {};
  const store = (shard: number, epoch: number) => {
    const plan = planShards(someLines(20))[shard - 1] ?? assert.fail();
    const source = {
      run: 'my-run',
      stream: '000',
      spec_hash: String(spec_hash),
      dataset: {crc32c: String(crc32c)},
    };
    const name = `activations/my-run/tpu_0/shard_000${shard}.safetensors`;
    world.objects.put(name, shardBytes(plan, source), shardMetadata(plan, source, epoch));
  };
  return {world, store};
}

describe('a document made for a run that had one', () => {
  it('is paused where the manifest is older than an hour, though no shard is stored', async () => {
    for (const [age_s, status] of [
      [LOST_AFTER_S - 60, 'active'],
      [LOST_AFTER_S + 60, 'paused'],
    ] as const) {
      const world = new World(ONE_SLOT);
      world.tpus.zone(ZONE).soldOut = true;
      world.drop('my-run', 0, someLines(4));
      await world.deliverAll();
      await world.wipe();
      world.now += age_s * 1000;
      await world.tick();
      await world.deliverAll();
      assert.equal((await world.run('my-run'))?.status, status, `after ${age_s} s`);
    }
  });

  it('stays stopped where a message stopped the run before the database was lost', async () => {
    const world = await aWorkingWorld();
    world.control({action: 'stop', run: 'my-run'});
    await world.untilAsleep();
    const made = [...world.tpus.made];
    await world.wipe();
    world.control({action: 'rebuild'});
    await world.minutes(20, 1);
    const {status, stopped_at, reason, preemptions} = (await world.run('my-run')) ?? assert.fail();
    assert.deepEqual([status, stopped_at !== null, world.tpus.made], ['stopped', true, made]);
    assert.equal(preemptions, null, 'their count is unknown');
    assert.match(reason ?? '', /system\/stops\/my-run\.json/);
  });

  it('is not stopped where a message stopped the run after its end', async () => {
    const world = aWorldWithAStream(5);
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'completed');
    await world.order({action: 'stop', run: 'my-run'});
    await world.wipe();
    world.control({action: 'rebuild'});
    await world.minutes(20, 1);
    assert.notEqual((await world.run('my-run'))?.status, 'stopped');
  });

  it('in a later deployment waits with the stream that was added to the run, until resume', async () => {
    const world = aWorldWithAStream(5);
    await world.untilAsleep();
    await world.wipe();
    world.drop('my-run', 1, someLines(3, 'b'));
    await world.untilAsleep();
    const {status, streams_pending, streams_completed} = (await world.run('my-run')) ?? {};
    assert.deepEqual([status, streams_pending, streams_completed], ['paused', 1, 1]);
    await world.resume('my-run');
    await world.untilStoredOnce('my-run', '001', someLines(3, 'b'));
    assert.equal((await world.run('my-run'))?.status, 'completed');
  });

  it('is active for the default run where only other runs have shards', async () => {
    const world = aWorldWithAStream(5);
    await world.untilAsleep();
    world.drop('default', 0, someLines(5));
    await world.deliverAll();
    assert.equal((await world.run('default'))?.status, 'active');
    await world.untilAsleep();
    await world.wipe();
    world.drop('default', 1, someLines(5, 'b'));
    await world.deliverAll();
    assert.equal((await world.run('default'))?.status, 'paused');
  });

  it('is not made for a finished run whose document is there: another stream opens it', async () => {
    const world = aWorldWithAStream(5);
    await world.untilAsleep();
    world.now += 2 * LOST_AFTER_S * 1000;
    world.drop('my-run', 1, someLines(3, 'b'));
    await world.deliverAll();
    assert.equal((await world.run('my-run'))?.status, 'active');
    await world.untilStoredOnce('my-run', '001', someLines(3, 'b'));
  });

  it('drains the workers of a run whose document was deleted by hand, and loses no stored shard', async () => {
    const world = await aWorkingWorld();
    await world.store.transaction(async tx => tx.delete('runs/my-run'));
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'paused');
    await world.resume('my-run');
    await world.untilStoredOnce('my-run', '000', someLines(40));
  });
});

describe('a database that was restored from an older backup', () => {
  const COLLECTIONS = [
    'runs',
    'workers',
    'zones',
    'pools',
    'runs/my-run/streams',
    'runs/my-run/streams/000/shards',
  ];

  async function backUp(world: World): Promise<Stored[]> {
    return (await Promise.all(COLLECTIONS.map(collection => world.store.query(collection)))).flat();
  }

  async function goBack(world: World, backup: Stored[]): Promise<void> {
    await world.wipe();
    await putDocuments(world.store, Object.fromEntries(backup.map(({path, data}) => [path, data])));
  }

  it('cancels a run that was stopped since, with the rebuild', async () => {
    const world = await aWorkingWorld();
    const backup = await backUp(world);
    world.control({action: 'stop', run: 'my-run'});
    await world.untilAsleep();
    await goBack(world, backup);
    assert.equal((await world.run('my-run'))?.status, 'active');
    world.control({action: 'rebuild'});
    await world.minutes(20, 1);
    const {status, stopped_at} = (await world.run('my-run')) ?? {};
    assert.deepEqual([status, stopped_at !== null], ['stopped', true]);
  });

  for (const isRebuilt of [true, false])
    it(`${isRebuilt ? 'counts shards of a later epoch where a rebuild comes first' : 'sets shards of a later epoch aside'}, and stores each sample once`, async () => {
      const world = await aWorkingWorld();
      const backup = await backUp(world);
      world.control({action: 'recreate', worker: A0});
      const later = async () =>
        (await world.objects.list('activations/my-run/tpu_0/')).at(-1)?.metadata.epoch;
      await world.until('a shard of the next lease', async () => (await later()) === '2', 20, 1);
      await goBack(world, backup);
      if (isRebuilt) {
        await world.order({action: 'rebuild', run: 'my-run'});
        assert.equal((await world.stream('my-run', '000'))?.epoch, 2);
      }
      await world.untilStoredOnce('my-run', '000', someLines(40));
      assert.equal(world.objects.names('set-aside/').length > 0, !isRebuilt);
    });

  it('keeps 10 nodes for the hour whose documents are of earlier incarnations', async () => {
    const world = await aStoringFleet(10);
    const backup = await backUp(world);
    for (const {id} of await world.store.query('workers')) world.control({action: 'recreate', worker: id});
    await world.minutes(8, 1);
    assert.ok([...world.agents.values()].every(({incarnation}) => incarnation === 2));
    await goBack(world, backup);
    const agent = world.agent(A0);
    const from = {worker: A0, incarnation: agent.incarnation, host: 0};
    assert.equal((await world.api({action: 'lease', ...from, loaded: null})).body.action, 'wait');
    await world.minutes(55, 0);
    assert.deepEqual([world.tpus.nodes.size, orphanAlerts(world).length], [10, 1]);
    world.control({action: 'stop', run: 'my-run'});
    await world.untilAsleep(20);
    assert.equal(world.tpus.nodes.size, 0);
  });
});

describe('a stream whose document is made from shards, one of them unreadable', () => {
  it('is leased above the epochs of the others once that shard is deleted and the stream tried again', async () => {
    const {world, store} = await anAcceptedStream();
    await world.wipe();
    world.queue.length = 0;
    store(1, 4);
    store(2, 4);
    store(3, 2_000_001);
    await world.resume('my-run');
    assert.deepEqual([(await world.stream('my-run', '000'))?.status], ['failed']);
    await world.objects.delete('activations/my-run/tpu_0/shard_0003.safetensors');
    await world.order({action: 'retry', run: 'my-run', stream: '000'});
    const epoch = async () => (await world.stream('my-run', '000'))?.lease?.epoch;
    await world.until('a grant', async () => (await epoch()) === 5, 9, 1);
  });
});

describe('a worker that outlives a lost database', () => {
  it('has its shard of epoch 7 set aside where a rebuild has set 4', async () => {
    const {world, store} = await anAcceptedStream();
    await world.wipe();
    store(1, 2);
    store(2, 4);
    world.queue.length = 0;
    await world.order({action: 'rebuild', run: 'my-run'});
    const seen = async () => {
      const {status, epoch, total_shards} = (await world.stream('my-run', '000')) ?? {};
      return {status, epoch, total_shards};
    };
    assert.deepEqual(await seen(), {status: 'pending', epoch: 4, total_shards: 2});
    store(3, 7);
    await world.deliverAll();
    assert.deepEqual(await seen(), {status: 'pending', epoch: 4, total_shards: 2});
    assert.equal(world.objects.names('set-aside/activations/my-run/tpu_0/shard_0003.safetensors/').length, 1);
    await world.resume('my-run');
    await world.until('a grant', async () => (await world.stream('my-run', '000'))?.lease != null, 9, 1);
    assert.equal((await seen()).epoch, 5);
    await world.untilStoredOnce('my-run', '000', someLines(20));
  });

  it('is active where the bucket has other objects in its place, but no shard', async () => {
    const world = new World(ONE_SLOT);
    world.objects.put('activations/my-run/tpu_0/rejects.jsonl', '{}');
    world.drop('my-run', 0, someLines(2));
    await world.deliverAll();
    assert.equal((await world.run('my-run'))?.status, 'active');
  });

  it('has the pool of the deployment where its manifest names a pool of another one', async () => {
    const world = aWorldWithAStream(2);
    await world.deliverAll();
    const manifest = JSON.parse(world.text(manifestObject('my-run')));
    const placement = {...manifest.placement, pool: 'other-tpu'};
    world.objects.put(manifestObject('my-run'), JSON.stringify({...manifest, placement}));
    await world.wipe();
    world.drop('my-run', 1, someLines(2));
    await world.deliverAll();
    assert.deepEqual([manifest.placement.pool, (await world.run('my-run'))?.pool], ['tpu', 'tpu']);
  });
});
