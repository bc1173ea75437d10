/** Checks that a spent budget creates and keeps no node, and that every incarnation is billed once for its time. */
import {
  accrue,
  costOfDeletingAll,
  costOfLiving,
  downloadsOf,
  payerOf,
} from '../../../shared/domain/billing/cost.ts';
import {LIST_PRICES} from '../../../shared/domain/billing/list-prices.ts';
import {
  livingInMonth,
  monthOf,
  NO_SPENDING,
  type Spending,
} from '../../../shared/domain/billing/monthly-spending.ts';
import {usdPerHour} from '../../../shared/domain/billing/prices.ts';
import {parseWorkerName, paths} from '../../../shared/domain/names.ts';
import type {Pool} from '../../../shared/domain/records/pool.ts';
import type {Run} from '../../../shared/domain/records/run.ts';
import type {Costs, Worker} from '../../../shared/domain/records/worker.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {MAX_SKEW_MS} from '../conditions/faults.ts';
import {chipsOfHosts} from '../conditions/prices.ts';
import type {Facts} from './facts.ts';
import {timeUsd} from './ledger.ts';
import {isNewIncarnation, isUp, workersOf} from './nodes.ts';
import {Check} from './violations.ts';

type Spent = {budget: string; pool: string | null; budget_usd: number; spent_usd: number};

/** The greatest age of the data behind a hanging commit: the reads of a tick last 300 s, and a transaction ends after 270 s. */
const HUNG_MINUTES = 10;
/** Minutes after which a tick has read a new price, even if its first deliveries hang and fail. */
const PRICE_READ_MINUTES = 12;

/** Age of the reads behind a copy of the month. */
const COPY_MS = 6 * 60_000;

/** Sums of dollars may differ by their rounding: a byte between regions costs more. */
const TOLERANCE_USD = 1e-10;

/** Seconds by which a bill may differ from the lifetime, in addition to the clock skew of two instances. */
const MAX_ERROR_S = 5;

/** The pool of a worker; undefined if it has no document. */
export function poolOf(context: Facts, worker: string): Pool | undefined {
  const name = parseWorkerName(worker)?.pool;
  return poolsOf(context).find(({pool}) => pool === name);
}

/** The pool of the deployment and the others. */
export function poolsOf({config, store}: Facts): Pool[] {
  const others = store.collection('pools').filter(({id}) => id !== config.pool.pool);
  const own = store.peek(paths.pool(config.pool.pool)) ?? config.pool;
  return [own, ...others.map(({data}) => data)] as Pool[];
}

export class Money extends Check {
  /** Minutes since each budget was spent: of a pool or of the month. */
  readonly #overspentMinutes = new Map<string, number>();
  /** Payer of each incarnation whose node is gone, by the path of its attempt. */
  readonly #payers = new Map<string, string>();
  #isWiped = false;
  /** Dollars of the month, minute by minute. They never decrease. */
  #months: {at: number; usd: number}[] = [];

  /** The cost of a run contains that of its ended incarnations, also after its end. */
  onRun(run: string, {cost_usd, spent_usd, download_usd, spent_download_usd}: Document): void {
    if (Number(cost_usd) < Number(spent_usd) || Number(download_usd) < Number(spent_download_usd))
      this.breach(
        `run ${run} costs $${cost_usd} and $${download_usd}, and has spent $${spent_usd} and $${spent_download_usd}`,
      );
  }

  /** The copy of a month in the bucket has the cost of living TPUs too: a lost database loses their documents. */
  onObject({name, metadata}: {name: string; metadata: Record<string, string>}): void {
    if (!name.startsWith('system/spending/') || this.context.storm.hang > 0) return;
    const since = this.context.clockwork.now - COPY_MS;
    const least_usd = this.#months.findLast(({at}) => at < since)?.usd ?? 0;
    this.context.see('the month is copied');
    if (!(Number(metadata.usd) >= least_usd - TOLERANCE_USD))
      this.breach(`${name} has $${metadata.usd}, and the month had cost $${least_usd} some minutes before`);
  }

  override onMinute(): void {
    const {clockwork, config} = this.context;
    if (config.ceilings.max_budget_usd !== null)
      this.#months.push({at: clockwork.now, usd: this.#monthUsd()});
    for (const {budget, budget_usd, spent_usd} of this.#spent())
      this.#overspentMinutes.set(budget, spent_usd >= budget_usd ? this.#minutesOf(budget) + 1 : 0);
  }

  #minutesOf(budget: string): number {
    return this.#overspentMinutes.get(budget) ?? 0;
  }

  override onWipe(): void {
    this.#months = [];
    this.#isWiped = true;
  }

