/** Runs that ended long ago: the documents of their streams go, and the bucket keeps all that they say. */
import assert from 'node:assert/strict';
import {KEPT_DAYS} from '../../../shared/contracts/settings/config.ts';
import {startTask} from '../../../shared/control-plane/documents/tasks.ts';
import {expirePage} from '../../../shared/control-plane/runs/expire-run.ts';
import type {Store} from '../../../shared/ports/ports.ts';
import {at} from '../../world/builders.ts';
import {aDoneWorld} from '../../world/scenes/finished-runs.ts';
import {putDocuments} from '../../world/scenes/put-documents.ts';
import {someLines} from '../../world/shard-plan.ts';
import type {World} from '../../world/world.ts';

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
    await world.edit('runs/my-run', {expired_at: at, updated_at: at});
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
    const id = await world.order({action: 'retry', run: 'my-run'});
    assert.match(String((await world.store.get(`control/${id}`))?.reason), /were deleted at .*"rebuild"/);
  });

  it('keeps the documents where it was opened again or changed since it was read', async () => {
    for (const [seen, changes] of [
      [{expired_at: at(0)}, {status: 'active'}],
      [{}, {updated_at: at(86_400 * KEPT_DAYS.streams)}],
    ] as const) {
      const {deps, store, now} = await aDoneWorld();
      const stale = (await store.query('runs')).map(each => ({...each, data: {...each.data, ...seen}}));
      await putDocuments(store, {
        'runs/my-run': {...(await store.get('runs/my-run')), expired_at: null, ...changes},
      });
      const query: Store['query'] = async (collection, asked) =>
        collection === 'runs' ? stale : deps.store.query(collection, asked);
      const later = now + (KEPT_DAYS.streams + 1) * 86_400_000;
      await expirePage({...deps, now: () => later, store: {...deps.store, query}}, '');
      assert.equal(await store.count(STREAMS), 2);
    }
  });
});
