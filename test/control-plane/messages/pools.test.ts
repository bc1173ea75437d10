/** Several pools of one deployment, side by side. */
import assert from 'node:assert/strict';
import {TpuError} from '../../../shared/contracts/errors.ts';
import {
  poolRecords,
  spendingRecords,
  zoneRecords,
} from '../../../shared/control-plane/documents/documents.ts';
import {paths} from '../../../shared/domain/names.ts';
import {send} from '../../world/people.ts';
import {errors} from '../../world/scenes/fleet.ts';
import {A0, B0, ZONE} from '../../world/scenes/places.ts';
import {aWorldWithFast, F0, F1, FAST, namePool} from '../../world/scenes/second-pool.ts';
import {someLines} from '../../world/shard-plan.ts';
import type {World} from '../../world/world.ts';

const nodes = (world: World) => [...world.tpus.nodes.keys()].sort();

function dropStreams(world: World, run: string, count: number, lines = 40): void {
  for (let index = 0; index < count; index++) world.drop(run, index, someLines(lines, `${run}${index}`));
}

async function aFastWorldAtWork(): Promise<World> {
  const world = await aWorldWithFast();
  dropStreams(world, 'quick', 1, 400);
  await world.until('work', () => world.agents.get(F0)?.state === 'working', 9, 1);
  return world;
}

