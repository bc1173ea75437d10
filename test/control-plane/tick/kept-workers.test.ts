/** TPUs that a pool keeps without work for a time. */
import assert from 'node:assert/strict';
import {LIST_PRICES} from '../../../shared/domain/billing/list-prices.ts';
import {aWorldOfJobs, jobIn} from '../../world/scenes/jobs.ts';
import {A0, ONE_SLOT} from '../../world/scenes/places.ts';
import {World} from '../../world/world.ts';

const USD = LIST_PRICES['v5litepod@us-central1']?.spot_usd ?? Number.NaN;

async function keep(world: World, message: object): Promise<string> {
  const id = await world.order({action: 'keep', ...message});
  return String((await world.store.get(`control/${id}`))?.reason);
}

describe('a pool that keeps TPUs', () => {
  it('has one without work, gives it to a job at once, keeps it after the job, and lets it go in time', async () => {
    const world = aWorldOfJobs();
    world.onAgent = agent => {
      agent.jobEnd = {outcome: 'completed', result: '1'};
    };
    const said = await keep(world, {minutes: 30});
    assert.match(said, new RegExp(`keeps 1 of its TPUs until .*, for at most \\$${USD.toFixed(2)} an hour$`));
    await world.minutes(10);
    assert.equal((await world.worker(A0))?.phase, 'idle');
    await world.writeJob('my-job', {code: 'result = 1', status: 'pending'});
    await world.minutes(2);
    assert.equal((await jobIn(world)).status, 'completed');
    await world.minutes(16);
    assert.equal((await world.worker(A0))?.phase, 'idle');
    await world.minutes(6);
    assert.deepEqual([world.tpus.nodes.size, world.asked()], [0, [`create ${A0}#1`, `delete ${A0}#1`]]);
    const [attempt] = await world.store.query(`workers/${A0}/attempts`);
    const costs = (attempt?.data.costs ?? {}) as Record<string, number>;
    const {_kept: kept = 0, _jobs: jobs = 0} = costs;
    assert.ok(jobs > 0 && kept > (USD / 60) * 20, JSON.stringify(costs));
    assert.ok(Math.abs(Number((await world.store.get('pools/tpu'))?.spent_usd) - kept - jobs) < 1e-9);
  });

  it('ends it with a later message of 0 minutes, and refuses more than its slots', async () => {
    const world = new World(ONE_SLOT);
    assert.match(await keep(world, {minutes: 30, workers: 2}), /has 1 in all, and cannot keep 2/);
    await keep(world, {minutes: 30});
    await world.minutes(5);
    assert.equal(world.tpus.nodes.size, 1);
    assert.match(await keep(world, {minutes: 0}), /keeps no TPU/);
    await world.minutes(5);
    assert.equal(world.tpus.nodes.size, 0);
  });

  it('stays within its budget', async () => {
    const world = new World({...ONE_SLOT, GLEANER_BUDGET_USD: String((USD / 60) * 12)});
    await keep(world, {minutes: 600});
    await world.minutes(8);
    assert.equal(world.tpus.nodes.size, 1);
    await world.minutes(20);
    assert.equal(world.tpus.nodes.size, 0);
    const asked = world.asked().length;
    await world.minutes(30);
    assert.equal(world.asked().length, asked, 'it is not created again');
  });
});
