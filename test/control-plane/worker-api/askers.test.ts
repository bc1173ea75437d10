import assert from 'node:assert/strict';
import {runRecords, streamRecords, workerRecords} from '../../../shared/control-plane/documents/documents.ts';
import {streamId, workerName} from '../../../shared/domain/names.ts';
import type {Run} from '../../../shared/domain/records/run.ts';
import type {Worker} from '../../../shared/domain/records/worker.ts';
import type {Store} from '../../../shared/ports/ports.ts';
import {aRun, aStream, at, aWorker} from '../../world/builders.ts';
import {World} from '../../world/world.ts';

type Asked = {status: number; body: Record<string, unknown>};

/** A run with so many pending streams, and workers of one zone without work. */
async function aWorldOf(
  streams: number,
  workers: number,
  as: Partial<Worker> = {},
  first = 0,
): Promise<World> {
  return aWorldWith([{run: aRun({streams_pending: streams}), first}], workers, as);
}

/** Runs whose pending streams begin at an index, and workers of one zone without work. */
async function aWorldWith(runs: {run: Run; first: number}[], workers: number, as: Partial<Worker> = {}) {
  const world = new World({GLEANER_POLL_S: '60', GLEANER_WORKERS_PER_ZONE: '4'});
  await world.store.transaction(async tx => {
    for (const {run, first} of runs) {
      runRecords.set(tx, run);
      for (let index = first; index < first + run.streams_pending; index++) {
        const stream = streamId(index);
        const object = `datasets/${run.run}/stream_${stream}.jsonl`;
        streamRecords.set(tx, aStream({run: run.run, stream, worker_id: index, object}));
      }
    }
    for (let slot = 0; slot < workers; slot++)
      workerRecords.set(tx, aWorker({name: nameOf(slot), phase: 'idle', ...as}));
  });
  return world;
}

function runsOf(count: number, changes: Partial<Run>): {run: Run; first: number}[] {
  return Array.from({length: count}, (_, index) => ({
    run: aRun({run: `r${String(index).padStart(3, '0')}`, created_at: at(index), ...changes}),
    first: 0,
  }));
}

function nameOf(slot: number): string {
  return workerName({pool: 'tpu', zone: 'us-central1-a', slot});
}

function ask(world: World, slot: number): Promise<Asked> {
  return world.api({
    action: 'lease',
    worker: nameOf(slot),
    incarnation: 2,
    host: 0,
    loaded: null,
  });
}

/** Counts transactions, and documents that are read in and outside of them. */
function meter(world: World) {
  const counts = {transactions: 0, reads: 0};
  const {store} = world.deps;
  world.deps.store = {
    ...store,
    get: path => {
      counts.reads += 1;
      return store.get(path);
    },
    query: async (collection, query) => {
      const found = await store.query(collection, query);
      counts.reads += Math.max(1, found.length);
      return found;
    },
    transaction: work => {
      counts.transactions += 1;
      return store.transaction(tx =>
        work({
          get: path => {
            counts.reads += 1;
            return tx.get(path);
          },
          create: (path, data) => tx.create(path, data),
          set: (path, data) => tx.set(path, data),
          delete: path => tx.delete(path),
        }),
      );
    },
  } satisfies Store;
  return counts;
}

/** Delays each call, so that askers decide on what others change. The delays do not depend on chance. */
function slow(world: World): void {
  const {store} = world.deps;
  let calls = 0;
  const wait = () => {
    calls += 1;
    return new Promise(resolve => setTimeout(resolve, 1 + ((calls * 7) % 5)));
  };
  world.deps.store = {
    ...store,
    get: path => wait().then(() => store.get(path)),
    query: (collection, query) => wait().then(() => store.query(collection, query)),
    transaction: work => wait().then(() => store.transaction(work)),
  } satisfies Store;
}

