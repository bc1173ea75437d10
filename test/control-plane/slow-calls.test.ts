/** Calls that take minutes: what a function concludes then, it concludes from a world that has gone on. Each of these broke a seed. */
import assert from 'node:assert/strict';
import type {Deps} from '../../shared/control-plane/state/deps.ts';
import {LIST_PRICES} from '../../shared/domain/billing/prices.ts';
import {someLines} from '../support/agent.ts';
import {World} from '../support/control-plane-harness.ts';

const A0 = 'tpu-us-central1-a-0';
const ONE_SLOT = {
  GLEANER_ZONES: 'us-central1-a',
  GLEANER_WORKERS_PER_ZONE: '1',
  GLEANER_ACCELERATOR: 'v6e-8',
};
const USD_PER_MINUTE = (8 * (LIST_PRICES.v6e?.spot_usd ?? Number.NaN)) / 60;

/** A tick whose first list of nodes is answered at once, and goes on when `meanwhile` is over. */
async function slowTick(world: World, meanwhile: () => Promise<void>): Promise<void> {
  const {deps} = world;
  let isFirst = true;
  const list = async () => {
    const listed = await deps.tpus.list();
    if (isFirst) {
      isFirst = false;
      await meanwhile();
    }
    return listed;
  };
  world.deps = {...deps, tpus: {...deps.tpus, list}};
  await world.tick();
  world.deps = deps;
}

async function atWork(run_json: object = {}): Promise<World> {
  const world = new World(ONE_SLOT);
  world.objects.put('datasets/my-run/run.json', JSON.stringify(run_json));
  world.drop('my-run', 0, someLines(6));
  await world.until('work', async () => (await world.worker(A0))?.phase === 'working', 9, 1);
  return world;
}

/** A tick that counts the streams and goes on when its worker is lost, billed and made again. */
async function tickBesideABill(world: World): Promise<void> {
  const {deps} = world;
  const {store} = deps;
  let isFirst = true;
  const count: typeof store.count = async (collection, where) => {
    const counted = await store.count(collection, where);
    if (isFirst && collection === 'runs/my-run/streams') {
      isFirst = false;
      world.deps = deps;
      world.tpus.node(A0).state = 'PREEMPTED';
      await world.minutes(3, 0);
    }
    return counted;
  };
  world.deps = {...deps, store: {...store, count}};
  await world.tick();
  world.deps = deps;
  assert.ok(!isFirst);
}

describe('a function that was slow', () => {
  it('does not count a life twice that was billed meanwhile, and holds no budget against that', async () => {
    const world = await atWork({budget_usd: 18 * USD_PER_MINUTE});
    await world.minutes(10, 0);
    await tickBesideABill(world);
    assert.equal((await world.run('my-run'))?.status, 'active');
    await world.untilAsleep(60);
    const run = (await world.run('my-run')) ?? assert.fail();
    assert.ok(Math.abs(run.cost_usd - run.spent_usd) < 1e-9, `cost ${run.cost_usd}, spent ${run.spent_usd}`);
  });

  it('does not switch the beat off over a node that no document knows and that it had no chance to see', async () => {
    const world = new World(ONE_SLOT);
    world.tickerOn = true;
    const labels = {'managed-by': 'gleaner', 'gleaner-incarnation': '1'};
    await slowTick(world, async () => {
      await world.tpus.create({name: A0, zone: 'us-central1-a', labels, metadata: {}} as never);
    });
    assert.equal(world.tickerOn, true);
    await world.untilAsleep();
    assert.deepEqual([...world.tpus.nodes.keys()], []);
  });

  it('nor over a zone that has ceased to answer', async () => {
    const world = new World(ONE_SLOT);
    world.tickerOn = true;
    await slowTick(world, async () => void world.tpus.unreachable.add('us-central1-a'));
    assert.equal(world.tickerOn, true);
  });

  it('nor over one that a message has taken from the pool meanwhile', async () => {
    const world = new World({GLEANER_ZONES: 'us-central1-a,europe-west4-b'});
    world.tpus.unreachable.add('us-central1-a');
    world.control({action: 'scale', zones: ['europe-west4-b']});
    await world.minutes(9);
    assert.equal(world.tickerOn, true);
    world.tpus.unreachable.clear();
    await world.untilAsleep();
  });

  it('nor when it cannot ask afterwards whether it should have', async () => {
    const world = new World(ONE_SLOT);
    world.tickerOn = true;
    const {deps} = world;
    let isAway = false;
    const list = async () => {
      if (isAway) throw new Error('unavailable');
      return deps.tpus.list();
    };
    const off = async () => {
      await deps.ticker.off();
      isAway = true;
    };
    world.deps = {...deps, tpus: {...deps.tpus, list}, ticker: {...deps.ticker, off}};
    await world.tick();
    assert.deepEqual([isAway, world.tickerOn], [true, true]);
  });

  it('nor at all when it was so slow that it must look again, and sees less than before', async () => {
    const world = new World(ONE_SLOT);
    let offs = 0;
    const {deps} = world;
    const off = async () => void offs++;
    world.deps = {...deps, ticker: {...deps.ticker, off}};
    await slowTick(world, async () => {
      world.tpus.unreachable.add('us-central1-a');
      world.now += 10 * 60_000;
    });
    assert.deepEqual([offs, world.tickerOn], [0, true]);
  });

  it('keeps the beat for what it alone has seen', async () => {
    const world = new World(ONE_SLOT);
    const labels = {'managed-by': 'gleaner', 'gleaner-incarnation': '1'};
    await world.tpus.create({name: A0, zone: 'us-central1-a', labels, metadata: {}} as never);
    await slowTick(world, async () => {
      world.now += 10 * 60_000;
    });
    assert.equal(world.tickerOn, true);
    await world.untilAsleep();
    assert.equal((await world.worker(A0))?.phase, 'gone');
  });

  it('has its node found that it asked for when all was over, though it could not say so then', async () => {
    const world = await atWork();
    const [create] = world.published.filter(({topic}) => topic === 'tpu');
    await world.untilAsleep();
    const labels = {'managed-by': 'gleaner', 'gleaner-incarnation': '1'};
    await world.tpus.create({name: A0, zone: 'us-central1-a', labels, metadata: {}} as never);
    assert.equal(world.tickerOn, false);
    assert.ok(create && (await world.handle(create)), 'its message comes again');
    await world.untilAsleep();
    assert.deepEqual([...world.tpus.nodes.keys()], []);
    assert.equal((await world.worker(A0))?.phase, 'gone');
  });

  it('does not call a node vanished that another one has seen since', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(2));
    await world.deliver();
    assert.equal((await world.worker(A0))?.phase, 'creating');
    await slowTick(world, async () => {
      await world.deliverAll();
      await world.tick();
      assert.equal((await world.worker(A0))?.provider_state, 'CREATING');
    });
    assert.deepEqual(
      [(await world.worker(A0))?.phase, (await world.worker(A0))?.last_death],
      ['creating', null],
    );
  });

  it('dismisses a TPU that nobody pays for, although it gave its stream back meanwhile', async () => {
    const world = await atWork({budget_usd: 5 * USD_PER_MINUTE});
    world.now += 5 * 60_000;
    const {store} = world.deps;
    world.deps = {
      ...world.deps,
      store: {
        ...store,
        // The fleet is read, and the agent has finished before anything is decided.
        query: async (collection, query) => {
          const found = await store.query(collection, query);
          if (collection === 'zones') await world.agent(A0).preempted();
          return found;
        },
      } as Deps['store'],
    };
    await world.tick();
    assert.equal((await world.worker(A0))?.phase, 'deleting');
  });
});

