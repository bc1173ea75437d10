import assert from 'node:assert/strict';
import {UNIT_PRICES} from '../../../shared/domain/billing/unit-prices.ts';
import {aPricedRun, SLOT} from '../../world/scenes/priced-run.ts';
import type {World} from '../../world/world.ts';

const GIB = 1024 ** 3;
const GIB_USD = GIB * UNIT_PRICES.nat_byte;

/** Every agent of the world downloads its weights before its next step. */
function downloadAll(world: World, bytes: number): void {
  for (const agent of world.agents.values()) agent.received.nat_bytes = bytes;
}

describe('the downloads of a TPU', () => {
  it('are billed once to run, pool and month', async () => {
    const world = await aPricedRun({});
    await world.until('work', async () => (await world.worker(SLOT))?.work !== null, 20);
    downloadAll(world, GIB);
    await world.minutes(2);
    const living = (await world.run('my-run')) ?? assert.fail();
    assert.deepEqual([living.download_usd, living.spent_download_usd], [GIB_USD, 0]);
    await world.untilAsleep();
    const run = (await world.run('my-run')) ?? assert.fail();
    assert.deepEqual([run.download_usd, run.spent_download_usd], [GIB_USD, GIB_USD]);
    const {months = {}} = (await world.store.get('system/spending')) ?? {};
    const pool = Number((await world.store.get('pools/tpu'))?.spent_usd);
    const month = Object.values(months as Record<string, number>).reduce((sum, each) => sum + each, 0);
    for (const spent of [pool, month])
      assert.ok(Math.abs(spent - run.spent_usd - GIB_USD) < 1e-9, String(spent));
  });

  it('pause a run whose budget they have spent', async () => {
    const world = await aPricedRun({budget_usd: 1});
    await world.until('work', async () => (await world.worker(SLOT))?.work !== null, 20);
    downloadAll(world, Math.ceil(GIB / GIB_USD));
    await world.minutes(3);
    const {status, reason} = (await world.run('my-run')) ?? assert.fail();
    assert.equal(status, 'paused');
    assert.match(reason ?? '', /its budget allows no more: \$1\.\d\d of \$1\.00 are spent/);
  });
});