describe('two pools', () => {
  it('serve the runs that name them, each with nodes of its own accelerator and provider', async () => {
    const instances = {provider: 'compute-engine', runtime_version: undefined};
    const world = await aWorldWithFast({GLEANER_PROVIDERS: 'tpu-api,compute-engine'}, instances);
    const asked = new Map<string, string>();
    world.tpus.onAskedFor = ({name, provider, accelerator}) => asked.set(name, `${provider} ${accelerator}`);
    dropStreams(world, 'quick', 2, 9);
    dropStreams(world, 'slow', 1, 9);
    await world.untilAsleep();
    const {accelerator} = world.deps.config.pool;
    assert.deepEqual(Object.fromEntries(asked), {
      ...{[A0]: `tpu-api ${accelerator}`, [F0]: 'compute-engine v6e-1', [F1]: 'compute-engine v6e-1'},
    });
    for (const [run, index] of [
      ['quick', 0],
      ['quick', 1],
      ['slow', 0],
    ] as const)
      await world.assertStoredOnce(run, `00${index}`, someLines(9, `${run}${index}`));
    const [quick, slow] = [await world.run('quick'), await world.run('slow')];
    assert.deepEqual(
      [quick?.status, quick?.pool, slow?.status, slow?.pool],
      ['completed', 'fast', 'completed', 'tpu'],
    );
    const fast = await poolRecords.find(world.store, 'fast', world.deps.config.pool);
    const own = await poolRecords.get(world.store, world.deps.config.pool);
    assert.ok(Math.abs((fast?.spent_usd ?? 0) - (quick?.spent_usd ?? 0)) < 1e-9 && fast?.spent_usd);
    assert.ok(Math.abs(own.spent_usd - (slow?.spent_usd ?? 0)) < 1e-9 && own.spent_usd);
    const {months} = await spendingRecords.get(world.store);
    const sum = Object.values(months).reduce((total, usd) => total + usd, 0);
    assert.ok(Math.abs(sum - own.spent_usd - (fast?.spent_usd ?? 0)) < 1e-9);
  });

  it('have zones of their own: a stock-out of one accelerator stops no other', async () => {
    const world = await aWorldWithFast();
    const {tpus} = world.deps;
    world.deps = {
      ...world.deps,
      tpus: Object.assign(Object.create(tpus), {
        create: async (request: Parameters<typeof tpus.create>[0]) => {
          if (request.accelerator === 'v6e-1')
            throw new TpuError('no-capacity', ZONE, `Failed to create ${request.name}: no capacity`);
          return tpus.create(request);
        },
      }),
    };
    dropStreams(world, 'quick', 1);
    await world.minutes(2, 1);
    assert.equal((await zoneRecords.get(world.store, ZONE, 'fast'))?.limiter.state, 'probing');
    dropStreams(world, 'slow', 1, 9);
    await world.until('the other run', async () => (await world.run('slow'))?.status === 'completed', 20);
    assert.equal((await zoneRecords.get(world.store, ZONE))?.limiter.state, 'open');
    assert.equal((await world.run('quick'))?.status, 'active');
  });

  it('wait together for a minute once Google refuses a create for the rate of the project', async () => {
    const world = await aWorldWithFast({GLEANER_ZONES: `${ZONE},europe-west4-b`});
    const asked: string[] = [];
    world.tpus.onAskedFor = ({name}) => asked.push(name);
    world.tpus.zone(ZONE).overRate = true;
    dropStreams(world, 'slow', 4);
    dropStreams(world, 'quick', 1);
    await world.minute();
    const refused = asked.length;
    world.tpus.openZones();
    world.now += 50_000;
    await world.tick();
    await world.deliverAll();
    assert.equal(asked.length, refused, 'nothing is asked for during the pause');
    assert.deepEqual(
      await Promise.all(['slow', 'quick'].map(async run => (await world.run(run))?.waits?.kind)),
      ['rate', 'rate'],
    );
    await world.minute();
    assert.deepEqual(nodes(world), [F0, B0, A0]);
    const zones = await world.store.query('zones');
    assert.deepEqual(
      zones.map(({data}) => (data.limiter as {refusals: number}).refusals),
      [0, 0, 0],
    );
    assert.deepEqual(errors(world, /./), []);
  });

  it('have together at most GLEANER_MAX_WORKERS nodes', async () => {
    const world = await aWorldWithFast({GLEANER_MAX_WORKERS: '3'});
    await world.edit('pools/fast', {workers_per_zone: 9});
    dropStreams(world, 'slow', 2);
    dropStreams(world, 'quick', 9);
    let most = 0;
    for (let minute = 0; minute < 15; minute++) {
      await world.minute(1);
      most = Math.max(most, world.tpus.nodes.size);
    }
    assert.equal(most, 3);
    assert.ok(nodes(world).includes(A0));
  });

  it('have a budget each: a spent pool ends its own nodes alone', async () => {
    const world = await aWorldWithFast({}, {budget_usd: 0.1});
    dropStreams(world, 'quick', 1, 400);
    dropStreams(world, 'slow', 1, 400);
    const isPaused = async () => (await world.run('quick'))?.status === 'paused';
    await world.until('the pause', isPaused, 60, 1);
    assert.match((await world.run('quick'))?.reason ?? '', /of the pool/);
    await world.minutes(6, 1);
    assert.deepEqual(nodes(world), [A0]);
    assert.equal((await world.run('slow'))?.status, 'active');
  });

  it('share the budget of the month: no node of either is left when it is spent', async () => {
    const world = await aWorldWithFast({GLEANER_MAX_BUDGET_USD: '0.2'});
    dropStreams(world, 'quick', 2, 400);
    dropStreams(world, 'slow', 1, 400);
    const arePaused = async () =>
      (await world.run('quick'))?.status === 'paused' && (await world.run('slow'))?.status === 'paused';
    await world.until('the pauses', arePaused, 60, 1);
    await world.minutes(6, 1);
    assert.deepEqual(nodes(world), []);
    const {months} = await spendingRecords.get(world.store);
    const [spent = 0] = Object.values(months);
    assert.ok(spent <= 0.2, String(spent));
  });

  it('stop their creates alone: boots of one pool that stay unheard stop no other', async () => {
    const world = await aWorldWithFast({GLEANER_MAX_WORKERS: '20'}, {workers_per_zone: 5});
    world.isStillborn = name => name.startsWith('fast-');
    dropStreams(world, 'quick', 5);
    const pool = () => poolRecords.find(world.store, 'fast', world.deps.config.pool);
    await world.until('the stop', async () => (await pool())?.limiter.state === 'stopped', 30, 1);
    dropStreams(world, 'slow', 1, 9);
    await world.until('the other run', async () => (await world.run('slow'))?.status === 'completed', 20);
    assert.equal((await send(world, {action: 'resume', pool: 'fast'})).outcome, 'applied');
    assert.deepEqual(
      [(await pool())?.limiter.state, (await zoneRecords.get(world.store, ZONE, 'fast'))?.limiter.state],
      ['open', 'open'],
    );
  });
});