  /** No node is created when the budget is spent, counting what living workers cost until their nodes are deleted. */
  onWorker(name: string, before: Document, after: Document): void {
    const attempt = paths.attempt(name, Number(after.incarnation));
    const isEnd = after.phase === 'gone' && before.phase !== 'gone';
    if (isEnd && !this.#payers.has(attempt)) this.#payers.set(attempt, String(after.charged_to));
    if (!isNewIncarnation(before, after)) return;
    const allowed = this.context.faults.hang > 0 ? HUNG_MINUTES : 1;
    for (const {budget, budget_usd, spent_usd} of this.#spentFor(name))
      if (spent_usd >= budget_usd && this.#minutesOf(budget) > allowed)
        this.breach(
          `${name} was created ${this.#minutesOf(budget)} min after $${spent_usd} of ${budget} $${budget_usd} were spent`,
        );
  }

  /** The budgets that the worker's node counts in: of its pool and of the month. */
  #spentFor(worker: string): Spent[] {
    const name = parseWorkerName(worker)?.pool;
    return this.#spent().filter(({pool}) => pool === null || pool === name);
  }

  /** The budgets of pools and of the month, and their spending with the cost of living workers until they are deleted. */
  #spent(): Spent[] {
    const {clockwork, config, store} = this.context;
    const {max_budget_usd} = config.ceilings;
    const costOf = (workers: Worker[]) =>
      costOfLiving(workers, clockwork.now - MAX_SKEW_MS).total + costOfDeletingAll(workers).total;
    const pools = poolsOf(this.context).flatMap(({pool, budget_usd, spent_usd}) => {
      if (budget_usd === null) return [];
      const living_usd = costOf(workersOf(store).filter(worker => worker.pool === pool));
      return {budget: `the budget of ${pool}`, pool, budget_usd, spent_usd: spent_usd + living_usd};
    });
    if (max_budget_usd === null) return pools;
    const spent_usd = this.#monthUsd() + costOfDeletingAll(workersOf(store)).total;
    return [...pools, {budget: 'the month budget', pool: null, budget_usd: max_budget_usd, spent_usd}];
  }

  /** Dollars of the month by now: of its ended and its living incarnations. */
  #monthUsd(): number {
    const {clockwork, store} = this.context;
    const {months, copied_at} = (store.peek(paths.spending()) ?? NO_SPENDING) as Spending;
    const name = monthOf(clockwork.now);
    const living = {name, copied_at};
    return (months[name] ?? 0) + livingInMonth(living, workersOf(store), clockwork.now - MAX_SKEW_MS);
  }

  /** Workers that must be deleted now: the budget of the pool, the month or their run is spent. */
  overBudget(): string[] {
    const {clockwork, store} = this.context;
    const now = clockwork.now - MAX_SKEW_MS;
    const spent = this.#spent().filter(({budget_usd, spent_usd}) => spent_usd >= budget_usd);
    const isAnyBudget = store.collection('runs').some(({data}) => data.budget_usd !== null);
    if (spent.length === 0 && !isAnyBudget) return [];
    const workers = workersOf(store);
    const [living, deleting] = [costOfLiving(workers, now), costOfDeletingAll(workers)];
    const isOver = (budget: number | null, spent: number) => budget !== null && spent >= budget;
    const isAllSpent = ({pool: own}: Worker) => spent.some(({pool}) => pool === null || pool === own);
    const isOverBudget = (worker: Worker) => {
      const id = payerOf(worker);
      const run = id === null ? undefined : (store.peek(paths.run(id)) as Run | undefined);
      const paid =
        (run?.spent_usd ?? 0) +
        (run?.network_usd ?? 0) +
        (run?.spent_download_usd ?? 0) +
        (living.runs.get(downloadsOf(id ?? '')) ?? 0) +
        (living.runs.get(id ?? '') ?? 0) +
        (deleting.runs.get(id ?? '') ?? 0);
      return isAllSpent(worker) || isOver(run?.budget_usd ?? null, paid);
    };
    return workers
      .filter(worker => isUp(worker) && isOverBudget(accrue(worker, now)))
      .map(({name, incarnation}) => `the budget for ${name}#${incarnation} is spent`);
  }

