import assert from 'node:assert/strict';
import {poolRecords} from '../../shared/control-plane/state/documents.ts';
import {LIST_PRICES} from '../../shared/domain/billing/prices.ts';
import {someLines} from '../support/agent.ts';
import {World} from '../support/control-plane-harness.ts';

const ONE_SLOT = {
  GLEANER_ZONES: 'us-central1-a',
  GLEANER_WORKERS_PER_ZONE: '1',
  GLEANER_ACCELERATOR: 'v6e-8',
};
const SLOT = 'tpu-us-central1-a-0';
/** v6e-8 on spot, as the list has it. */
const USD_PER_HOUR = 8 * (LIST_PRICES.v6e?.spot_usd ?? Number.NaN);
const USD_PER_MINUTE = USD_PER_HOUR / 60;

async function aWorldWith(run_json: object, set: Record<string, string> = {}): Promise<World> {
  const world = new World({...ONE_SLOT, ...set});
  world.objects.put('datasets/my-run/run.json', JSON.stringify(run_json));
  world.drop('my-run', 0, someLines(60));
  await world.until('work', async () => world.agents.size > 0, 9, 1);
  return world;
}

/** Cloud TPU takes so long to delete a node. */
function deleteIn(world: World, delete_s: number): void {
  const settle = world.tpus.settle.bind(world.tpus);
  const since = new Map<string, number>();
  world.tpus.settle = () => {
    const going = [...world.tpus.nodes.values()].filter(({name, state}) => {
      if (state !== 'DELETING') return false;
      const since_ms = since.get(name) ?? world.now;
      since.set(name, since_ms);
      return world.now - since_ms < delete_s * 1000;
    });
    for (const {name} of going) world.tpus.node(name).state = 'going';
    settle();
    for (const {name} of going) world.tpus.node(name).state = 'DELETING';
  };
}

/** The run, the pool and the one attempt say that the TPU cost so many hours, or some minutes more. */
async function assertHoursBilled(world: World, hours: number, before_usd = 0): Promise<void> {
  const attempts = await world.store.query(`workers/${SLOT}/attempts`);
  const said = [await world.run('my-run'), await world.store.get('pools/tpu')].map(of => of?.spent_usd);
  assert.deepEqual(
    attempts.map(({data}) => data.cost_usd),
    [said[0]],
    String(said),
  );
  assert.equal(said[0], said[1]);
  const paid_h = (Number(said[0]) - before_usd) / USD_PER_HOUR;
  assert.ok(paid_h >= hours && paid_h < hours + 0.2, `${paid_h} hours`);
}

