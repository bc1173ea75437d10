/** Marks of runs: the cost of a tick follows the runs whose streams changed. */
import assert from 'node:assert/strict';
import {runRecords, streamRecords} from '../../../shared/control-plane/documents/documents.ts';
import {withRunMarks} from '../../../shared/control-plane/documents/run-marks.ts';
import {startTask} from '../../../shared/control-plane/documents/tasks.ts';
import {withTransactions} from '../../../shared/control-plane/documents/watched-store.ts';
import {countStreams} from '../../../shared/control-plane/runs/count-streams.ts';
import {storeRunTotals} from '../../../shared/control-plane/runs/summarize-run.ts';
import {tick} from '../../../shared/control-plane/tick/tick.ts';
import {NO_STREAMS, type Run} from '../../../shared/domain/records/run.ts';
import type {Worker} from '../../../shared/domain/records/worker.ts';
import type {Store} from '../../../shared/ports/ports.ts';
import {aLeasedStream, aRun, aStream, aWorker, T0} from '../../world/builders.ts';
import {putDocuments} from '../../world/scenes/put-documents.ts';
import {World} from '../../world/world.ts';

const RUNS = Array.from({length: 30}, (_, index) => `run-${index}`);

/** Paused runs with a pending stream each, after the ticks that count them. */
async function aCountedWorld(): Promise<World> {
  const world = new World();
  await world.deps.store.transaction(async tx => {
    for (const run of RUNS) {
      runRecords.set(tx, aRun({run, status: 'paused'}));
      streamRecords.set(tx, aStream({run}));
    }
  });
  for (let count = 0; count < 2; count++) {
    world.now += 400_000;
    await world.tick();
  }
  return world;
}

/** The collections that a tick counts, and the runs that it reads. */
async function readsOfTick(world: World): Promise<{counted: string[]; read: string[]}> {
  const {deps} = world;
  const {store} = deps;
  const [counted, read]: string[][] = [[], []];
  world.deps = {
    ...deps,
    store: {
      ...store,
      sum: (collection, fields) => {
        counted?.push(collection);
        return store.sum(collection, fields);
      },
      query: async (collection, query) => {
        const found = await store.query(collection, query);
        if (collection === 'runs') read?.push(...found.map(({id}) => id));
        return found;
      },
    },
  };
  world.now += 60_000;
  await world.tick();
  world.deps = deps;
  return {counted: counted ?? [], read: read ?? []};
}

describe('a tick', () => {
  it('reads and counts the runs whose streams changed, and no other', async () => {
    const world = await aCountedWorld();
    assert.deepEqual(await readsOfTick(world), {counted: [], read: []});
    await world.deps.store.transaction(async tx => streamRecords.set(tx, aLeasedStream({run: 'run-7'})));
    assert.deepEqual(await readsOfTick(world), {counted: ['runs/run-7/streams'], read: ['run-7']});
  });

  it('counts a run again until no change can rely on its mark', async () => {
    const world = await aCountedWorld();
    const change = (failures: number) =>
      world.deps.store.transaction(async tx => streamRecords.set(tx, aStream({run: 'run-7', failures})));
    await change(1);
    const marked_at = (await world.run('run-7'))?.changed_at;
    world.now += 5000;
    await change(2);
    assert.equal((await world.run('run-7'))?.changed_at, marked_at, 'one mark stands for both');
    const counts = [];
    for (let tick = 0; tick < 7; tick++) counts.push((await readsOfTick(world)).counted.length);
    assert.deepEqual(counts, [1, 0, 0, 0, 0, 1, 0], 'now, and when every commit is over');
    assert.equal((await world.run('run-7'))?.changed_at, null);
  });

  it('whose answers hang keeps the newer count of another tick', async () => {
    const world = await aCountedWorld();
    const {deps} = world;
    const {store} = deps;
    const [reached, answer] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const hanging: typeof store = {
      ...store,
      count: async (collection, where) => {
        const count = await store.count(collection, where);
        if (collection === 'runs/run-7/streams') {
          reached.resolve();
          await answer.promise;
        }
        return count;
      },
    };
    const add = (stream: string) =>
      store.transaction(async tx => streamRecords.set(tx, aStream({run: 'run-7', stream})));
    await add('008');
    const slow = tick({...deps, store: hanging});
    await reached.promise;
    await add('009');
    world.now += 400_000;
    await world.tick();
    answer.resolve();
    await slow;
    const {changed_at, streams_pending} = (await world.run('run-7')) ?? {};
    assert.deepEqual({changed_at, streams_pending}, {changed_at: null, streams_pending: 3});
  });

  it('reads all open runs where their number is another: a document was deleted', async () => {
    const world = await aCountedWorld();
    await world.store.transaction(async tx => tx.delete('runs/run-7'));
    assert.deepEqual((await readsOfTick(world)).read.sort(), RUNS.filter(run => run !== 'run-7').sort());
  });
});

