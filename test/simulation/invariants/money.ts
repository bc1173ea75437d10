/** Checks that a spent budget creates and keeps no node, and that every incarnation is billed once for its time. */
import {accrue, costOfDeletingAll, costOfLiving, payerOf} from '../../../shared/domain/billing/cost.ts';
import {LIST_PRICES} from '../../../shared/domain/billing/list-prices.ts';
import {monthOf} from '../../../shared/domain/billing/monthly-spending.ts';
import {usdPerHour} from '../../../shared/domain/billing/prices.ts';
import type {Pool} from '../../../shared/domain/fleet/pool.ts';
import {paths} from '../../../shared/domain/names.ts';
import type {Run} from '../../../shared/domain/run/run.ts';
import type {Worker} from '../../../shared/domain/worker/worker.ts';
import type {Document} from '../../../shared/ports.ts';
import type {Context} from '../context.ts';
import {MAX_SKEW_MS} from '../faults.ts';
import {isNewIncarnation, isUp, workersOf} from './nodes.ts';
import type {Violations} from './violations.ts';

/** The greatest age of the data behind a hanging commit: the plan of a tick, or a transaction, which ends after 270 s. */
const HUNG_MINUTES = 6;

/** Seconds by which a bill may differ from the lifetime, in addition to the clock skew of two instances. */
const MAX_ERROR_S = 5;

export function poolOf({config, store}: Context): Pool {
  return (store.peek(paths.pool(config.pool.pool)) as Pool | undefined) ?? config.pool;
}

export class Money {
  readonly #context: Context;
  readonly #violations: Violations;
  /** Minutes since the budget of the pool or of the month was spent. */
  #overspentMinutes = 0;
  #isWiped = false;

  constructor(context: Context, violations: Violations) {
    this.#context = context;
    this.#violations = violations;
  }

  onMinute(): void {
    const isSpent = this.#spent().some(({budget_usd, spent_usd}) => spent_usd >= budget_usd);
    this.#overspentMinutes = isSpent ? this.#overspentMinutes + 1 : 0;
  }

  onWipe(): void {
    this.#isWiped = true;
  }

  /** No node is created when the budget is spent, counting what living workers cost until their nodes are deleted. */
  onWorker(name: string, before: Document, after: Document): void {
    if (!isNewIncarnation(before, after)) return;
    const allowed = this.#context.faults.hang > 0 ? HUNG_MINUTES : 1;
    for (const {budget, budget_usd, spent_usd} of this.#spent())
      this.#violations.check(
        spent_usd < budget_usd || this.#overspentMinutes <= allowed,
        () =>
          `${name} was created ${this.#overspentMinutes} min after $${spent_usd} of ${budget} $${budget_usd} were spent`,
      );
  }

  /** The budgets and the spending of the pool and of the month, with the cost of living workers until they are deleted. */
  #spent(): {budget: string; budget_usd: number; spent_usd: number}[] {
    const {clockwork, config, store} = this.#context;
    const {max_budget_usd} = config.ceilings;
    const {budget_usd, spent_usd} = poolOf(this.#context);
    const months = store.peek(paths.spending())?.months as Record<string, number> | undefined;
    const inMonth = months?.[monthOf(clockwork.now)] ?? 0;
    const workers = workersOf(store);
    const living =
      costOfLiving(workers, clockwork.now - MAX_SKEW_MS).total + costOfDeletingAll(workers).total;
    return [
      {budget: 'the pool budget', budget_usd: budget_usd ?? Infinity, spent_usd: spent_usd + living},
      {budget: 'the month budget', budget_usd: max_budget_usd ?? Infinity, spent_usd: inMonth + living},
    ];
  }

  /** Workers that must be deleted now: the budget of the pool, the month or their run is spent. */
  overBudget(): string[] {
    const {clockwork, store} = this.#context;
    const now = clockwork.now - MAX_SKEW_MS;
    const workers = workersOf(store);
    const [living, deleting] = [costOfLiving(workers, now), costOfDeletingAll(workers)];
    const isOver = (budget: number | null, spent: number) => budget !== null && spent >= budget;
    const isAllSpent = this.#spent().some(({budget_usd, spent_usd}) => spent_usd >= budget_usd);
    const isOverBudget = (worker: Worker) => {
      const id = payerOf(worker);
      const run = id === null ? undefined : (store.peek(paths.run(id)) as Run | undefined);
      const spent =
        (run?.spent_usd ?? 0) + (living.runs.get(id ?? '') ?? 0) + (deleting.runs.get(id ?? '') ?? 0);
      return isAllSpent || isOver(run?.budget_usd ?? null, spent);
    };
    return workers
      .filter(worker => isUp(worker) && isOverBudget(accrue(worker, now)))
      .map(({name, incarnation}) => `the budget for ${name}#${incarnation} is spent`);
  }

  /** Every incarnation is billed for its time, and each is paid for once. */
  atTheEnd(): void {
    // A lost database loses the cost of incarnations that ended before.
    if (this.#isWiped) return;
    const {store} = this.#context;
    const attempts = store
      .collection('workers')
      .flatMap(({path}) => store.collection(`${path}/attempts`))
      .filter(({data}) => data.gone_at !== undefined && data.ready_at !== null);
    const owed = new Map<string, number>();
    let total = 0;
    for (const {path, data} of attempts) {
      this.#checkBill(path, data);
      total += Number(data.cost_usd);
      for (const [run, usd] of Object.entries(data.costs as Record<string, number>))
        owed.set(run, (owed.get(run) ?? 0) + usd);
    }
    const spent = poolOf(this.#context).spent_usd;
    const months = Object.values((store.peek(paths.spending())?.months ?? {}) as Record<string, number>);
    const inMonths = months.reduce((sum, usd) => sum + usd, 0);
    this.#violations.check(
      Math.abs(inMonths - total) < 1e-6,
      () => `the months have spent $${inMonths}, their incarnations cost $${total}`,
    );
    this.#violations.check(
      Math.abs(spent - total) < 1e-6,
      () => `the pool has spent $${spent}, its incarnations cost $${total}`,
    );
    for (const {id, data} of store.collection('runs'))
      this.#violations.check(
        Math.abs(Number(data.spent_usd) - (owed.get(id) ?? 0)) < 1e-6,
        () => `run ${id} has spent $${data.spent_usd}, its incarnations cost $${owed.get(id) ?? 0}`,
      );
  }

  #checkBill(path: string, {worker, cost_usd, ready_at, gone_at, seen_again_at}: Document): void {
    const zone = this.#context.store.peek(paths.worker(String(worker)))?.zone;
    const paid_s = Number(cost_usd) / usdPerSecond(String(zone));
    const lived_s = (Date.parse(String(gone_at)) - Date.parse(String(ready_at))) / 1000;
    const most_s = MAX_ERROR_S + 2 * this.#context.storm.skew_s;
    this.#violations.check(
      Math.abs(paid_s - lived_s) <= most_s || (seen_again_at !== undefined && paid_s <= lived_s),
      () => `${path} lived for ${lived_s} s, and is billed for ${paid_s} s`,
    );
  }
}

/** Every simulated node has one chip on spot. */
function usdPerSecond(zone: string): number {
  return (usdPerHour(LIST_PRICES, {accelerator: 'v5litepod-1', spot: true, zone}) ?? Number.NaN) / 3600;
}