describe('workers that ask at the same time', () => {
  for (const askers of [10, 50])
    it(`cost a bounded number of transactions and reads each: ${askers} of them`, async () => {
      const world = await aWorldOf(200, askers);
      const counts = meter(world);
      const slots = Array.from({length: askers}, (_, slot) => slot);
      const answers = await Promise.all(slots.map(slot => ask(world, slot)));
      assert.ok(counts.transactions <= 6 * askers, `${counts.transactions} transactions`);
      assert.ok(counts.reads <= 70 * askers, `${counts.reads} reads`);
      const got = answers.filter(({body}) => body.action === 'work');
      assert.ok(got.length >= 0.8 * askers, `${got.length} of ${askers} got a stream at once`);
    });

  it('get every stream within some rounds, each stream once, when there are as many workers', async () => {
    const [world, askers] = [await aWorldOf(50, 50), 50];
    const counts = meter(world);
    let waiting = Array.from({length: askers}, (_, slot) => slot);
    const streams: unknown[] = [];
    let rounds = 0;
    for (; waiting.length > 0 && rounds < 20; rounds++) {
      const answers = await Promise.all(waiting.map(async slot => ({slot, ...(await ask(world, slot))})));
      streams.push(
        ...answers.flatMap(({body}) => (body.lease as {stream: string} | undefined)?.stream ?? []),
      );
      waiting = answers.filter(({body}) => body.action === 'wait').map(({slot}) => slot);
    }
    assert.equal(new Set(streams).size, 50, `after ${rounds} rounds`);
    assert.equal(streams.length, 50);
    assert.ok(counts.transactions <= 6 * askers, `${counts.transactions} transactions`);
  });

  for (const [what, worldOf, most] of [
    ['of one run from index 1000', () => aWorldOf(100, 100, {}, 1000), 20],
    ['of a hundred runs', () => aWorldWith(runsOf(100, {streams_pending: 1}), 100), 30],
  ] as const)
    it(`collide seldom at a slow store, over streams ${what}`, async () => {
      const world = await worldOf();
      const counts = meter(world);
      slow(world);
      const answers = await Promise.all(Array.from({length: 100}, (_, slot) => ask(world, slot)));
      const got = answers.filter(({body}) => body.action === 'work');
      assert.ok(got.length >= 60, `${got.length} of 100 got a stream at once`);
      assert.ok(counts.transactions <= 300, `${counts.transactions} transactions`);
      assert.ok(counts.reads <= most * 100, `${counts.reads} reads`);
    });

  it('a worker searches few of many runs without pending streams, and waits', async () => {
    const world = await aWorldWith(runsOf(300, {streams_in_progress: 5}), 1);
    const counts = meter(world);
    const {body} = await ask(world, 0);
    assert.ok(body.action === 'wait' && Number(body.retry_s) >= 60, String(body.retry_s));
    assert.ok(counts.reads <= 300 + 15, `${counts.reads} reads`);
  });

  it('a worker that finds nothing in ten of many runs asks again soon', async () => {
    const world = await aWorldWith(runsOf(30, {}), 1);
    const {body} = await ask(world, 0);
    assert.ok(body.action === 'wait' && Number(body.retry_s) < 5, String(body.retry_s));
  });

  it('a worker that loses five races is told to ask again in 2 to 5 seconds', async () => {
    const world = await aWorldOf(200, 1);
    const {store} = world.deps;
    let tries = 0;
    world.deps.store = {
      ...store,
      transaction: async work => {
        tries += 1;
        return store.transaction(tx =>
          work({
            ...{create: tx.create.bind(tx), set: tx.set.bind(tx), delete: tx.delete.bind(tx)},
            get: async path => {
              const found = await tx.get(path);
              return found && path.includes('/streams/') ? {...found, status: 'completed'} : found;
            },
          }),
        );
      },
    } satisfies Store;
    const {body} = await ask(world, 0);
    assert.equal(body.action, 'wait');
    assert.ok(Number(body.retry_s) >= 2 && Number(body.retry_s) < 5, String(body.retry_s));
    assert.equal(tries, 5);
  });

  it('workers with nothing to do ask again after poll_s or up to a quarter more, not in step', async () => {
    const world = await aWorldOf(0, 20);
    const answers = await Promise.all(Array.from({length: 20}, (_, slot) => ask(world, slot)));
    const seconds = answers.map(({body}) => Number(body.retry_s));
    assert.ok(
      seconds.every(retry_s => retry_s >= 60 && retry_s < 75),
      seconds.join(),
    );
    assert.ok(new Set(seconds).size > 10, seconds.join());
  });

  it('a worker that no tick has seen READY reads no stream, is known from then on, and asks again soon', async () => {
    const world = await aWorldOf(200, 1, {phase: 'creating'});
    const counts = meter(world);
    const {body} = await ask(world, 0);
    assert.equal(body.action, 'wait');
    assert.ok(Number(body.retry_s) < 5);
    assert.ok(counts.reads <= 2, `${counts.reads} reads`);
    assert.equal((await ask(world, 0)).body.action, 'work');
  });

  it('a stream before the place where the worker looks is found as well', async () => {
    const world = await aWorldOf(200, 1);
    await world.store.transaction(async tx => {
      for (let index = 1; index < 200; index++) {
        const stream = streamId(index);
        streamRecords.set(tx, aStream({stream, worker_id: index, status: 'completed'}));
      }
    });
    const {body} = await ask(world, 0);
    assert.equal((body.lease as {stream: string} | undefined)?.stream, '000');
  });
});

describe('idle workers of a pool', () => {
  const later = [
    {name: 'two seconds later', passed_ms: 2000},
    {name: 'at once where the clock is set back by two hours', passed_ms: -7_200_000},
  ];
  for (const {name, passed_ms} of later)
    it(`share a search in vain, and see a new run ${name}`, async () => {
      const world = await aWorldWith(runsOf(40, {streams_in_progress: 1}), 2);
      const counts = meter(world);
      await ask(world, 0);
      const first = counts.reads;
      await ask(world, 1);
      assert.ok(first > 40 && counts.reads - first < 10, `${first} and ${counts.reads - first} reads`);
      await world.store.transaction(async tx => {
        runRecords.set(tx, aRun({run: 'new', streams_pending: 1}));
        streamRecords.set(tx, aStream({run: 'new', object: 'datasets/new/stream_007.jsonl'}));
      });
      world.now += passed_ms;
      assert.equal((await ask(world, 1)).body.action, 'work');
    });
});
