/** A spent budget creates and keeps no node, and every incarnation is billed for its time, once. */
import {accrue, costOfDeletingAll, costOfLiving, payerOf} from '../../../shared/domain/billing/cost.ts';
import {monthOf} from '../../../shared/domain/billing/monthly-spending.ts';
import {LIST_PRICES} from '../../../shared/domain/billing/prices.ts';
import type {Pool} from '../../../shared/domain/fleet/pool.ts';
import {paths} from '../../../shared/domain/names.ts';
import type {Run} from '../../../shared/domain/run/run.ts';
import type {Worker} from '../../../shared/domain/worker/worker.ts';
import type {Document} from '../../../shared/ports.ts';
import type {Context} from '../context.ts';
import {MOST_SKEW_MS} from '../faults.ts';
import {isNewIncarnation, isUp, workersOf} from './nodes.ts';
import type {Violations} from './violations.ts';

/** So old may be what a commit that hangs was decided from: a plan of a tick, and a transaction that is ended after 270 s. */
const HUNG_MINUTES = 6;

/** Seconds that a bill may differ from the life, beside what the clocks of two instances differ by. */
const MAX_ERROR_S = 5;

export function poolOf({config, store}: Context): Pool {
  return (store.peek(paths.pool('tpu')) as Pool | undefined) ?? config.pool;
}

export class Money {
  readonly #context: Context;
  readonly #violations: Violations;
  /** For how many minutes the pool's money has been spent. */
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

  /** Nothing is made with money that is spent, or that those that live cost until they are gone. */
  onWorker(name: string, before: Document, after: Document): void {
    if (!isNewIncarnation(before, after)) return;
    const allowed = this.#context.faults.hang > 0 ? HUNG_MINUTES : 1;
    for (const {whose, budget_usd, spent_usd} of this.#spent())
      this.#violations.check(
        spent_usd < budget_usd || this.#overspentMinutes <= allowed,
        () =>
          `${name} was made when $${spent_usd} of ${whose} $${budget_usd} were spent for ${this.#overspentMinutes} min`,
      );
  }

  /** Of the pool and of the month, where they have a limit, with what the living cost until they are gone. */
  #spent(): {whose: string; budget_usd: number; spent_usd: number}[] {
    const {clockwork, config, store} = this.#context;
    const {max_budget_usd} = config.ceilings;
    const {budget_usd, spent_usd} = poolOf(this.#context);
    const months = store.peek(paths.spending())?.months as Record<string, number> | undefined;
    const inMonth = months?.[monthOf(clockwork.now)] ?? 0;
    const workers = workersOf(store);
    const living =
      costOfLiving(workers, clockwork.now - MOST_SKEW_MS).total + costOfDeletingAll(workers).total;
    return [
      {whose: "the pool's", budget_usd: budget_usd ?? Infinity, spent_usd: spent_usd + living},
      {whose: "the month's", budget_usd: max_budget_usd ?? Infinity, spent_usd: inMonth + living},
    ];
  }

  /** Workers that may not cost another minute: the pool's money is spent, or that of the run they work for. */
  overBudget(): string[] {
    const {clockwork, store} = this.#context;
    const now = clockwork.now - MOST_SKEW_MS;
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
      .map(({name, incarnation}) => `there is no money for ${name}#${incarnation}`);
  }

  /** Every life has cost what its time costs, and each is paid for once. */
  atTheEnd(): void {
    // The database takes with it the cost of incarnations that ended before the last message.
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
      () => `the months have spent $${inMonths}, their lives cost $${total}`,
    );
    this.#violations.check(
      Math.abs(spent - total) < 1e-6,
      () => `the pool has spent $${spent}, its lives cost $${total}`,
    );
    for (const {id, data} of store.collection('runs'))
      this.#violations.check(
        Math.abs(Number(data.spent_usd) - (owed.get(id) ?? 0)) < 1e-6,
        () => `run ${id} has spent $${data.spent_usd}, its lives cost $${owed.get(id) ?? 0}`,
      );
  }

  #checkBill(path: string, {worker, cost_usd, ready_at, gone_at, seen_again_at}: Document): void {
    const zone = this.#context.store.peek(paths.worker(String(worker)))?.zone;
    const paid_s = Number(cost_usd) / usdPerSecond(String(zone));
    const lived_s = (Date.parse(String(gone_at)) - Date.parse(String(ready_at))) / 1000;
    const most_s = MAX_ERROR_S + 2 * this.#context.storm.skew_s;
    this.#violations.check(
      Math.abs(paid_s - lived_s) <= most_s || (seen_again_at !== undefined && paid_s <= lived_s),
      () => `${path} lived for ${lived_s} s, and cost as much as ${paid_s} s`,
    );
  }
}

/** Spot, of one chip: what every node here is. */
function usdPerSecond(zone: string): number {
  const price = LIST_PRICES[`v5litepod@${zone.slice(0, -2)}`] ?? LIST_PRICES.v5litepod;
  return (price?.spot_usd ?? Number.NaN) / 3600;
}
