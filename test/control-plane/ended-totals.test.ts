import assert from 'node:assert/strict';
import {runRecords, streamRecords} from '../../shared/control-plane/documents/documents.ts';
import {updateTotals} from '../../shared/control-plane/runs/summarize-run.ts';
import {aRun, aStream} from '../support/builders.ts';
import {World} from '../support/control-plane-harness.ts';

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
      runRecords.set(tx, aRun({status: 'cancelled', total_shards: 5, total_tokens: 500}));
      streamRecords.set(tx, aStream({status: 'completed', total_shards: 3, total_tokens: 300}));
    });
    await updateTotals(world.deps, 'my-run');
    const run = await world.run('my-run');
    assert.deepEqual([run?.total_shards, run?.total_tokens], [5, 500]);
  });
});
