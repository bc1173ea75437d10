import assert from 'node:assert/strict';
import {aPricedRun, ONE_SLOT, SLOT, USD_PER_MINUTE} from '../../world/scenes/priced-run.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

describe('a budget', () => {
  it('that is spent pauses its run and ends its TPU at the next tick, with the shard in hand', async () => {
    const world = await aPricedRun({budget_usd: 6 * USD_PER_MINUTE});
    await world.untilAsleep(20);
    const run = (await world.run('my-run')) ?? assert.fail();
    assert.equal(run.status, 'paused');
    assert.match(
      run.reason ?? '',
      /budget allows no more: \$0\.\d\d of \$0\.44 are spent, and \$0\.22 are kept for .*; configure a larger/,
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
    assert.equal(world.tpus.made.length, 1, 'and no TPU is created for it');

    const since_at = (await world.run('my-run'))?.paused_at ?? assert.fail('no time of the pause');
    world.control({action: 'configure', run: 'my-run', budget_usd: 0.45});
    await world.untilAsleep(20);
    assert.match(
      (await world.run('my-run'))?.reason ?? '',
      /\$0\.\d\d of \$0\.45 are spent/,
      'the new figures',
    );
    world.control({action: 'configure', run: 'my-run', budget_usd: 100});
    await world.untilAsleep(20);
    const raised = (await world.run('my-run')) ?? assert.fail();
    assert.deepEqual([raised.status, raised.paused_at], ['paused', since_at]);
    assert.doesNotMatch(raised.reason ?? '', /\$/, 'a larger budget leaves no old figures');
    world.control({action: 'resume', run: 'my-run'});
    await world.untilStoredOnce('my-run', '000', someLines(60));
  });

  for (const delete_s of [0, 60, 120])
    for (const [whose, slots] of [
      ['run', 1],
      ['run', 20],
      ['pool', 20],
    ] as const)
      it(`of a ${whose} is passed by a tick at most, with ${slots} TPUs that take ${delete_s} s to delete`, async () => {
        const world = new World({
          ...ONE_SLOT,
          GLEANER_WORKERS_PER_ZONE: String(slots),
          GLEANER_STALL_S: '86400',
          ...(whose === 'pool' ? {GLEANER_BUDGET_USD: String(slots)} : {}),
        });
        if (whose === 'run') world.objects.put('datasets/my-run/run.json', `{"budget_usd": ${slots}}`);
        for (let index = 0; index < slots; index++) world.drop('my-run', index, someLines(60));
        await world.minutes(4, 0);
        assert.equal(world.agents.size, slots);
        world.tpuFaults.chance.between = () => delete_s;
        await world.minutes(16, 0);
        assert.ok(await world.isAsleep(), await world.describe());
        const {spent_usd} = (await world.run('my-run')) ?? assert.fail();
        assert.equal((await world.store.get('pools/tpu'))?.spent_usd, spent_usd);
        assert.ok(spent_usd <= slots * (1 + 1.05 * USD_PER_MINUTE), `$${spent_usd} of $${slots}`);
        assert.ok(spent_usd >= slots * (1 - 3 * USD_PER_MINUTE), `$${spent_usd} of $${slots}`);
      });

  it('that does not pay for the end of a TPU creates none, and the reason of the run says so', async () => {
    const world = new World(ONE_SLOT);
    world.objects.put('datasets/my-run/run.json', JSON.stringify({budget_usd: 2.9 * USD_PER_MINUTE}));
    world.drop('my-run', 0, someLines(2));
    await world.untilAsleep(5);
    assert.match(
      (await world.run('my-run'))?.reason ?? '',
      /: \$0\.00 of \$0\.21 are spent, and \$0\.22 are kept/,
    );
    assert.deepEqual(world.tpus.made, []);
  });

  it('creates no more TPUs than it pays the end of, and another run gets the other slots', async () => {
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

  it('creates no TPU from a plan that missed the bill of a TPU which ended while it was made', async () => {
    const world = new World(ONE_SLOT);
    await world.order({action: 'scale', budget_usd: 6 * USD_PER_MINUTE});
    world.drop('my-run', 0, someLines(2));
    while (await world.deliverNext('object'));
    const {store} = world.deps;
    const {query} = store;
    let arePoolsRead = false;
    store.query = async (name, given) => {
      arePoolsRead ||= name === 'pools';
      // Another tick ends a TPU now.
      if (arePoolsRead && name === 'workers') {
        store.query = query;
        await world.edit('pools/tpu', {spent_usd: 5 * USD_PER_MINUTE});
      }
      return query(name, given);
    };
    await world.tick();
    assert.equal(await world.worker(SLOT), undefined);
    await world.deliverAll();
    assert.deepEqual(world.tpus.made, []);
    assert.match((await world.run('my-run'))?.reason ?? '', /of the pool, \$0\.36 of \$0\.44 are spent/);
  });

  it('pays for TPUs that never work for its run, and ends them', async () => {
    const world = new World({...ONE_SLOT, GLEANER_BOOT_S: '120'});
    world.objects.put('datasets/my-run/run.json', JSON.stringify({budget_usd: 12 * USD_PER_MINUTE}));
    world.drop('my-run', 0, someLines(2));
    // Nodes come and go, and nothing boots on them.
    world.settle = () => world.settleTpus();
    await world.untilAsleep(240);
    const run = (await world.run('my-run')) ?? assert.fail();
    assert.equal(run.status, 'paused', await world.describe());
    assert.ok(run.spent_usd >= 9 * USD_PER_MINUTE && run.spent_usd <= 13 * USD_PER_MINUTE);
    assert.ok(world.tpus.made.length > 1);
  });

  it('of a pool counts all its runs together', async () => {
    const world = await aPricedRun({}, {GLEANER_BUDGET_USD: String(6 * USD_PER_MINUTE)});
    await world.untilAsleep(20);
    world.drop('other', 0, someLines(2));
    await world.untilAsleep(20);
    for (const run of ['my-run', 'other']) {
      const found = (await world.run(run)) ?? assert.fail();
      assert.equal(found.status, 'paused');
      assert.match(found.reason ?? '', /of the pool.*scale it to a larger budget_usd, then resume/);
    }
    assert.equal(world.tpus.made.length, 1);
  });

  it('that does not pay for a type deployed after the plan creates no TPU of it', async () => {
    const world = new World(ONE_SLOT);
    world.objects.put('datasets/my-run/run.json', JSON.stringify({budget_usd: 4 * USD_PER_MINUTE}));
    world.drop('my-run', 0, someLines(2));
    while (await world.deliverNext('object'));
    await world.tick();
    assert.deepEqual(world.asked(), [`create ${SLOT}#1`]);
    world.redeploy({GLEANER_ACCELERATOR: 'v6e-16'});
    await world.untilAsleep(9);
    assert.deepEqual(world.tpus.made, []);
    assert.equal((await world.run('my-run'))?.status, 'paused');
  });

  for (const {name, set, prices} of [
    {name: 'of an unknown price', set: {GLEANER_ACCELERATOR: 'v9-8'}, prices: undefined},
    {name: 'whose price in prices/chips is invalid', set: {}, prices: {v6e: {usd: 9, spot_usd: '2'}}},
  ])
    it(`pays for no TPU ${name}`, async () => {
      const world = new World({...ONE_SLOT, ...set});
      if (prices) await world.store.transaction(async tx => tx.set('prices/chips', prices));
      world.objects.put('datasets/my-run/run.json', '{"budget_usd": 5}');
      world.drop('my-run', 0, someLines(2));
      await world.untilAsleep(20);
      assert.match((await world.run('my-run'))?.reason ?? '', /set prices\/chips/);
      assert.deepEqual(world.tpus.made, []);
    });
});
