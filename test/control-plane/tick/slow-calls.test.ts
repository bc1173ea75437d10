/** Calls that take minutes: a function decides from facts that have changed since it read them. */
import assert from 'node:assert/strict';
import {LIST_PRICES} from '../../../shared/domain/billing/list-prices.ts';
import {labelsOf} from '../../../shared/domain/deployment.ts';
import {aWorldWithAStream} from '../../world/scenes/one-worker.ts';
import {A0} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

const ONE_SLOT = {
  GLEANER_ZONES: 'us-central1-a',
  GLEANER_WORKERS_PER_ZONE: '1',
  GLEANER_ACCELERATOR: 'v6e-8',
};
const USD_PER_MINUTE = (8 * (LIST_PRICES['v6e@us-central1']?.spot_usd ?? Number.NaN)) / 60;
const LABELS = {...labelsOf('gleaner'), 'gleaner-incarnation': '1'};

/** A tick whose first list of nodes is answered at once and reaches the tick after `between`. */
async function slowTick(world: World, between: () => Promise<void>): Promise<void> {
  const {deps} = world;
  let isFirst = true;
  const list = async () => {
    const listed = await deps.tpus.list();
    if (isFirst) {
      isFirst = false;
      await between();
    }
    return listed;
  };
  world.deps = {...deps, tpus: {...deps.tpus, list}};
  await world.tick();
  world.deps = deps;
}

/** Creates a node that no document knows. */
async function createNode(world: World): Promise<void> {
  await world.tpus.create({name: A0, zone: 'us-central1-a', labels: LABELS, metadata: {}} as never);
}

async function atWork(run_json: object = {}): Promise<World> {
  const world = new World(ONE_SLOT);
  world.objects.put('datasets/my-run/run.json', JSON.stringify(run_json));
  world.drop('my-run', 0, someLines(6));
  await world.until('work', async () => (await world.worker(A0))?.phase === 'working', 9, 1);
  return world;
}

/** A tick that reads the zones and goes on when its worker is lost, billed and made again. */
async function tickBesideABill(world: World): Promise<void> {
  const {deps} = world;
  const {store} = deps;
  let isFirst = true;
  const query: typeof store.query = async (collection, of) => {
    const found = await store.query(collection, of);
    if (isFirst && collection === 'zones') {
      isFirst = false;
      world.deps = deps;
      world.tpus.node(A0).state = 'PREEMPTED';
      await world.minutes(3, 0);
    }
    return found;
  };
  world.deps = {...deps, store: {...store, query}};
  await world.tick();
  world.deps = deps;
  assert.ok(!isFirst);
}

describe('a slow tick', () => {
  it('counts an incarnation once that another tick has billed since, and pauses no run for it', async () => {
    const world = await atWork({budget_usd: 18 * USD_PER_MINUTE});
    await world.minutes(10, 0);
    await tickBesideABill(world);
    assert.equal((await world.run('my-run'))?.status, 'active');
    await world.untilAsleep(60);
    const run = (await world.run('my-run')) ?? assert.fail();
    assert.ok(Math.abs(run.cost_usd - run.spent_usd) < 1e-9, `cost ${run.cost_usd}, spent ${run.spent_usd}`);
  });

  it('leaves a node without a document that it had no chance to see to the next tick, which deletes it', async () => {
    const world = new World(ONE_SLOT);
    await slowTick(world, () => createNode(world));
    assert.deepEqual([...world.tpus.nodes.keys()], [A0]);
    await world.untilAsleep();
    assert.deepEqual([...world.tpus.nodes.keys()], []);
  });

  it('does not call a node vanished that another tick has seen since', async () => {
    const world = aWorldWithAStream(2, ONE_SLOT);
    await world.deliverNext('object');
    await world.tick();
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
});

describe('a zone that does not answer while a message takes it from the pool', () => {
  it('loses its node when it answers again', async () => {
    const world = await atWork();
    world.redeploy({GLEANER_ZONES: 'us-central1-a,europe-west4-b'});
    world.tpus.zone('us-central1-a').unreachable = true;
    world.control({action: 'scale', zones: ['europe-west4-b']});
    await world.minutes(9, 0);
    assert.ok(world.tpus.nodes.has(A0));
    world.tpus.openZones();
    await world.until('the end of the node', () => !world.tpus.nodes.has(A0), 9, 0);
    await world.untilAsleep();
  });
});

describe('a create message that comes again after the end of all work', () => {
  it('has the node deleted that its first delivery created late', async () => {
    const world = await atWork();
    const [create] = world.published.filter(({topic}) => topic === 'tpu');
    await world.untilAsleep();
    await createNode(world);
    assert.ok(create && (await world.handle(create)), 'its message comes again');
    await world.untilAsleep();
    assert.deepEqual([...world.tpus.nodes.keys()], []);
    assert.equal((await world.worker(A0))?.phase, 'gone');
  });
});

describe('the last shard of a run', () => {
  it('ends the run also when it comes after a pause, from a worker that is gone', async () => {
    const world = await atWork();
    const zombie = world.zombify(A0);
    world.control({action: 'pause', run: 'my-run'});
    await world.untilAsleep(20);
    assert.equal((await world.run('my-run'))?.status, 'paused');
    for (let step = 0; step < 9; step++) await zombie.step();
    await world.deliverAll();
    await world.untilAsleep();
    assert.equal((await world.stream('my-run', '000'))?.status, 'completed');
    assert.equal((await world.run('my-run'))?.status, 'completed');
  });
});

describe('a failed stream of an ended run', () => {
  it('completes the run when its worker turns out to have stored all of it', async () => {
    const world = await atWork();
    const changes = {status: 'failed', lease: null, last_error: 'was overwritten'};
    await world.edit('runs/my-run/streams/000', changes);
    // The comparison with the bucket takes the work from the worker, and the next tick sees the run over.
    world.now += 60_000;
    await world.tick();
    await world.deliverAll();
    await world.tick();
    await world.deliverAll();
    assert.equal((await world.run('my-run'))?.status, 'failed');
    for (let step = 0; step < 9; step++) await world.agent(A0).step();
    // Its release is refused, and the events of its shards count them.
    await world.deliverAll();
    assert.equal((await world.stream('my-run', '000'))?.status, 'completed');
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'completed');
  });
});
