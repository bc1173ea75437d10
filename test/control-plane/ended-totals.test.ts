import assert from 'node:assert/strict';
import {runRecords, streamRecords, workerRecords} from '../../shared/control-plane/documents/documents.ts';
import {readTask, startTask} from '../../shared/control-plane/documents/tasks.ts';
import {updateTotals} from '../../shared/control-plane/runs/summarize-run.ts';
import {notifyWorkers} from '../../shared/control-plane/streams/revoke-leases.ts';
import {handleTaskMessage} from '../../shared/control-plane/tasks/task-message.ts';
import {iso} from '../../shared/domain/time.ts';
import {aLeasedStream, aRun, aStream, at, aWorker} from '../support/builders.ts';
import {World} from '../support/control-plane-harness.ts';
import {A0} from '../support/places.ts';
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

  /** A stopped run whose only stream is still leased to a worker. */
  async function aStoppedWorld(): Promise<World> {
    const world = new World();
    await world.store.transaction(async tx => {
      runRecords.set(tx, aRun({status: 'cancelled', streams_in_progress: 1}));
      streamRecords.set(tx, aLeasedStream());
      workerRecords.set(tx, aWorker({phase: 'working', work: 'my-run/007', epoch: 3, claimed_at: at(0)}));
    });
    return world;
  }
  const TOTALS = {task: 'totals', run: 'my-run'} as const;
  const statusOfCount = async (world: World) => (await readTask(world.store, TOTALS))?.status;

  it('comes again after a revoke, because an earlier count has read the stream with its lease', async () => {
    const world = await aStoppedWorld();
    const {store} = world.deps;
    let hasCounted = false;
    const transaction: typeof store.transaction = async work => {
      if (!hasCounted && (await statusOfCount(world)) === 'open') {
        hasCounted = true;
        await handleTaskMessage({...world.deps, store}, TOTALS);
        assert.equal(await statusOfCount(world), 'done');
      }
      return store.transaction(work);
    };
    await notifyWorkers({...world.deps, store: {...store, transaction}}, 'my-run', [A0]);
    const stream = await world.stream('my-run', '007');
    assert.deepEqual([hasCounted, stream?.status, stream?.lease], [true, 'pending', null]);
    assert.equal(await statusOfCount(world), 'open');
    await handleTaskMessage(world.deps, TOTALS);
    const {streams_in_progress, streams_pending} = (await world.run('my-run')) ?? {};
    assert.deepEqual([streams_in_progress, streams_pending], [0, 1]);
  });

  it('comes again after a release, because an earlier count has read the stream with its lease', async () => {
    const world = await aStoppedWorld();
    await startTask(world.deps, TOTALS);
    await world.deliverNext('tasks');
    assert.equal(await statusOfCount(world), 'done');
    const lease = {run: 'my-run', stream: '007', epoch: 3};
    const request = {worker: A0, incarnation: 2, host: 0, lease, outcome: 'drained', failure: null};
    assert.equal((await world.api({action: 'release', ...request})).status, 200);
    await world.tick();
    await world.deliverAll();
    const {streams_in_progress, streams_pending} = (await world.run('my-run')) ?? {};
    assert.deepEqual([streams_in_progress, streams_pending], [0, 1]);
  });
});
