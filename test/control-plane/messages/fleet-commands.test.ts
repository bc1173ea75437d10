import assert from 'node:assert/strict';
import {send} from '../../world/people.ts';
import {aWorkingWorld, aWorldWithAStream, aWorldWithSpec} from '../../world/scenes/one-worker.ts';
import {A0, ONE_SLOT} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';

describe('delete and recreate of a worker', () => {
  it('recreate makes the TPU again whatever it does, and its work goes on', async () => {
    const world = await aWorkingWorld();
    assert.equal((await send(world, {action: 'recreate', worker: A0})).outcome, 'applied');
    await world.untilAsleep();
    assert.deepEqual(world.tpus.made, [`${A0}#1`, `${A0}#2`]);
    await world.assertStoredOnce('my-run', '000', someLines(20));
    assert.equal((await world.stream('my-run', '000'))?.failures, 0);
  });

  it('delete takes the TPU away for good, its stream waits, and recreate brings the TPU back', async () => {
    const world = await aWorkingWorld();
    assert.equal((await send(world, {action: 'delete', worker: A0})).outcome, 'applied');
    await world.minutes(6);
    assert.deepEqual([world.tpus.nodes.size, (await world.worker(A0))?.phase], [0, 'gone']);
    assert.equal((await send(world, {action: 'recreate', worker: A0})).outcome, 'applied');
    await world.untilStoredOnce('my-run', '000', someLines(20));
  });

  it('delete is lost with the database: the slot of the deleted TPU is used again', async () => {
    const world = await aWorkingWorld();
    await send(world, {action: 'delete', worker: A0});
    await world.minutes(4);
    assert.deepEqual([world.tpus.states(), (await world.worker(A0))?.held], [{}, true]);
    await world.wipe();
    await world.minutes(3);
    assert.deepEqual([world.tpus.made.length, (await world.worker(A0))?.held], [2, false]);
    await world.untilStoredOnce('my-run', '000', someLines(20));
  });

  it('delete and recreate of a worker without a document are rejected, and its node goes by itself', async () => {
    const world = await aWorkingWorld();
    await world.wipe();
    for (const action of ['delete', 'recreate']) {
      const {outcome, reason} = await send(world, {action, worker: A0});
      assert.deepEqual([outcome, reason], ['rejected', `there is no worker "${A0}"`]);
    }
    await world.until('no node', () => world.tpus.nodes.size === 0, 20, 0);
    assert.deepEqual(world.tpus.made, [`${A0}#1`]);
  });

  it('delete of the TPU of a fixed stream leaves the stream waiting, and asks for no other TPU', async () => {
    const world = aWorldWithSpec('{"affinity": "fixed"}', 20, {...ONE_SLOT, GLEANER_WORKERS_PER_ZONE: '2'});
    await world.until('work', () => world.agents.get(A0)?.state === 'working', 9, 1);
    await send(world, {action: 'delete', worker: A0});
    await world.minutes(20);
    assert.deepEqual([world.tpus.states(), world.tpus.made], [{}, [`${A0}#1`]]);
    const [run, stream] = [await world.run('my-run'), await world.stream('my-run', '000')];
    assert.deepEqual([run?.status, stream?.status], ['active', 'pending']);
  });

  it('a deleted worker whose zone the pool has left keeps no stream from the other zones', async () => {
    const world = aWorldWithAStream(2, {...ONE_SLOT, GLEANER_ZONES: 'us-central1-a,europe-west4-b'});
    await world.untilAsleep();
    assert.equal((await send(world, {action: 'delete', worker: A0})).outcome, 'applied');
    await send(world, {action: 'scale', zones: ['europe-west4-b']});
    world.tpus.zone('europe-west4-b').soldOut = true;
    world.drop('my-run', 1, someLines(2));
    for (let minute = 0; minute < 3; minute++) await world.minute();
    world.tpus.openZones();
    await world.untilStoredOnce('my-run', '001', someLines(2));
  });
});

describe('scale', () => {
  it('to none lets every TPU go, and a scale up goes on', async () => {
    const world = await aWorkingWorld();
    assert.equal((await send(world, {action: 'scale', workers_per_zone: 0})).outcome, 'applied');
    await world.until('no TPU', () => world.tpus.nodes.size === 0, 20);
    await world.minutes(5);
    assert.deepEqual(world.tpus.made, [`${A0}#1`]);
    assert.equal((await world.stream('my-run', '000'))?.status, 'pending');
    const zones = ['us-central1-a', 'europe-west4-b'];
    assert.equal((await send(world, {action: 'scale', workers_per_zone: 1, zones})).outcome, 'applied');
    world.drop('my-run', 1, someLines(20));
    await world.until('both zones', () => world.tpus.nodes.size === 2, 9, 1);
    await world.untilStoredOnce('my-run', '000', someLines(20));
    const pool = await world.store.get('pools/tpu');
    assert.deepEqual([pool?.version, pool?.workers_per_zone, pool?.zones], [2, 1, zones]);
  });
});
