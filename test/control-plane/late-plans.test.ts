/** Plans of ticks that are applied after their facts have changed: no money is spent on old facts. */
import assert from 'node:assert/strict';
import {runRecords} from '../../shared/control-plane/documents/documents.ts';
import {Failures} from '../../shared/control-plane/failures.ts';
import {applyBudgets} from '../../shared/control-plane/tick/apply-plan.ts';
import {readBudgets} from '../../shared/control-plane/tick/read-snapshot.ts';
import type {Run} from '../../shared/domain/run/run.ts';
import {planAllBudgets} from '../../shared/domain/tick/pools.ts';
import {aRun} from '../support/builders.ts';
import {World} from '../support/control-plane-harness.ts';

describe('a late plan', () => {
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