describe('the document of a pool', () => {
  it('that is invalid keeps the nodes of its pool and gets no other, and the other pool goes on', async () => {
    const world = await aFastWorldAtWork();
    await world.edit('pools/fast', {zones: 'everywhere'});
    world.drop('quick', 1, someLines(400, 'more'));
    dropStreams(world, 'slow', 1, 9);
    await world.until('the other run', async () => (await world.run('slow'))?.status === 'completed', 20, 1);
    await world.until('one node', () => world.tpus.nodes.size === 1, 9, 1);
    assert.deepEqual(nodes(world), [F0]);
    await world.edit('pools/fast', {zones: [ZONE]});
    await world.until('the second node', () => world.tpus.nodes.size === 2, 9, 1);
  });

  it('that is deleted ends the nodes of its pool, and their cost is billed', async () => {
    const world = await aFastWorldAtWork();
    await world.store.transaction(async tx => tx.delete('pools/fast'));
    await world.until('no node', () => world.tpus.nodes.size === 0, 20, 1);
    const quick = await world.run('quick');
    assert.ok(quick && quick.spent_usd > 0);
    assert.equal((await world.worker(F0))?.phase, 'gone');
    assert.deepEqual((await world.stream('quick', '000'))?.status, 'pending');
    const {months} = await spendingRecords.get(world.store);
    assert.ok((Object.values(months)[0] ?? 0) >= quick.spent_usd);
  });

  it('that is lost with the node of a worker leaves an orphan, which goes', async () => {
    const world = await aFastWorldAtWork();
    await world.store.transaction(async tx => {
      tx.delete('pools/fast');
      tx.delete(paths.worker(F0));
    });
    await world.until('no node', () => world.tpus.nodes.size === 0, 20, 1);
  });
});

describe('a run', () => {
  it('that names no pool of the deployment is rejected, and its reason names the pools', async () => {
    const world = await aWorldWithFast();
    namePool(world, 'my-run', 'big');
    world.drop('my-run', 0, someLines(3));
    await world.deliverAll();
    const run = await world.run('my-run');
    assert.equal(run?.status, 'failed');
    assert.match(run.reason ?? '', /there is no pool "big"; the pools are tpu, fast/);
  });

  it('begins as soon as the pool that it names is created', async () => {
    const world = await aWorldWithFast();
    namePool(world, 'my-run', 'big');
    dropStreams(world, 'my-run', 2, 3);
    await world.deliverAll();
    await send(world, {...FAST, pool: 'big'});
    await world.deliverAll();
    const {status, streams_pending} = (await world.run('my-run')) ?? {};
    assert.deepEqual([status, streams_pending], ['active', 2]);
  });

  it('keeps its second pool when its document is lost', async () => {
    const world = await aWorldWithFast();
    dropStreams(world, 'quick', 1, 9);
    await world.untilAsleep();
    await world.store.transaction(async tx => tx.delete('runs/quick'));
    await send(world, {action: 'rebuild', run: 'quick'});
    assert.equal((await world.run('quick'))?.pool, 'fast');
  });
});

describe('an idle tick', () => {
  it('over two pools makes at most 30 reads', async () => {
    const world = await aWorldWithFast();
    dropStreams(world, 'quick', 1, 9);
    await world.untilAsleep();
    let reads = 0;
    const {store} = world.deps;
    const counted =
      <A extends unknown[], R>(verb: (...args: A) => R) =>
      (...args: A) => {
        reads += 1;
        return verb(...args);
      };
    world.deps = {
      ...world.deps,
      store: {
        ...store,
        get: counted(store.get),
        query: counted(store.query),
        count: counted(store.count),
        sum: counted(store.sum),
      },
    };
    await world.tick();
    assert.ok(reads <= 30, `${reads} reads`);
  });
});
