import assert from 'node:assert/strict';
import {readRun} from '../../../client/views/run-state.ts';
import {runRecords, streamRecords, workerRecords} from '../../../shared/control-plane/documents/documents.ts';
import {openSqliteStore} from '../../../shared/embedded/sqlite-store.ts';
import {aRun, aStream, aWorker} from '../../world/builders.ts';

const TPU = 'tpu-us-central1-a-0';

describe('The state of a run', () => {
  it('the state of a run leaves out documents with wrong types, and names each', async () => {
    const store = openSqliteStore(':memory:', () => 0);
    await store.transaction(async tx => {
      runRecords.set(tx, aRun({run: 'my-run', streams_pending: 2}));
      streamRecords.set(tx, aStream({run: 'my-run', stream: '000'}));
      workerRecords.set(tx, aWorker({name: TPU, phase: 'idle'}));
      tx.set('runs/my-run/streams/001', {status: 'in_progress', total_shards: 'many'});
      tx.set('workers/tpu-us-central1-a-1', {phase: 7});
    });
    const state = await readRun(store, 'my-run');
    assert.ok(state.run);
    assert.deepEqual([state.streams.length, state.tpus.length], [1, 1]);
    assert.match(state.invalid.join('\n'), /streams\/001[\s\S]*tpu-us-central1-a-1/);
    await store.transaction(async tx => tx.set('runs/my-run', {status: 7}));
    const broken = await readRun(store, 'my-run');
    assert.equal(broken.run, undefined);
    assert.match(broken.invalid[0] ?? '', /runs\/my-run/);
    await store.close();
  });
});
