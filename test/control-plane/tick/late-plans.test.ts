/** Plans of ticks that are applied after their facts have changed: no money is spent on old facts. */
import assert from 'node:assert/strict';
import {Failures} from '../../../shared/control-plane/calls/failures.ts';
import {runRecords} from '../../../shared/control-plane/documents/documents.ts';
import {applyBudgets} from '../../../shared/control-plane/tick/apply-plan.ts';
import {readBudgets} from '../../../shared/control-plane/tick/read-snapshot.ts';
import type {Run} from '../../../shared/domain/records/run.ts';
import {planAllBudgets} from '../../../shared/domain/tick/pools.ts';
import {aRun} from '../../world/builders.ts';
import {A0} from '../../world/scenes/places.ts';
import {aWorldWithFast, F0} from '../../world/scenes/second-pool.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

/** A tick whose plan is too old after its first request for a node. */
async function slowTick(world: World): Promise<void> {
  const {around} = world.outage;
  const asked = world.asked().length;
  world.outage.around = async (verb, effect) => {
    if (verb === 'transaction' && world.asked().length > asked) world.now += 61_000;
    return effect();
  };
  await world.tick();
  world.outage.around = around;
}

describe('a late plan', () => {
  it('pauses no run that gets a larger budget while the tick plans', async () => {
    const {deps, store} = new World();
    const failures = new Failures(deps);
    const write = (changes: Partial<Run>) =>
      store.transaction(async tx => runRecords.set(tx, aRun({spent_usd: 1, ...changes})));
    await write({budget_usd: 1, version: 0});
    const [plan] = planAllBudgets(await readBudgets(deps, failures), deps.config, deps.now());
    assert.ok(plan);
    const runs = plan.pauses.map(({run}) => run);
    assert.deepEqual(runs, ['my-run']);
    await write({budget_usd: 100, version: 1});
    await applyBudgets(deps, plan, failures);
    assert.equal((await runRecords.get(store, 'my-run'))?.status, 'active');
  });

  it('requests no node for the last pool, and the next tick begins with this pool', async () => {
    const world = await aWorldWithFast({GLEANER_WORKERS_PER_ZONE: '2'});
    world.drop('quick', 0, someLines(4));
    world.drop('slow', 0, someLines(4));
    world.drop('slow', 1, someLines(4));
    for (let event = 0; event < 3; event++) await world.deliverNext('object');
    await slowTick(world);
    assert.deepEqual(world.asked(), [`create ${A0}#1`]);
    await slowTick(world);
    assert.deepEqual(world.asked().slice(1, 2), [`create ${F0}#1`]);
  });
});
