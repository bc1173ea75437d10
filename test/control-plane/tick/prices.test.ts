import assert from 'node:assert/strict';
import {poolRecords} from '../../../shared/control-plane/documents/documents.ts';
import {totalOf} from '../../../shared/domain/billing/cost.ts';
import {aCatalog, chipSkus} from '../../world/catalog.ts';
import {aPricedRun, ONE_SLOT, SLOT, USD_PER_HOUR} from '../../world/scenes/priced-run.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

describe('the prices of TPUs', () => {
  it('come from the type that is deployed; the settings of a message stay', async () => {
    const world = await aPricedRun({});
    await world.untilAsleep();
    const spent_usd = Number((await world.store.get('pools/tpu'))?.spent_usd);
    assert.ok(spent_usd > 0);
    world.redeploy({GLEANER_ACCELERATOR: 'v5litepod-8', GLEANER_BUDGET_USD: '7'});
    const pool = () => poolRecords.get(world.store, world.deps.config.pool);
    const {accelerator, budget_usd, ...more} = await pool();
    assert.deepEqual([accelerator, budget_usd, more.spent_usd], ['v5litepod-8', 7, spent_usd]);
    await world.order({action: 'scale', budget_usd: 9});
    world.redeploy({GLEANER_ACCELERATOR: 'v5litepod-16', GLEANER_BUDGET_USD: '8'});
    const now = await pool();
    assert.deepEqual([now.accelerator, now.budget_usd], ['v5litepod-16', 9]);
  });

  it('are those of the type that is created, also where it was deployed after the plan', async () => {
    const world = new World(ONE_SLOT);
    world.objects.put('datasets/my-run/run.json', JSON.stringify({budget_usd: 100}));
    world.drop('my-run', 0, someLines(2));
    while (await world.deliverNext('object'));
    await world.tick();
    assert.deepEqual(world.asked(), [`create ${SLOT}#1`]);
    assert.equal((await world.worker(SLOT))?.usd_per_hour, USD_PER_HOUR);
    world.redeploy({GLEANER_ACCELERATOR: 'v6e-4'});
    await world.until('a node', () => world.tpus.made.length > 0, 9, 1);
    assert.equal((await world.worker(SLOT))?.usd_per_hour, USD_PER_HOUR / 2);
    assert.deepEqual(world.tpus.made, [`${SLOT}#1`]);
    const [was, is] = [USD_PER_HOUR, USD_PER_HOUR / 2].map(usd => `$${usd}`);
    const text = (await world.timeline('worker')).join();
    assert.ok(text.includes(`is not created: its price per hour is ${is} and was ${was}`), text);
    await world.untilAsleep();
  });

  it('that change before a create is delivered again leave the node of the first delivery', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(2));
    while (await world.deliverNext('object'));
    await world.tick();
    const create = world.queue.find(({topic}) => topic === 'tpu') ?? assert.fail();
    await world.handle(create);
    world.redeploy({GLEANER_ACCELERATOR: 'v6e-4'});
    await world.handle(create);
    assert.deepEqual(world.tpus.made, [`${SLOT}#1`]);
    assert.equal((await world.worker(SLOT))?.phase, 'creating');
  });

  it('that become known later count from the time when the TPU was READY', async () => {
    const world = await aPricedRun({}, {GLEANER_ACCELERATOR: 'v9-8', GLEANER_STALL_S: '86400'});
    await world.minutes(9, 0);
    const price = {'v9-8': {usd: 60, spot_usd: 60}};
    await world.store.transaction(async tx => tx.set('prices/chips', price));
    world.control({action: 'configure', run: 'my-run', budget_usd: 5});
    await world.minutes(3, 0);
    const run = (await world.run('my-run')) ?? assert.fail();
    assert.equal(run.status, 'paused');
    assert.ok(run.cost_usd >= 9, String(run.cost_usd));
    assert.match((await world.timeline('worker')).join(), /The price of \S+ is known now: \$60 an hour/);
  });

  it('in prices/chips override the list entry by entry, and each invalid entry is logged', async () => {
    const good = {usd: 9, spot_usd: 2};
    for (const [given, usd_per_hour, logged] of [
      [{v6e: good}, 16, /^$/],
      [{v6e: 'cheap'}, null, /chips v6e is not valid: .*The price of v6e is unknown: write \{"usd"/],
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
      const problems = world.logs.filter(({severity}) => severity !== 'INFO');
      assert.match(problems.map(({message}) => message).join(), logged);
    }
  });

  it('of the catalog reach prices/chips once a day, and living TPUs cost the new price from its first hour', async () => {
    const world = await aPricedRun({}, {GLEANER_STALL_S: '86400'});
    await world.minutes(9, 0);
    const before = await livingCost(world);
    assert.ok(before.usd > 0);
    const raised = {usd: 3, spot_usd: (3 * USD_PER_HOUR) / 8};
    const since = new Date(world.now - 300_000).toISOString();
    world.deps.catalog = aCatalog(() => chipSkus('v6e@us-central1', raised, since));
    await world.minutes(5, 0);
    assert.equal((await livingCost(world)).usd_per_hour, USD_PER_HOUR);
    world.now += 86_400_000;
    await world.minutes(2, 0);
    const {usd, usd_per_hour, costs_at, ready_at} = await livingCost(world);
    assert.equal(usd_per_hour?.toFixed(6), (3 * USD_PER_HOUR).toFixed(6));
    const hours = (from: string, to: string) => (Date.parse(to) - Date.parse(from)) / 3_600_000;
    const owed = (hours(ready_at, since) + 3 * hours(since, costs_at)) * USD_PER_HOUR;
    assert.ok(Math.abs(usd - owed) < 1e-6, `$${usd}, and $${owed} are owed`);
    assert.match((await world.timeline('worker')).join(), /costs \$13\.06\d* an hour now, and cost \$4\.35/);
  });

  it('stay for a day where the catalog does not answer, and the task says why', async () => {
    const world = await aPricedRun({});
    const stored = await world.store.get('prices/chips');
    let asked = 0;
    world.deps.catalog = {
      page: async () => {
        asked += 1;
        throw new Error('the catalog answered 503');
      },
    };
    world.now += 86_400_000;
    await world.minutes(9, 0);
    assert.deepEqual([asked, await world.store.get('prices/chips')], [1, stored]);
    assert.equal((await world.store.get('tasks/prices'))?.result, 'failed: the catalog answered 503');
  });
});

async function livingCost(world: World) {
  const {costs, usd_per_hour, costs_at, ready_at} = (await world.worker(SLOT)) ?? assert.fail();
  return {usd: totalOf(costs), usd_per_hour, costs_at: String(costs_at), ready_at: String(ready_at)};
}