  /** Every incarnation is billed for its time, and each is paid for once. */
  override atTheEnd(): void {
    // A lost database loses the cost of incarnations that ended before.
    if (this.#isWiped) return;
    const {store} = this.context;
    const attempts = store
      .collection('workers')
      .flatMap(({path}) => store.collection(`${path}/attempts`))
      .filter(({data}) => data.gone_at !== undefined);
    const owed = new Map<string, number>();
    const byPool = new Map<string, number>();
    const taken = new Map<string, number>();
    let total = 0;
    for (const {path, data} of attempts) {
      const payer = this.#payers.get(path) ?? '';
      // A node that was READY only after its bill was seen again. Others were taken before they were READY.
      const wasReady = data.ready_at !== null && data.ready_at !== data.seen_again_at;
      if (data.cause_kind === 'taken' && (wasReady || data.provider_state !== null))
        taken.set(payer, (taken.get(payer) ?? 0) + 1);
      if (data.ready_at === null) continue;
      this.#checkBill(path, data);
      total += Number(data.cost_usd);
      const pool = parseWorkerName(String(data.worker))?.pool ?? '';
      byPool.set(pool, (byPool.get(pool) ?? 0) + Number(data.cost_usd));
      for (const [run, usd] of Object.entries(data.costs as Record<string, number>))
        owed.set(run, (owed.get(run) ?? 0) + usd);
    }
    for (const {id, data} of store.collection('runs')) {
      const pool = String(data.pool);
      total += Number(data.network_usd);
      byPool.set(pool, (byPool.get(pool) ?? 0) + Number(data.network_usd));
      // The streams of a run that is old are gone, or registered anew.
      if (!this.context.aged.has(id)) this.#checkTraffic(id, data);
    }
    const months = Object.values((store.peek(paths.spending())?.months ?? {}) as Record<string, number>);
    const inMonths = months.reduce((sum, usd) => sum + usd, 0);
    if (!(Math.abs(inMonths - total) < TOLERANCE_USD))
      this.breach(`the months have spent $${inMonths}, their incarnations and their network cost $${total}`);
    for (const {pool, spent_usd} of poolsOf(this.context))
      if (!(Math.abs(spent_usd - (byPool.get(pool) ?? 0)) < TOLERANCE_USD))
        this.breach(
          `${pool} has spent $${spent_usd}, its incarnations and its network cost $${byPool.get(pool) ?? 0}`,
        );
    for (const {id, data} of store.collection('runs'))
      if (data.preemptions !== null && data.preemptions !== (taken.get(id) ?? 0))
        this.breach(`run ${id} has ${data.preemptions} preemptions, its TPUs had ${taken.get(id) ?? 0}`);
    for (const {id, data} of store.collection('runs'))
      for (const [field, key] of [
        ['spent_usd', id] as const,
        ['spent_download_usd', downloadsOf(id)] as const,
      ])
        if (!(Math.abs(Number(data[field]) - (owed.get(key) ?? 0)) < TOLERANCE_USD))
          this.breach(`run ${id} has ${field} ${data[field]}, its incarnations cost $${owed.get(key) ?? 0}`);
  }

  /** A completed run paid for each read of its streams and for each shard; a run in the region of the bucket paid nothing. */
  #checkTraffic(run: string, {status, network_usd}: Document): void {
    const {config, store} = this.context;
    let usd = 0;
    for (const {id, data} of store.collection(paths.streams(run))) {
      usd += Number(data.network_usd);
      const least = config.region === null ? 0 : Number(data.size_bytes) + Number(data.total_bytes);
      if (data.status === 'completed' && Number(data.network_bytes) < least)
        this.breach(`${run}/${id} moved ${least} bytes between regions, and paid for ${data.network_bytes}`);
    }
    if (status === 'completed' && !(Math.abs(Number(network_usd) - usd) < 1e-12))
      this.breach(`run ${run} has $${network_usd} of network, and its streams $${usd}`);
    if (config.region === null && usd !== 0) this.breach(`run ${run} paid $${usd} of network in one region`);
  }

  /** A run without permission gets no TPU in another region. */
  onLease({run, stream, lease}: Document): void {
    const {config, store} = this.context;
    if (config.region === null || lease === null) return;
    if (store.peek(paths.run(String(run)))?.allow_cross_region !== true)
      this.breach(`${run}/${stream} was leased to another region without permission`);
  }

  /** Every simulated node is on spot. An incarnation that ended before its new price was read may keep the earlier price. */
  #checkBill(path: string, {worker, costs, ready_at, gone_at, seen_again_at}: Document): void {
    const {rise, storm, store} = this.context;
    const {zone, host_count} = store.peek(paths.worker(String(worker))) ?? {};
    const [from_ms, to_ms] = [Date.parse(String(ready_at)), Date.parse(String(gone_at))];
    const paid_h = timeUsd(costs as Costs) / usdPerHourIn(String(zone), Number(host_count ?? 1));
    const lived_h = (to_ms - from_ms) / 3_600_000;
    const most_h = rise.hours(from_ms, to_ms);
    const least_h = to_ms < rise.seen_ms + PRICE_READ_MINUTES * 60_000 ? lived_h : most_h;
    const error_h = (PRICES_TO_LIST * (MAX_ERROR_S + 2 * storm.skew_s)) / 3600;
    const isSeenAgain = seen_again_at !== undefined && paid_h <= most_h;
    if (!(paid_h >= least_h - error_h && paid_h <= most_h + error_h) && !isSeenAgain)
      this.breach(
        `${path} owes ${least_h} to ${most_h} hours of the list price, and is billed for ${paid_h}`,
      );
  }
}

/** The highest price of a world over the list price. */
const PRICES_TO_LIST = 3;

export function usdPerHourIn(zone: string, host_count = 1): number {
  const chip_usd = usdPerHour(LIST_PRICES, {accelerator: 'v5litepod-1', spot: true, zone}) ?? Number.NaN;
  return chip_usd * chipsOfHosts(host_count);
}
