import assert from 'node:assert/strict';
import {bytePrice} from '../../../shared/domain/billing/network.ts';
import {SLOT} from '../../world/scenes/priced-run.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

const FAR = 'southamerica-west1';
const usd = (bytes: number) => bytes * bytePrice('us-central1-a', FAR);

function aWorld(run_json: object): World {
  const world = new World({
    GLEANER_ZONES: 'us-central1-a',
    GLEANER_WORKERS_PER_ZONE: '1',
    GLEANER_REGION: FAR,
  });
  world.objects.put('datasets/my-run/run.json', JSON.stringify(run_json));
  world.drop('my-run', 0, someLines(20));
  return world;
}

/** Dollars that the pool has spent and that all months have, without the lives of TPUs. */
async function networkOf(world: World): Promise<number[]> {
  const {data} = (await world.store.query(`workers/${SLOT}/attempts`))[0] ?? assert.fail();
  const {months = {}} = (await world.store.get('system/spending')) ?? {};
  const month = Object.values(months as Record<string, number>).reduce((sum, each) => sum + each, 0);
  const pool = Number((await world.store.get('pools/tpu'))?.spent_usd);
  return [pool, month].map(spent => spent - Number(data.cost_usd));
}

describe('a run whose TPUs are in another region than the bucket', () => {
  it('is paused before any node, and runs when allow_cross_region is configured', async () => {
    const world = aWorld({});
    await world.minutes(3);
    const {status, reason} = (await world.run('my-run')) ?? assert.fail();
    assert.equal(status, 'paused');
    assert.match(
      reason ?? '',
      /us-central1-a and the bucket in southamerica-west1 .* allow_cross_region true; then/,
    );
    assert.deepEqual(world.tpus.made, []);
    world.control({action: 'configure', run: 'my-run', allow_cross_region: true});
    world.control({action: 'resume', run: 'my-run'});
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'completed');
  });

  it('pays for the stream and each shard, and so do its pool and its month', async () => {
    const world = aWorld({allow_cross_region: true});
    await world.untilAsleep();
    const run = (await world.run('my-run')) ?? assert.fail();
    const stream = (await world.stream('my-run', '000')) ?? assert.fail();
    assert.equal(run.network_bytes, stream.size_bytes + run.total_bytes);
    assert.ok(run.total_bytes > 0 && Math.abs(run.network_usd - usd(run.network_bytes)) < 1e-12);
    for (const spent of await networkOf(world))
      assert.ok(Math.abs(spent - run.network_usd) < 1e-9, String(spent));
    assert.equal(run.cost_usd, run.spent_usd);
  });

  it('is paused when traffic has spent its budget', async () => {
    const world = aWorld({allow_cross_region: true, budget_usd: 1});
    await world.until('work', () => world.agents.size > 0, 9, 1);
    await world.edit('runs/my-run/streams/000', {network_usd: 1});
    await world.minutes(3, 0);
    const {status, reason, network_usd} = (await world.run('my-run')) ?? assert.fail();
    assert.deepEqual([status, network_usd], ['paused', 1]);
    assert.match(reason ?? '', /its budget allows no more: \$1\.0\d of \$1\.00 are spent/);
    assert.ok(world.asked().includes(`delete ${SLOT}#1`));
  });

  it('gets no TPU that was created before the flag was taken back', async () => {
    const world = aWorld({allow_cross_region: true});
    await world.until('work', () => world.agents.size > 0, 9, 1);
    world.control({action: 'configure', run: 'my-run', allow_cross_region: false});
    await world.minutes(3, 0);
    assert.equal((await world.run('my-run'))?.status, 'paused');
    assert.ok(world.asked().includes(`delete ${SLOT}#1`));
  });
});
