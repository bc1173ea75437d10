import assert from 'node:assert/strict';
import {
  runRecords,
  spendingRecords,
  streamRecords,
} from '../../../shared/control-plane/documents/documents.ts';
import {updateTotals} from '../../../shared/control-plane/runs/summarize-run.ts';
import {monthOf, NO_SPENDING} from '../../../shared/domain/billing/monthly-spending.ts';
import {aRun, aStream} from '../../world/builders.ts';
import {World} from '../../world/world.ts';

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

  it('writes no fewer shards than the run has, because an older count may come later', async () => {
    const world = new World();
    await world.store.transaction(async tx => {
      runRecords.set(tx, aRun({status: 'stopped', total_shards: 5, total_tokens: 500}));
      streamRecords.set(tx, aStream({status: 'completed', total_shards: 3, total_tokens: 300}));
    });
    await updateTotals(world.deps, 'my-run');
    const run = await world.run('my-run');
    assert.deepEqual([run?.total_shards, run?.total_tokens], [5, 500]);
  });

  it('counts the streams of a run that its model ended, which are not over', async () => {
    const world = new World();
    await world.store.transaction(async tx => {
      runRecords.set(tx, aRun({status: 'failed', certain_failure: 'no family', streams_in_progress: 1}));
      streamRecords.set(tx, aStream());
    });
    await updateTotals(world.deps, 'my-run');
    const run = await world.run('my-run');
    assert.deepEqual([run?.streams_pending, run?.streams_in_progress], [1, 0]);
  });

  it('bills its late traffic once to the run, the pool and the month, also after cross-region work is forbidden', async () => {
    const world = new World();
    const month = monthOf(world.now);
    await world.store.transaction(async tx => {
      runRecords.set(tx, aRun({status: 'stopped', network_usd: 1, network_bytes: 10}));
      streamRecords.set(tx, aStream({network_usd: 3, network_bytes: 30}));
      spendingRecords.set(tx, {...NO_SPENDING, months: {[month]: 5}});
    });
    for (let count = 0; count < 2; count++) await updateTotals(world.deps, 'my-run');
    const run = await world.run('my-run');
    assert.deepEqual([run?.network_usd, run?.network_bytes], [3, 30]);
    assert.equal((await world.store.get('pools/tpu'))?.spent_usd, 2);
    assert.deepEqual((await world.store.get('system/spending'))?.months, {[month]: 7});
  });
});
