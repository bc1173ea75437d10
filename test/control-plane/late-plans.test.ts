/** Plans of ticks that are applied after their facts have changed: no money is spent on old facts. */
import assert from 'node:assert/strict';
import {runRecords, workerRecords} from '../../shared/control-plane/documents/documents.ts';
import {Failures} from '../../shared/control-plane/failures.ts';
import {applyBudgets} from '../../shared/control-plane/tick/apply-plan.ts';
import {readBudgets} from '../../shared/control-plane/tick/read-snapshot.ts';
import type {Run} from '../../shared/domain/run/run.ts';
import {planAllBudgets} from '../../shared/domain/tick/pools.ts';
import {iso} from '../../shared/domain/time.ts';
import {NO_WORK} from '../../shared/domain/worker/worker.ts';
import {aRun} from '../support/builders.ts';
import {World} from '../support/control-plane-harness.ts';
import {aWorkingWorld} from '../support/one-worker.ts';
import {A0, ONE_SLOT} from '../support/places.ts';
import {someLines} from '../support/shard-plan.ts';

/** A tick that waits for `between` after it has read the zones, which it reads last in the Store. */
async function tickAround(world: World, between: () => void | Promise<void>): Promise<void> {
  const {deps} = world;
  const query: typeof deps.store.query = async (collection, what) => {
    const found = await deps.store.query(collection, what);
    if (collection === 'zones') await between();
    return found;
  };
  world.deps = {...deps, store: {...deps.store, query}};
  await world.tick();
  world.deps = deps;
}

describe('a late plan', () => {
  it('repeats no create from budgets that were read over a minute ago', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(2));
    await world.deliverNext('object');
    await world.tick();
    world.queue.length = 0;
    world.now += 60_000;
    await tickAround(world, () => {
      world.now += 70_000;
    });
    assert.deepEqual(world.asked(), [`create ${A0}#1`]);
    await world.tick();
    assert.deepEqual(world.asked(), [`create ${A0}#1`, `create ${A0}#1`]);
  });

  it('creates no node in a slot that became empty since, because no run was found to pay for it', async () => {
    const world = await aWorkingWorld();
    // A change of the node, so that the tick decides about its slot.
    world.tpus.node(A0).state = 'REPAIRING';
    await tickAround(world, async () => {
      world.now += 1000;
      const worker = (await world.worker(A0)) ?? assert.fail();
      const gone = {...worker, ...NO_WORK, phase: 'gone', phase_since_at: iso(world.now)} as const;
      await world.store.transaction(async tx => workerRecords.set(tx, gone));
    });
    assert.deepEqual([(await world.worker(A0))?.phase, world.asked()], ['gone', [`create ${A0}#1`]]);
  });

  it('pauses no run that gets a larger budget while the tick plans', async () => {
    const {deps, store} = new World();
    const failures = new Failures(deps);
    const write = (changes: Partial<Run>) =>
      store.transaction(async tx => runRecords.set(tx, aRun({spent_usd: 1, ...changes})));
    await write({budget_usd: 1, version: 0});
    const [plan] = planAllBudgets(await readBudgets(deps, failures), deps.config, deps.now());
    assert.ok(plan);
    assert.deepEqual(
      plan.pauses.map(({run}) => run),
      ['my-run'],
    );
    await write({budget_usd: 100, version: 1});
    await applyBudgets(deps, plan, failures);
    assert.equal((await runRecords.get(store, 'my-run'))?.status, 'active');
  });
});