describe('a change of a stream', () => {
  const change = (store: Store, failures: number) =>
    store.transaction(async tx => streamRecords.set(tx, aStream({failures})));

  async function aMarkedWorld(run: Partial<Run> = {}) {
    const world = new World();
    await putDocuments(world.store, {'runs/my-run': aRun({changed_at: null, ...run})});
    const begun = {seconds: 0};
    const wait = (seconds: number) => {
      world.now += seconds * 1000;
      begun.seconds += seconds;
    };
    const instance = (store: Store = world.store) =>
      withRunMarks({store, runMarks: new Map(), now: () => world.now, log: world.deps.log});
    const markedAfter = async () => {
      const {changed_at = null} = (await world.run('my-run')) ?? {};
      return changed_at && (Date.parse(changed_at) - world.now) / 1000 + begun.seconds;
    };
    return {world, wait, instance, markedAfter};
  }

  it('relies on the mark of another instance for ten seconds from that mark', async () => {
    const {wait, instance, markedAfter} = await aMarkedWorld();
    await change(instance(), 1);
    wait(9);
    const other = instance();
    await change(other, 2);
    assert.equal(await markedAfter(), 0);
    wait(5);
    await change(other, 3);
    assert.equal(await markedAfter(), 14);
  });

  it('marks its run again where it begins late after the mark', async () => {
    const {world, wait, instance, markedAfter} = await aMarkedWorld();
    let transactions = 0;
    const slow: Store = {
      ...withTransactions(world.store, work => {
        transactions += 1;
        // The first asks for the mark, the second marks, and the third relies on it.
        if (transactions === 3) wait(30);
        return world.store.transaction(work);
      }),
    };
    await change(instance(slow), 1);
    assert.equal(await markedAfter(), 30);
    assert.equal((await world.stream('my-run', '007'))?.failures, 1);
  });

  it('leaves an ended run as it is', async () => {
    const {world, instance} = await aMarkedWorld({status: 'completed'});
    const before = await world.store.get('runs/my-run');
    await change(instance(), 1);
    assert.deepEqual(await world.store.get('runs/my-run'), before);
    assert.equal((await world.stream('my-run', '007'))?.failures, 1);
  });
});

describe('the count of a marked run', () => {
  it('has the streams that a worker has or can get, and none that an unknown worker holds', async () => {
    const {deps, store} = new World();
    const leaseOf = (worker: string) => ({worker, incarnation: 2, epoch: 3});
    const workers = new Map<string, Worker>();
    await store.transaction(async tx => {
      streamRecords.set(tx, aStream({stream: '000'}));
      for (const slot of [0, 1, 2]) {
        const [name, stream] = [`tpu-us-central1-a-${slot}`, `00${slot + 1}`];
        streamRecords.set(tx, aLeasedStream({stream, lease: leaseOf(name)}));
        if (slot < 2)
          workers.set(name, aWorker({name, phase: 'working', work: `my-run/${stream}`, epoch: 3}));
      }
    });
    const {streams, unfinished, totals} = await countStreams(deps, aRun(), undefined, workers);
    assert.deepEqual([streams, unfinished, totals.streams_pending, totals.streams_in_progress], [4, 3, 1, 3]);
  });
});

describe('a run with a stream that no TPU can serve', () => {
  it('keeps its mark, so that each tick counts it', async () => {
    const {deps, store} = new World();
    const seen = aRun({changed_at: null});
    await putDocuments(store, {'runs/my-run': seen});
    for (const [unfinished, isMarked] of [
      [2, false],
      [1, true],
    ] as const) {
      const totals = {...NO_STREAMS, streams_pending: 2, failed: undefined};
      const counts = {streams: 2, unfinished, totals, areAllOver: false, slots: [], counted_ms: T0};
      await storeRunTotals(deps, seen, totals, {cost_usd: 0, download_usd: 0}, {counts});
      const {changed_at, streams_pending} = (await runRecords.get(store, 'my-run')) ?? assert.fail();
      assert.deepEqual([streams_pending, changed_at !== null], [2, isMarked]);
    }
  });
});

describe('a resync', () => {
  it('marks a run whose streams changed without a mark', async () => {
    const world = await aCountedWorld();
    world.objects.put('datasets/run-7/stream_007.jsonl', '{"prompt": "a"}\n');
    await world.store.transaction(async tx =>
      streamRecords.set(tx, aStream({run: 'run-7', status: 'failed'})),
    );
    await startTask(world.deps, {task: 'resync', run: null});
    await world.deliverNext('tasks');
    assert.notEqual((await world.run('run-7'))?.changed_at, null);
  });
});
