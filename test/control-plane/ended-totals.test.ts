import assert from 'node:assert/strict';
import {updateTotals} from '../../shared/control-plane/runs/late-totals.ts';
import {runRecords, streamRecords} from '../../shared/control-plane/state/documents.ts';
import {startTask} from '../../shared/control-plane/state/tasks.ts';
import {iso} from '../../shared/domain/time.ts';
import {aRun, aStream} from '../support/builders.ts';
import {World} from '../support/control-plane-harness.ts';
import {someLines} from '../support/shard-plan.ts';

describe('a count of the streams of an ended run', () => {
  it('keeps the counts of the end of a failed run, and writes the sums of its streams', async () => {
    const world = new World();
    await world.store.transaction(async tx => {
      runRecords.set(tx, aRun({status: 'failed', streams_failed: 1}));
      streamRecords.set(tx, aStream({status: 'pending', total_shards: 3}));
    });
    await updateTotals(world.deps, 'my-run');
    const run = await world.run('my-run');
    assert.deepEqual([run?.streams_pending, run?.streams_failed, run?.total_shards], [0, 1, 3]);
  });

  it('comes after each registration, because an earlier message of it may have died', async () => {
    const world = new World();
    await world.store.transaction(async tx => {
      runRecords.set(tx, aRun({status: 'cancelled'}));
      streamRecords.set(tx, aStream({status: 'completed', total_shards: 3}));
    });
    await startTask(world.deps, {task: 'register', run: 'my-run'});
    await world.deliverAll();
    await world.tick();
    await world.deliverAll();
    const {streams_completed, total_shards} = (await world.run('my-run')) ?? {};
    assert.deepEqual([streams_completed, total_shards], [1, 3]);
  });

  it('comes after each event of a stream of a stopped run, because an earlier delivery may have died', async () => {
    const world = new World();
    world.drop('my-run', 7, someLines(20));
    world.now += 60_000;
    await world.store.transaction(async tx => {
      runRecords.set(tx, aRun({status: 'cancelled', stopped_at: iso(world.now)}));
      streamRecords.set(tx, aStream({status: 'completed', total_shards: 3}));
    });
    await world.deliverAll();
    await world.tick();
    await world.deliverAll();
    assert.equal((await world.run('my-run'))?.total_shards, 3);
  });
});
