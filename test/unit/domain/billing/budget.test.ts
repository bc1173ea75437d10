import assert from 'node:assert/strict';
import {decideBudgets} from '../../../../shared/domain/billing/budget.ts';
import {costOfDeletingAll, overspent} from '../../../../shared/domain/billing/cost.ts';
import {type BudgetSnapshot, NO_OTHERS} from '../../../../shared/domain/tick/snapshot.ts';
import {aConfig, aRun, at, aWorker, T0} from '../../../support/builders.ts';

const aPaid = (changes = {}) => aWorker({phase: 'working', ready_at: at(0), usd_per_hour: 3.6, ...changes});

const {ceilings, pool} = aConfig({GLEANER_ZONES: 'us-central1-a'});

function accountsOf(changes: Partial<BudgetSnapshot>): BudgetSnapshot {
  return {
    read_at_ms: T0,
    pool,
    isUnreadable: false,
    jobs: {waiting: 0},
    others: NO_OTHERS,
    prices: {},
    month: {name: '2026-01', copied_at: null, spent_usd: 0},
    creates: 0,
    late_pools: [],
    runs: [],
    ended: [],
    workers: new Map(),
    unreadable: new Set(),
    unreadable_runs: new Set(),
    ...changes,
  };
}

describe('a budget', () => {
  it('a budget ends at its last cent and needs a known price, and no budget is no limit', () => {
    const spent = (spent_usd: number) => ({spent_usd, leaving_usd: 0});
    assert.equal(overspent('run', null, spent(1e9), false), undefined);
    assert.equal(overspent('run', 10, spent(9.99), true), undefined);
    assert.match(overspent('run', 10, spent(10), true) ?? '', /\$10\.00 of \$10\.00 are spent; /);
    assert.match(overspent('run', 10, spent(0), false) ?? '', /prices\/chips/);
  });

  it('a budget keeps the price of deleting its TPUs, and says so', () => {
    assert.equal(overspent('run', 10, {spent_usd: 8, leaving_usd: 1.9}, true), undefined);
    assert.match(
      overspent('run', 10, {spent_usd: 8, leaving_usd: 2}, true) ?? '',
      /^\$8\.00 of \$10\.00 are spent, and \$2\.00 are kept for the minutes that deleting TPUs takes; /,
    );
  });

  it('the price of deleting is three minutes of each TPU, also before READY', () => {
    const workers = [
      aPaid({work: 'one/000', usd_per_hour: 20}),
      aPaid({phase: 'creating', ready_at: null, charged_to: 'one', usd_per_hour: 40}),
      aPaid({phase: 'deleting', usd_per_hour: 60}),
      aPaid({phase: 'gone', charged_to: 'one'}),
    ];
    const {runs, total} = costOfDeletingAll(workers);
    assert.deepEqual([[...runs], total], [[['one', 3]], 6]);
  });

  it('the budget of an ended run ends its last workers too', () => {
    const worker = aPaid({work: 'done/000', charged_to: 'done'});
    const accounts = accountsOf({
      ended: [aRun({run: 'done', status: 'completed', budget_usd: 1, spent_usd: 1})],
      workers: new Map([[worker.name, worker]]),
    });
    const {dismissed, pauses} = decideBudgets(accounts, ceilings, T0);
    assert.deepEqual([[...dismissed], pauses], [[worker.name], []]);
  });

  it('the budget of a pool pays for new nodes only after the deletes of its living nodes', () => {
    const living = aPaid({usd_per_hour: 20, charged_to: 'my-run'});
    const accounts = accountsOf({
      pool: {...pool, budget_usd: 10, spent_usd: 4},
      runs: [aRun()],
      workers: new Map([[living.name, living]]),
    });
    assert.equal(decideBudgets(accounts, ceilings, T0).left_usd, 10 - 4 - 1);
  });

  it('the budget of the pool pays for no new node with the money that is kept for orphans', () => {
    const prices = {[pool.accelerator]: {usd: 20, spot_usd: 20}};
    const accounts = accountsOf({prices, pool: {...pool, budget_usd: 10}, runs: [aRun()]});
    const {newReserver} = decideBudgets(accounts, ceilings, T0);
    const pays = (kept_usd: number) => newReserver(kept_usd)('my-run', 'tpu-us-central1-a-0');
    assert.deepEqual([pays(8.9), pays(9.1)], [true, false], 'the delete of a node costs $1');
  });
});
