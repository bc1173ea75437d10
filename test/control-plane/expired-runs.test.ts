/** Runs that ended long ago: the documents of their streams go, and the bucket keeps all that they say. */
import assert from 'node:assert/strict';
import {KEPT_DAYS} from '../../shared/contracts/config.ts';
import {startTask} from '../../shared/control-plane/documents/tasks.ts';
import type {World} from '../support/control-plane-harness.ts';
import {aDoneWorld} from '../support/finished-runs.ts';
import {someLines} from '../support/shard-plan.ts';

const STREAMS = 'runs/my-run/streams';

async function anExpiredWorld(): Promise<World> {
  const world = await aDoneWorld();
  world.now += (KEPT_DAYS.streams + 1) * 86_400_000;
  await startTask(world.deps, {task: 'expire', run: null});
  await world.deliverAll();
  return world;
}

describe('a run that ended long ago', () => {
  it('loses the documents of its streams and shards, and keeps its totals', async () => {
    const world = await anExpiredWorld();
    const run = await world.run('my-run');
    assert.deepEqual([run?.status, run?.streams_completed, run?.expired_at !== null], ['completed', 2, true]);
    assert.equal(await world.store.count(STREAMS), 0);
    assert.equal(await world.store.count(`${STREAMS}/000/shards`), 0);
    await startTask(world.deps, {task: 'resync', run: null});
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.streams_completed, 2);
    assert.equal(await world.store.count(STREAMS), 0, 'the resync leaves it alone');
  });

  it('loses its last documents though a late bill changes it in between', async () => {
    const world = await aDoneWorld();
    const at = new Date(world.now).toISOString();
    await world.store.transaction(async tx =>
      tx.set('runs/my-run', {...(await tx.get('runs/my-run')), expired_at: at, updated_at: at}),
    );
    await startTask(world.deps, {task: 'expire', run: null});
    await world.deliverAll();
    assert.equal(await world.store.count(STREAMS), 0);
  });

  it('keeps the documents of a run that ended lately', async () => {
    const world = await aDoneWorld();
    world.now += (KEPT_DAYS.streams - 1) * 86_400_000;
    await startTask(world.deps, {task: 'expire', run: null});
    await world.deliverAll();
    assert.equal(await world.store.count(STREAMS), 2);
  });

  it('gets its documents again with a rebuild, and computes nothing again', async () => {
    const world = await anExpiredWorld();
    const made = world.tpus.made.length;
    world.control({action: 'rebuild', run: 'my-run'});
    await world.untilAsleep();
    const run = await world.run('my-run');
    assert.deepEqual([run?.status, run?.streams_completed, run?.expired_at], ['completed', 2, null]);
    assert.equal(await world.store.count(STREAMS), 2);
    assert.equal(world.tpus.made.length, made);
  });

  it('counts its earlier streams too when a new stream comes', async () => {
    const world = await anExpiredWorld();
    world.drop('my-run', 2, someLines(3, 'new'));
    await world.untilAsleep();
    const run = await world.run('my-run');
    assert.deepEqual([run?.status, run?.streams_completed, run?.expired_at], ['completed', 3, null]);
  });

  it('names the rebuild to a person who retries it', async () => {
    const world = await anExpiredWorld();
    const id = world.control({action: 'retry', run: 'my-run'});
    await world.deliverAll();
    assert.match(String((await world.store.get(`control/${id}`))?.reason), /were deleted at .*"rebuild"/);
  });
});