describe('money', () => {
  it('a run that is done says what it cost, and each life of a slot what it did', async () => {
    const world = await aWorldWith({});
    await world.untilAsleep();
    const run = (await world.run('my-run')) ?? assert.fail();
    const attempts = await world.store.query('workers/tpu-us-central1-a-0/attempts');
    assert.equal(attempts.length, 1);
    const cost = Number(attempts[0]?.data.cost_usd);
    assert.ok(cost > 5 * USD_PER_MINUTE && cost < 40 * USD_PER_MINUTE, String(cost));
    const pool = await world.store.get('pools/tpu');
    assert.deepEqual([run.spent_usd, pool?.spent_usd], [cost, cost]);
  });

  it('a spent budget pauses the run and takes its TPU at the next tick, with the shard in hand', async () => {
    const world = await aWorldWith({budget_usd: 6 * USD_PER_MINUTE});
    await world.untilAsleep(20);
    const run = (await world.run('my-run')) ?? assert.fail();
    assert.equal(run.status, 'paused');
    assert.match(
      run.reason ?? '',
      /budget allows no more: \$0\.\d\d of \$1\.08 are spent, and \$0\.54 are kept for .*; configure a larger/,
    );
    assert.ok(
      run.spent_usd >= 3 * USD_PER_MINUTE && run.spent_usd <= 7 * USD_PER_MINUTE,
      String(run.spent_usd),
    );
    assert.deepEqual(
      (await world.store.query('workers')).map(({data}) => data.phase),
      ['gone'],
    );

    world.control({action: 'resume', run: 'my-run'});
    await world.untilAsleep(20);
    assert.equal((await world.run('my-run'))?.status, 'paused', 'without more money it is paused again');
    assert.equal(world.tpus.made.length, 1, 'and no TPU is made for it');

    world.control({action: 'configure', run: 'my-run', budget_usd: 100});
    world.control({action: 'resume', run: 'my-run'});
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(60));
  });

  for (const delete_s of [0, 60, 120])
    for (const [whose, slots] of [
      ['run', 1],
      ['run', 20],
      ['pool', 20],
    ] as const)
      it(`${slots} TPUs that take ${delete_s} s to delete pass the budget of their ${whose} by a tick at most`, async () => {
        const world = new World({
          ...ONE_SLOT,
          GLEANER_WORKERS_PER_ZONE: String(slots),
          GLEANER_STALL_S: '86400',
          ...(whose === 'pool' ? {GLEANER_BUDGET_USD: String(slots)} : {}),
        });
        deleteIn(world, delete_s);
        if (whose === 'run') world.objects.put('datasets/my-run/run.json', `{"budget_usd": ${slots}}`);
        for (let index = 0; index < slots; index++) world.drop('my-run', index, someLines(60));
        await world.minutes(4, 0);
        assert.equal(world.agents.size, slots);
        await world.minutes(16, 0);
        assert.ok(world.isAsleep(), await world.describe());
        const {spent_usd} = (await world.run('my-run')) ?? assert.fail();
        assert.equal((await world.store.get('pools/tpu'))?.spent_usd, spent_usd);
        assert.ok(spent_usd <= slots * (1 + 1.05 * USD_PER_MINUTE), `$${spent_usd} of $${slots}`);
        assert.ok(spent_usd >= slots * (1 - 3 * USD_PER_MINUTE), `$${spent_usd} of $${slots}`);
      });

  it('a budget that does not pay for the end of a TPU makes none, and says why', async () => {
    const world = new World(ONE_SLOT);
    world.objects.put('datasets/my-run/run.json', JSON.stringify({budget_usd: 2.9 * USD_PER_MINUTE}));
    world.drop('my-run', 0, someLines(2));
    await world.untilAsleep(5);
    assert.match(
      (await world.run('my-run'))?.reason ?? '',
      /: \$0\.00 of \$0\.52 are spent, and \$0\.54 are kept/,
    );
    assert.deepEqual(world.tpus.made, []);
  });

  it('makes no more TPUs than the budget pays the end of, and another run has the other slots', async () => {
    const world = new World({...ONE_SLOT, GLEANER_WORKERS_PER_ZONE: '5'});
    const run_json = {budget_usd: 8 * USD_PER_MINUTE, priority: 1};
    world.objects.put('datasets/my-run/run.json', JSON.stringify(run_json));
    for (let index = 0; index < 9; index++) world.drop('my-run', index, someLines(2));
    await world.deliverAll();
    assert.deepEqual(world.tpus.made, ['tpu-us-central1-a-0#1', 'tpu-us-central1-a-1#1']);
    world.drop('other', 0, someLines(2));
    await world.deliverAll();
    assert.equal((await world.worker('tpu-us-central1-a-2'))?.charged_to, 'other');
    assert.equal(world.tpus.made.length, 3);
  });

  it('a budget pays for TPUs that never come to work for it, and ends them', async () => {
    const world = new World({...ONE_SLOT, GLEANER_BOOT_S: '120'});
    world.objects.put('datasets/my-run/run.json', JSON.stringify({budget_usd: 12 * USD_PER_MINUTE}));
    world.drop('my-run', 0, someLines(2));
    // Nodes come and go, and nothing boots on them.
    world.settle = () => world.tpus.settle();
    await world.untilAsleep(240);
    const run = (await world.run('my-run')) ?? assert.fail();
    assert.equal(run.status, 'paused', await world.describe());
    assert.ok(run.spent_usd >= 9 * USD_PER_MINUTE && run.spent_usd <= 13 * USD_PER_MINUTE);
    assert.ok(world.tpus.made.length > 1);
  });

  it('a TPU that boots for a run that has ended meanwhile is there for the next, at the expense of that', async () => {
    const world = new World({...ONE_SLOT, GLEANER_BOOT_S: '900'});
    world.objects.put('datasets/my-run/run.json', JSON.stringify({priority: 1}));
    world.drop('my-run', 0, someLines(2));
    world.drop('other', 0, someLines(2));
    world.settle = () => world.tpus.settle();
    await world.minutes(3);
    const worker = async () => (await world.worker('tpu-us-central1-a-0')) ?? assert.fail();
    assert.deepEqual([(await worker()).phase, (await worker()).charged_to], ['booting', 'my-run']);
    world.control({action: 'stop', run: 'my-run'});
    await world.minutes(2);
    assert.deepEqual([(await worker()).incarnation, (await worker()).charged_to], [1, 'other']);
    assert.ok(
      (await world.timeline('worker')).some(text => /is there for other now: my-run needs/.test(text)),
    );
  });

  it('what is spent after its end is in the cost of a run too', async () => {
    const world = await aWorldWith({});
    await world.until('the end', async () => (await world.run('my-run'))?.status === 'completed', 40);
    const then = (await world.run('my-run')) ?? assert.fail();
    await world.untilAsleep();
    const {cost_usd, spent_usd} = (await world.run('my-run')) ?? assert.fail();
    assert.deepEqual([cost_usd, cost_usd > then.cost_usd], [spent_usd, true]);
  });

  it('a deployment changes its pool, but for what messages have changed', async () => {
    const world = await aWorldWith({});
    await world.untilAsleep();
    const spent_usd = Number((await world.store.get('pools/tpu'))?.spent_usd);
    assert.ok(spent_usd > 0);
    world.redeploy({GLEANER_ACCELERATOR: 'v5litepod-8', GLEANER_BUDGET_USD: '7'});
    const pool = () => poolRecords.get(world.store, world.deps.config.pool);
    const {accelerator, budget_usd, ...more} = await pool();
    assert.deepEqual([accelerator, budget_usd, more.spent_usd], ['v5litepod-8', 7, spent_usd]);
    world.control({action: 'scale', budget_usd: 9});
    await world.deliverAll();
    world.redeploy({GLEANER_ACCELERATOR: 'v5litepod-16', GLEANER_BUDGET_USD: '8'});
    const now = await pool();
    assert.deepEqual([now.accelerator, now.budget_usd], ['v5litepod-16', 9]);
  });

  it("a pool's budget holds for all its runs together", async () => {
    const world = await aWorldWith({}, {GLEANER_BUDGET_USD: String(6 * USD_PER_MINUTE)});
    await world.untilAsleep(20);
    world.drop('other', 0, someLines(2));
    await world.untilAsleep(20);
    for (const run of ['my-run', 'other']) {
      const found = (await world.run(run)) ?? assert.fail();
      assert.equal(found.status, 'paused');
      assert.match(found.reason ?? '', /of the pool/);
    }
    assert.equal(world.tpus.made.length, 1);
  });

  it('a TPU is charged from its creation on where its zone did not answer for hours @full', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(2));
    await world.deliverAll();
    world.tpus.unreachable.add('us-central1-a');
    world.settle = () => world.tpus.settle();
    await world.minutes(180);
    world.tpus.unreachable.clear();
    world.control({action: 'stop', run: 'my-run'});
    await world.untilAsleep(9);
    await assertHoursBilled(world, 3);
  });

  it('a TPU is charged from its creation on where no tick ran for hours', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(2));
    await world.deliverAll();
    world.tpus.settle();
    world.now += 3 * 3_600_000;
    await world.minutes(1, 0);
    world.control({action: 'stop', run: 'my-run'});
    await world.untilAsleep(9);
    await assertHoursBilled(world, 3);
  });

  it('a TPU that comes after its slot was gone is paid for by the run that it was made for', async () => {
    const world = await aWorldWith({});
    const node = structuredClone(world.tpus.node(SLOT));
    await world.untilAsleep();
    const spent = (await world.run('my-run'))?.spent_usd ?? assert.fail();
    world.tpus.nodes.set(SLOT, {...node, state: 'READY', created_at: new Date(world.now).toISOString()});
    world.now += 5 * 3_600_000;
    world.tickerOn = true;
    await world.untilAsleep(9);
    await assertHoursBilled(world, 5, spent);
  });

  it('a bucket that takes no orders keeps no spent run going, and has them when it takes them again', async () => {
    const world = new World({...ONE_SLOT, GLEANER_WORKERS_PER_ZONE: '3'});
    const runs = ['a', 'b', 'c'];
    for (const run of runs) {
      world.objects.put(`datasets/${run}/run.json`, JSON.stringify({budget_usd: 6 * USD_PER_MINUTE}));
      world.drop(run, 0, someLines(60));
    }
    await world.until('work', () => world.agents.size === 3, 9, 1);
    const {create} = world.deps.objects;
    world.deps.objects.create = async (name, ...more) => {
      if (name.includes('orders')) throw new Error('503 Service Unavailable');
      return create(name, ...more);
    };
    const statuses = () => Promise.all(runs.map(async run => (await world.run(run))?.status));
    for (let minute = 0; !(await statuses()).includes('paused'); minute++) {
      assert.ok(minute < 9);
      await world.minute(0).catch(error => assert.match(String(error), /503/));
    }
    assert.deepEqual(await statuses(), ['paused', 'paused', 'paused']);
    const phases = (await world.store.query('workers')).map(({data}) => data.phase);
    assert.deepEqual(phases, ['deleting', 'deleting', 'deleting']);
    for (let minute = 0; minute < 5; minute++) await assert.rejects(world.minute(0), /503/);
    assert.equal(world.tpus.nodes.size, 0);
    world.deps.objects.create = create;
    await world.untilAsleep(5);
    for (const run of runs)
      assert.match(world.objects.text(`activations/${run}/orders.json`), /"status": "paused"/);
  });

  it('a TPU costs what is asked for, also where that was deployed after it was decided', async () => {
    const world = new World(ONE_SLOT);
    world.objects.put('datasets/my-run/run.json', JSON.stringify({budget_usd: 100}));
    world.drop('my-run', 0, someLines(2));
    while (world.asked().length === 0) await world.deliverNext('object');
    assert.equal((await world.worker(SLOT))?.usd_per_hour, USD_PER_HOUR);
    world.redeploy({GLEANER_ACCELERATOR: 'v6e-16'});
    await world.until('a node', () => world.tpus.made.length > 0, 9, 1);
    assert.equal((await world.worker(SLOT))?.usd_per_hour, 2 * USD_PER_HOUR);
    assert.deepEqual(world.tpus.made, [`${SLOT}#2`]);
    assert.match(
      (await world.timeline('worker')).join(),
      /is not created: its price an hour is \$21.6 now, and was \$10.8/,
    );
    await world.untilAsleep();
  });

  it('and is not made where the budget does not pay for that', async () => {
    const world = new World(ONE_SLOT);
    world.objects.put('datasets/my-run/run.json', JSON.stringify({budget_usd: 4 * USD_PER_MINUTE}));
    world.drop('my-run', 0, someLines(2));
    while (world.asked().length === 0) await world.deliverNext('object');
    world.redeploy({GLEANER_ACCELERATOR: 'v6e-16'});
    await world.untilAsleep(9);
    assert.deepEqual(world.tpus.made, []);
    assert.equal((await world.run('my-run'))?.status, 'paused');
  });

  it('what nobody knows the price of is not made for a run with a budget', async () => {
    const world = new World({...ONE_SLOT, GLEANER_ACCELERATOR: 'v9-8'});
    world.objects.put('datasets/my-run/run.json', '{"budget_usd": 5}');
    world.drop('my-run', 0, someLines(2));
    await world.untilAsleep(20);
    assert.match((await world.run('my-run'))?.reason ?? '', /set prices\/chips/);
    assert.deepEqual(world.tpus.made, []);
  });

  it('what becomes known of the price of a TPU that is there counts from when it was READY', async () => {
    const world = await aWorldWith({}, {GLEANER_ACCELERATOR: 'v9-8', GLEANER_STALL_S: '86400'});
    await world.minutes(9, 0);
    const price = {'v9-8': {usd: 60, spot_usd: 60}};
    await world.store.transaction(async tx => tx.set('prices/chips', price));
    world.control({action: 'configure', run: 'my-run', budget_usd: 5});
    await world.minutes(3, 0);
    const run = (await world.run('my-run')) ?? assert.fail();
    assert.equal(run.status, 'paused');
    assert.ok(run.cost_usd >= 9, String(run.cost_usd));
    assert.match((await world.timeline('worker')).join(), /costs \$60 an hour, as is known now/);
  });

  it('a pool whose budget is spent says that the pool is to be scaled', async () => {
    const world = await aWorldWith({}, {GLEANER_BUDGET_USD: '0.9', GLEANER_STALL_S: '86400'});
    await world.until('the pause', async () => (await world.run('my-run'))?.status === 'paused', 9, 1);
    assert.match((await world.run('my-run'))?.reason ?? '', /scale it to a larger budget_usd, then resume/);
  });

  it('prices/chips overrides the list entry by entry, and what is wrong with one is logged', async () => {
    const good = {usd: 9, spot_usd: 2};
    for (const [given, usd_per_hour, logged] of [
      [{v6e: good}, 16, /^$/],
      [{v6e: 'cheap'}, null, /chips v6e is not valid: .*Nobody knows the price of v6e: write \{"usd"/],
      [{v6e: {usd: 9, spot_usd: '2'}, v5p: good}, null, /v6e is not valid: spot_usd: .*write \{"usd"/],
      [{v6e: good, 'v6e@us-central1': {usd: 9}}, null, /v6e@us-central1 is not valid: spot_usd/],
      [{v6e: good, v5p: {}}, 16, /v5p is not valid/],
      [{v6e: good, updated_at: '2026-01-01T00:00:00.000Z'}, 16, /has "updated_at", which has no price/],
      [{v5e: good}, USD_PER_HOUR, /has "v5e", which has no price: write .*v5e is v5litepod/],
      [{'V6E-8': good}, USD_PER_HOUR, /has "V6E-8"/],
      [{'v6e@us-central1-a': good}, USD_PER_HOUR, /has "v6e@us-central1-a"/],
      [{'v6e-8@us-central1': {usd: 9, spot_usd: 5}, v6e: good}, 5, /^$/],
    ] as const) {
      const world = new World(ONE_SLOT);
      await world.store.transaction(async tx => tx.set('prices/chips', given));
      world.drop('my-run', 0, someLines(2));
      await world.until('a worker', async () => (await world.worker('tpu-us-central1-a-0')) !== undefined, 9);
      assert.equal((await world.worker('tpu-us-central1-a-0'))?.usd_per_hour, usd_per_hour);
      assert.match(world.logs.map(({message}) => message).join(), logged);
    }
  });

  it('a price of its TPUs that cannot be read is none that a budget can be held against', async () => {
    const world = new World(ONE_SLOT);
    await world.store.transaction(async tx => tx.set('prices/chips', {v6e: {usd: 9, spot_usd: '2'}}));
    world.objects.put('datasets/my-run/run.json', '{"budget_usd": 5}');
    world.drop('my-run', 0, someLines(2));
    await world.untilAsleep(20);
    assert.match((await world.run('my-run'))?.reason ?? '', /set prices\/chips/);
    assert.deepEqual(world.tpus.made, []);
  });
});
