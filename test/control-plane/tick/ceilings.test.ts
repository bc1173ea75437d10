import assert from 'node:assert/strict';
import {LIST_PRICES} from '../../../shared/domain/billing/list-prices.ts';
import type {Filter} from '../../../shared/ports/ports.ts';
import {aStoringFleet} from '../../world/scenes/lost-store.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

const TWO = {GLEANER_ZONES: 'us-central1-a', GLEANER_WORKERS_PER_ZONE: '2', GLEANER_MAX_WORKERS: '2'};
const usdPerMinute = (region: string) => (LIST_PRICES[`v5litepod@${region}`]?.spot_usd ?? Number.NaN) / 60;
const USD_PER_MINUTE = usdPerMinute('us-central1');

function dropStreams(world: World, count: number, lines: number, run = 'my-run'): void {
  for (let index = 0; index < count; index++) world.drop(run, index, someLines(lines));
}

async function send(world: World, message: object) {
  const id = await world.order(message);
  const record = await world.store.get(`control/${id}`);
  return {outcome: record?.outcome, reason: String(record?.reason)};
}

describe('a ceiling of the deployment', () => {
  it('limits a pool document that was edited by hand: no more TPUs than GLEANER_MAX_WORKERS', async () => {
    const world = new World(TWO);
    dropStreams(world, 6, 20);
    assert.match((await send(world, {action: 'scale', workers_per_zone: 3})).reason, /GLEANER_MAX_WORKERS/);
    await send(world, {action: 'scale', workers_per_zone: 1});
    await world.edit('pools/tpu', {workers_per_zone: 1000});
    await world.minutes(5, 1);
    assert.equal(world.tpus.nodes.size, 2);
  });

  it('limits a pool document that names another zone: no TPU outside GLEANER_ALLOWED_ZONES', async () => {
    const world = new World({...TWO, GLEANER_ALLOWED_ZONES: 'us-central1-a'});
    assert.match(
      (await send(world, {action: 'scale', zones: ['us-east1-c']})).reason,
      /GLEANER_ALLOWED_ZONES/,
    );
    await send(world, {action: 'scale', workers_per_zone: 1});
    await world.edit('pools/tpu', {zones: ['us-east1-c', 'us-central1-a']});
    dropStreams(world, 4, 20);
    await world.minutes(5, 1);
    assert.deepEqual([...world.tpus.nodes.keys()], ['tpu-us-central1-a-0']);
  });

  it('counts the TPUs of a zone that the pool has left until they are gone', async () => {
    const world = new World(TWO);
    dropStreams(world, 6, 40);
    await world.until('two', () => world.tpus.nodes.size === 2, 9, 1);
    await send(world, {action: 'scale', zones: ['europe-west4-b']});
    for (let minute = 0; minute < 20; minute++) {
      await world.minute(1);
      assert.ok(world.tpus.nodes.size <= 2, JSON.stringify(world.tpus.states()));
    }
    assert.ok(
      [...world.tpus.nodes.keys()].some(name => name.includes('europe')),
      'they were replaced',
    );
  });

  // Pays for the three minutes that each of two deletes in Europe takes, and for no third delete.
  const usd = 6.2 * usdPerMinute('europe-west4');
  for (const {what, settings, spec} of [
    {what: 'GLEANER_MAX_WORKERS allows', settings: {}, spec: undefined},
    {what: 'the budget of a run pays for', settings: {}, spec: {budget_usd: usd}},
    {what: 'the budget of the pool pays for', settings: {GLEANER_BUDGET_USD: usd}, spec: undefined},
    {what: 'the budget of the month pays for', settings: {GLEANER_MAX_BUDGET_USD: usd}, spec: undefined},
  ])
    it(`holds for two ticks at once, one of them with an older pool: no more TPUs than ${what}`, async () => {
      const isCeiling = what.startsWith('GLEANER');
      const money = Object.fromEntries(
        Object.entries(settings).map(([name, value]) => [name, String(value)]),
      );
      const world = new World({...TWO, ...(isCeiling ? {} : {GLEANER_MAX_WORKERS: '100'}), ...money});
      if (spec) world.objects.put('datasets/my-run/run.json', JSON.stringify(spec));
      await send(world, {action: 'scale', workers_per_zone: 0});
      dropStreams(world, 4, 20);
      await world.deliverAll();
      await world.edit('pools/tpu', {workers_per_zone: 2});
      const other = {...world.deps};
      const {store} = world.deps;
      let isFirst = true;
      world.deps.store = {
        ...store,
        count: async (collection: string, where?: Filter[]) => {
          // The plan has read the pool, the zones and the workers, and asks for its nodes after this.
          if (collection.endsWith('/streams') && isFirst) {
            isFirst = false;
            const slow = world.deps;
            world.deps = other;
            await world.edit('pools/tpu', {zones: ['europe-west4-b']});
            await world.tick();
            world.deps = slow;
          }
          return store.count(collection, where);
        },
      };
      world.now += 60_000;
      await world.tick();
      assert.equal(isFirst, false);
      const creating = {field: 'phase', op: '==', value: 'creating'} as const;
      const workers = await world.store.query('workers', {where: [creating]});
      assert.deepEqual(workers.map(({id}) => id).sort(), ['tpu-europe-west4-b-0', 'tpu-europe-west4-b-1']);
    });

  it('of dollars a month, when spent, pauses every run, ends its TPUs and creates none again', async () => {
    const world = new World({...TWO, GLEANER_MAX_BUDGET_USD: String(20 * USD_PER_MINUTE)});
    dropStreams(world, 2, 400);
    await world.untilAsleep(60);
    const run = (await world.run('my-run')) ?? assert.fail();
    assert.equal(run.status, 'paused');
    assert.match(run.reason ?? '', /of the deployment's month, .*raise GLEANER_MAX_BUDGET_USD/);
    const spending = await world.store.get('system/spending');
    const months = spending?.months as Record<string, number>;
    assert.ok(Math.abs((months['2026-01'] ?? 0) - run.spent_usd) < 1e-9, JSON.stringify(months));
    // The unused part of the reserve for deleting may pay for a further node.
    for (let again = 0; again < 5; again++) {
      await send(world, {action: 'resume', run: 'my-run'});
      await send(world, {action: 'scale', budget_usd: 1e6});
      await world.untilAsleep(20);
      assert.equal((await world.run('my-run'))?.status, 'paused');
    }
    const made = [...world.tpus.made];
    await send(world, {action: 'resume', run: 'my-run'});
    await world.minutes(3, 1);
    assert.deepEqual(world.tpus.made, made);
    const {spent_usd = Number.NaN} = (await world.run('my-run')) ?? {};
    assert.ok(spent_usd <= 20 * USD_PER_MINUTE, `${spent_usd / USD_PER_MINUTE} minutes`);
  });

  it('of dollars a month goes on after a message has corrected the month, also after its ticks', async () => {
    const world = new World({...TWO, GLEANER_MAX_BUDGET_USD: String(20 * USD_PER_MINUTE)});
    dropStreams(world, 2, 40);
    await world.edit('system/spending', {months: {'2026-01': 1000}, copied_at: null, budget_notice: null});
    await world.untilAsleep(60);
    assert.equal((await world.run('my-run'))?.status, 'paused');
    const {outcome, reason} = await send(world, {action: 'correct', month: '2026-01', usd: 0});
    assert.deepEqual(
      [outcome, reason],
      ['applied', 'the dollars of ended TPUs and of network in 2026-01 are 0, and were 1000'],
    );
    await send(world, {action: 'resume', run: 'my-run'});
    await world.untilAsleep(60);
    assert.equal((await world.run('my-run'))?.status, 'completed');
    const {months} = (await world.store.get('system/spending')) ?? {};
    const {'2026-01': usd = Number.NaN} = months as Record<string, number>;
    assert.ok(usd < 1, String(usd));
  });

  it('of dollars a month is not spent twice when the database is lost', async () => {
    const world = new World({...TWO, GLEANER_MAX_BUDGET_USD: String(20 * USD_PER_MINUTE)});
    dropStreams(world, 2, 400);
    await world.untilAsleep(60);
    const months = async () => (await world.store.get('system/spending'))?.months as Record<string, number>;
    const {'2026-01': before = Number.NaN} = await months();
    const made = [...world.tpus.made];
    await world.wipe();
    dropStreams(world, 2, 400, 'other');
    await world.minutes(5, 1);
    const {'2026-01': after = Number.NaN} = await months();
    assert.ok(Math.abs(after - before) <= 0.01 + before / 100, `${before} before, ${after} after`);
    assert.equal((await world.run('other'))?.status, 'paused');
    assert.ok(world.tpus.made.length <= made.length + 1, String(world.tpus.made));
  });

  it('of dollars a month counts a TPU once that outlives a lost database', async () => {
    const world = await aStoringFleet(1, {GLEANER_MAX_BUDGET_USD: '1000', GLEANER_STALL_S: '86400'});
    const created_at = world.now;
    await world.minutes(60, 0);
    await world.wipe();
    await world.until('the end of the orphan', () => world.tpus.nodes.size === 0, 9, 0);
    await world.untilAsleep();
    const {months} = (await world.store.get('system/spending')) ?? {};
    const {'2026-01': usd = Number.NaN} = months as Record<string, number>;
    const [minutes, least] = [usd / USD_PER_MINUTE, (world.now - created_at) / 60_000 - 10];
    assert.ok(minutes > least && minutes < least + 20, `${minutes} minutes of a TPU, and at least ${least}`);
  });

  it('of dollars a month is not spent twice when its document comes from a backup', async () => {
    const world = new World({...TWO, GLEANER_MAX_BUDGET_USD: String(20 * USD_PER_MINUTE)});
    dropStreams(world, 2, 400);
    await world.untilAsleep(60);
    const spending = () => world.store.get('system/spending');
    const before = await spending();
    await world.edit('system/spending', {months: {'2026-01': 2 * USD_PER_MINUTE}});
    await world.tick();
    assert.deepEqual((await spending())?.months, before?.months);
    await send(world, {action: 'resume', run: 'my-run'});
    await world.untilAsleep(30);
    const {status, spent_usd = Number.NaN} = (await world.run('my-run')) ?? {};
    assert.equal(status, 'paused');
    assert.ok(spent_usd <= 20 * USD_PER_MINUTE, `${spent_usd / USD_PER_MINUTE} minutes`);
  });

  it('of dollars a month keeps its TPUs while its document is left alone, and creates no other', async () => {
    const world = new World({...TWO, GLEANER_MAX_BUDGET_USD: String(1000 * USD_PER_MINUTE)});
    dropStreams(world, 2, 400);
    await world.until('work', () => world.agents.size === 2, 9, 1);
    await world.edit('system/spending', {months: {'2026-01': 'much'}});
    await world.minutes(5, 1);
    const [lost = '', kept = ''] = [...world.tpus.nodes.keys()];
    world.preempt(lost);
    await world.minutes(5, 1);
    assert.deepEqual([[...world.tpus.nodes.keys()], world.tpus.made.length], [[kept], 2]);
    await world.edit('system/spending', {months: {'2026-01': 0}});
    await world.until('another node', () => world.tpus.made.length === 3, 9, 1);
  });

  it('of dollars a month begins anew in the next month', async () => {
    const world = new World({...TWO, GLEANER_MAX_BUDGET_USD: String(20 * USD_PER_MINUTE)});
    dropStreams(world, 2, 60);
    await world.untilAsleep(60);
    assert.equal((await world.run('my-run'))?.status, 'paused');
    world.now = Date.parse('2026-02-01T00:00:01.000Z');
    await send(world, {action: 'resume', run: 'my-run'});
    await world.until('work goes on', () => world.tpus.nodes.size > 0, 9, 1);
  });

  it('of model sources fails a run of another source, and the reason names the variable', async () => {
    const world = new World({...TWO, GLEANER_MODEL_SOURCES: 'hub:Qwen/'});
    world.objects.put('datasets/my-run/run.json', '{"model": "gs://private/model"}');
    dropStreams(world, 1, 4);
    await world.deliverAll();
    const run = (await world.run('my-run')) ?? assert.fail();
    assert.deepEqual([run.status, run.spec], ['failed', null]);
    assert.match(run.reason ?? '', /run.json: model "gs:\/\/private\/model" .*GLEANER_MODEL_SOURCES/);
  });

  it('of workers without the internet fails a run of a hub model before any TPU, and names the copy', async () => {
    const world = new World({...TWO, GLEANER_INTERNET: 'false'});
    world.objects.put('datasets/my-run/run.json', '{"model": "Qwen/Qwen2.5-0.5B"}');
    dropStreams(world, 1, 4);
    await world.deliverAll();
    const run = (await world.run('my-run')) ?? assert.fail();
    assert.equal(run.status, 'failed');
    assert.match(run.reason ?? '', /GLEANER_INTERNET.*`gleaner models mirror Qwen\/Qwen2\.5-0\.5B`/);
    assert.equal(world.tpus.nodes.size, 0);
  });

  it('of model sources pauses a run that it excludes before any lease', async () => {
    const world = new World(TWO);
    world.objects.put('datasets/my-run/run.json', '{"model": "other/model"}');
    dropStreams(world, 1, 4);
    await world.deliverAll();
    world.redeploy({GLEANER_MODEL_SOURCES: 'hub:Qwen/'});
    await world.untilAsleep(20);
    const run = (await world.run('my-run')) ?? assert.fail();
    assert.equal(run.status, 'paused');
    assert.match(run.reason ?? '', /model "other\/model"/);
    assert.equal((await world.stream('my-run', '000'))?.epoch, 0);
  });
});