describe('the last shard of a run', () => {
  it('ends the run also when it comes after a pause, with nothing left that beats', async () => {
    const world = await atWork();
    const zombie = world.zombify(A0);
    world.control({action: 'pause', run: 'my-run'});
    await world.untilAsleep(20);
    assert.deepEqual([(await world.run('my-run'))?.status, world.tickerOn], ['paused', false]);
    for (let step = 0; step < 9; step++) await zombie.step();
    await world.deliverAll();
    await world.untilAsleep();
    assert.equal((await world.stream('my-run', '000'))?.status, 'completed');
    assert.equal((await world.run('my-run'))?.status, 'completed');
  });
});

describe('a stream that was parked while its worker had all of it', () => {
  it('completes its run, although that had ended over it', async () => {
    const world = await atWork();
    await world.store.transaction(async tx => {
      const path = 'runs/my-run/streams/000';
      const stream = await tx.get(path);
      tx.set(path, {...stream, status: 'failed', lease: null, last_error: 'was overwritten'});
    });
    // The first tick takes the work from the worker, the second one ends the run.
    await world.tick();
    await world.tick();
    assert.equal((await world.run('my-run'))?.status, 'failed');
    world.tickerOn = false;
    for (let step = 0; step < 9; step++) await world.agent(A0).step();
    assert.equal((await world.stream('my-run', '000'))?.status, 'completed');
    assert.equal(world.tickerOn, true);
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'completed');
  });
});

describe('a tick whose reads of streams are slow', () => {
  it('takes missed streams for some seconds, and the next ticks go on where it stopped', async () => {
    const world = new World(ONE_SLOT);
    world.control({action: 'start', run: 'my-run'});
    world.control({action: 'pause', run: 'my-run'});
    await world.deliverAll();
    for (let stream = 0; stream < 300; stream++) world.drop('my-run', stream, someLines(1));
    world.queue.length = 0;
    const {deps} = world;
    const {store} = deps;
    const get: typeof store.get = async path => {
      if (/\/streams\//.test(path)) world.now += 200;
      return store.get(path);
    };
    world.deps = {...deps, store: {...store, get}};
    const taken = [];
    const took_ms = [];
    for (let tick = 0; tick < 12; tick++) {
      const began = world.now;
      await world.tick();
      took_ms.push(world.now - began);
      taken.push(await store.count('runs/my-run/streams'));
    }
    assert.ok((taken[0] ?? 0) > 0 && (taken[0] ?? 0) < 300, `${taken}`);
    assert.equal(taken.at(-1), 300, `${taken}`);
    assert.ok(Math.max(...took_ms) < 60_000, `${took_ms}`);
  });
});
