import assert from 'node:assert/strict';
import {budgetProblem, isScarce} from '../../../../shared/domain/billing/budget.ts';
import {costOfDeletingAll, overspent} from '../../../../shared/domain/billing/cost.ts';
import {decideBudgets} from '../../../../shared/domain/tick/budgets.ts';
import {type BudgetSnapshot, NO_OTHERS} from '../../../../shared/domain/tick/snapshot.ts';
import {aConfig, aRun, at, aWorker, T0} from '../../../world/builders.ts';

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
    creates_next_at: null,
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
    const pays = (kept_usd: number) => newReserver(kept_usd)('my-run', 'tpu-us-central1-a-0') === undefined;
    assert.deepEqual([pays(8.9), pays(9.1)], [true, false], 'the delete of a node costs $1');
  });

  const PRICES = {[pool.accelerator]: {usd: 20, spot_usd: 20}};
  const decided = (changes: Partial<BudgetSnapshot>, max_budget_usd: number | null = 10) =>
    decideBudgets(accountsOf({prices: PRICES, ...changes}), {...ceilings, max_budget_usd}, T0);
  const month = {name: '2026-01', copied_at: null, spent_usd: 8.5};
  const elsewhere = (changes = {}) => ({
    ...NO_OTHERS,
    workers: [aPaid({usd_per_hour: 20, charged_to: 'other', ...changes})],
  });

  const whole: {name: string; given: Partial<BudgetSnapshot>; about: string | undefined}[] = [
    {name: 'of the month that pays for a TPU stays active', given: {month}, about: undefined},
    {
      name: 'of the month pays for deleting the TPUs of other pools',
      given: {month, others: elsewhere()},
      about: 'the month',
    },
    {
      name: 'of the month has paid for the TPUs of other pools until now',
      given: {month: {...month, spent_usd: 0}, others: elsewhere({ready_at: at(-1800)})},
      about: 'the month',
    },
    {
      name: 'of a month whose document is invalid has the dollars of the copy',
      given: {month: {...month, spent_usd: undefined, copied_usd: 9.5}},
      about: 'the month',
    },
    {
      name: 'of a pool needs a price',
      given: {prices: {}, pool: {...pool, budget_usd: 10}},
      about: 'pool tpu',
    },
    {
      name: 'of a pool does not end while no price can be read',
      given: {prices: undefined, pool: {...pool, budget_usd: 10}},
      about: undefined,
    },
  ];
  for (const {name, given, about} of whole)
    it(`a budget ${name}`, () => assert.equal(decided(given).sharedLimit?.about, about));

  const byBudget = {status: 'paused', reason: 'its budget allows no more: $9'} as const;
  for (const {name, run, given, reasons} of [
    {
      name: 'a budget paused has a new reason once there is money again',
      run: byBudget,
      given: {},
      reasons: 1,
    },
    {
      name: 'a person paused keeps its reason',
      run: {status: 'paused', budget_usd: 0, reason: 'a person'},
      given: {},
      reasons: 0,
    },
    {
      name: 'a budget paused keeps its reason while no month can be read',
      run: byBudget,
      given: {month: undefined},
      reasons: 0,
    },
    {
      name: 'a budget paused keeps its reason while no price can be read',
      run: byBudget,
      given: {prices: undefined},
      reasons: 0,
    },
  ] as const)
    it(`a paused run that ${name}`, () => {
      assert.equal(
        decided({month: {...month, spent_usd: 0}, runs: [aRun(run)], ...given}).reasons.length,
        reasons,
      );
    });

  it('a budget of a run without a TPU has to pay for one until it is deleted', () => {
    const pauses = (budget_usd: number) => decided({month, runs: [aRun({budget_usd})]}).pauses.length;
    assert.deepEqual([pauses(1.1), pauses(0.9)], [0, 1]);
  });

  it('a run in another region is paused, and not for a budget', () => {
    const {pauses} = decideBudgets(accountsOf({prices: PRICES, runs: [aRun()]}), ceilings, T0, 'us-east1');
    assert.deepEqual(
      pauses.map(({run, isForBudget}) => [run, isForBudget]),
      [['my-run', false]],
    );
  });
});

describe('a grant of a run with a budget', () => {
  const spent = {budget_usd: 10, cost_usd: 5, network_usd: 1, download_usd: 1};
  for (const {name, run, isHolder, isPaid} of [
    {
      name: 'is paid with what is left after TPUs and traffic',
      run: {streams_in_progress: 1},
      isHolder: false,
      isPaid: true,
    },
    {
      name: 'needs the deletes of all TPUs of the run',
      run: {streams_in_progress: 2},
      isHolder: false,
      isPaid: false,
    },
    {
      name: 'to a TPU that the run has already needs no other delete',
      run: {streams_in_progress: 2},
      isHolder: true,
      isPaid: true,
    },
  ])
    it(name, () => {
      const problem = budgetProblem(aRun({...spent, ...run}), 20, isHolder);
      assert.equal(problem === undefined, isPaid, problem);
    });

  it('counts where the budget may not carry every TPU of the deployment', () => {
    const isCounted = (max_workers: number) => isScarce(aRun(spent), 20, max_workers);
    assert.deepEqual([isCounted(1), isCounted(3)], [false, true]);
  });
});
