/**
 * Checks the promise about caps in dollars: the true cost of a pool, a month or a run exceeds its budget by at most one tick and the time of
 * a delete of its nodes. The true cost is what the nodes cost from READY until they are gone, and what they report to have downloaded.
 */
import {costOfDeleting, downloadsOf, payerOf, payerOfWork} from '../../../shared/domain/billing/cost.ts';
import {networkBytePrice, UNIT_PRICES} from '../../../shared/domain/billing/unit-prices.ts';
import {parseWorkerName, paths, regionOf} from '../../../shared/domain/names.ts';
import type {Received, Worker} from '../../../shared/domain/records/worker.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {DELETE_S, type FakeNode, TAKEN} from '../../world/tpus.ts';
import {type Faults, MAX_HANG_MINUTES} from '../conditions/faults.ts';
import {MINUTE_MS} from '../conditions/times.ts';
import {poolsOf, usdPerHourIn} from './money.ts';
import {Check} from './violations.ts';

const HOUR_MS = 3_600_000;
/** Time between two looks at the nodes. */
export const LOOK_MS = 5_000;

/** The bill of a node may start this much late: see readySince. A commit that hangs makes it later. */
const UNSEEN_MINUTES = 5;

/** Faults that delay a delete after its decision, or lose it until it is sent again. */
const DELETE_FAULTS: (keyof Faults)[] = [
  ...(['loss', 'delay_s', 'refusal', 'silence', 'latency_ms', 'hang', 'crash', 'aim'] as const),
  ...(['store_outage', 'permission', 'partition', 'stuck'] as const),
];

/**
 * True dollars of a budget. `over_usd`: dollars since only the cost of deletes was left, without those that no decision could save.
 * `usd_per_hour`: of its nodes at that time, or of more nodes since.
 */
const NOTHING: Received = {nat_bytes: 0, bucket_bytes: 0, other_bytes: 0};

type Account = {spent_usd: number; over_usd: number; usd_per_hour: number};

export class Caps extends Check {
  readonly #accounts = new Map<string, Account>();
  #looked_ms = 0;
  /** Start of the last tick that completed. */
  #tick_ms = 0;
  #isWiped = false;
  /** Bytes that each incarnation has reported, by the path of its record, and their dollars. */
  readonly #reported = new Map<string, {bytes: Received; usd: number}>();
  /** Dollars of each incarnation whose document has no READY node yet, by the path of its record. */
  readonly #unseen = new Map<string, number>();
  /** Dollars of each incarnation beyond the earlier price, by the path of its record. */
  readonly #unpriced = new Map<string, number>();

  override onWipe(): void {
    this.#isWiped = true;
  }

  onTickEnded({at}: {at: number}): void {
    this.#tick_ms = Math.max(this.#tick_ms, at);
  }

  /** A report of downloads was taken: its new bytes belong to the work of the worker. Those of a worker without work wait for its next one. */
  onWorker(name: string, before: Document, after: Document): void {
    this.#forgetUnseen(name, before, after);
    this.#forgetUnpriced(name, before, after);
    const {received} = this.violations.request ?? {};
    const worker = after as unknown as Worker;
    if (!received || payerOfWork(worker.work) === undefined) return;
    const path = paths.attempt(name, worker.incarnation);
    const {bytes, usd} = this.#reported.get(path) ?? {bytes: NOTHING, usd: 0};
    const prices = this.#bytePrices(worker.zone);
    const all = {...bytes};
    let more_usd = 0;
    for (const way of Object.keys(NOTHING) as (keyof Received)[]) {
      all[way] = Math.max(bytes[way], received[way]);
      more_usd += (all[way] - bytes[way]) * prices[way];
    }
    this.#reported.set(path, {bytes: all, usd: usd + more_usd});
    for (const budget of budgetsOf(worker)) this.#accountOf(budget).spent_usd += more_usd;
  }

  /**
   * No bill can have the cost of a node before any list or word showed it READY: during an outage, and of a node that was taken unseen.
   * The creation of a node in a queue that no list has shown begins at an unknown time.
   */
  #forgetUnseen(name: string, before: Document, after: Document): void {
    const isTaken = after.phase === 'deleting' && before.phase !== 'deleting' && after.ready_at === null;
    const isShown = before.ready_at === null && typeof after.ready_at === 'string';
    if (!isTaken && !isShown) return;
    const {clockwork, rise, storm} = this.context;
    const billed_h = isShown ? rise.hours(Date.parse(String(after.ready_at)), clockwork.now) : 0;
    const life_usd = this.#unseen.get(paths.attempt(name, Number(after.incarnation))) ?? 0;
    const price = usdPerHourIn(String(after.zone), Number(after.host_count ?? 1));
    const late_usd = Math.max(0, life_usd - billed_h * price);
    const isOfUnknownAge = before.provisioning !== 'node' && before.provider_state === null;
    const late_h = (UNSEEN_MINUTES + (storm.hang > 0 ? MAX_HANG_MINUTES : 0)) / 60;
    const unseen_usd = isShown && !isOfUnknownAge ? Math.min(late_usd, late_h * price) : late_usd;
    for (const budget of budgetsOf(after as unknown as Worker))
      this.#accountOf(budget).spent_usd -= unseen_usd;
  }

  /** No bill can have a price that was hidden when the incarnation ended. */
  #forgetUnpriced(name: string, before: Document, after: Document): void {
    const {clockwork, rise} = this.context;
    const isBilled = after.phase === 'gone' && before.phase !== 'gone' && after.ready_at !== null;
    if (!isBilled || clockwork.now >= rise.seen_ms) return;
    const unpriced_usd = this.#unpriced.get(paths.attempt(name, Number(after.incarnation))) ?? 0;
    for (const budget of budgetsOf(after as unknown as Worker))
      this.#accountOf(budget).spent_usd -= unpriced_usd;
  }

  #bytePrices(zone: string): Received {
    const {region} = this.context.config;
    const to = (other: string) => (region === null ? 0 : networkBytePrice(regionOf(zone), other));
    return {nat_bytes: UNIT_PRICES.nat_byte, bucket_bytes: to(region ?? ''), other_bytes: to('unknown')};
  }

  #accountOf(budget: string): Account {
    const account = this.#accounts.get(budget) ?? {spent_usd: 0, over_usd: 0, usd_per_hour: 0};
    this.#accounts.set(budget, account);
    return account;
  }

  /** Every reported download is billed once. */
  override atTheEnd(): void {
    if (this.#isWiped) return;
    for (const [path, {usd}] of this.#reported) {
      const {costs, gone_at} = this.context.store.peek(path) ?? {};
      if (gone_at === undefined) continue;
      const paid = Object.entries(costs as Record<string, number>).filter(([key]) =>
        key.startsWith(downloadsOf('')),
      );
      const paid_usd = paid.reduce((sum, [, each]) => sum + each, 0);
      if (!(Math.abs(paid_usd - usd) < 1e-9))
        this.breach(`${path} has downloaded for $${usd}, and is billed for $${paid_usd}`);
    }
  }

  /** Adds the cost of the nodes since the last look, and compares it with the budgets. */
  look(): void {
    const {clockwork, rise, store, tpus} = this.context;
    const {now} = clockwork;
    const since_ms = this.#looked_ms;
    this.#looked_ms = now;
    // A lost database loses what the nodes have cost.
    if (since_ms === 0 || this.#isWiped) return;
    const budgets = this.#budgets();
    const rates = new Map<string, number>();
    for (const node of tpus.nodes.values()) {
      const worker = store.peek(paths.worker(node.name)) as Worker | undefined;
      const isKnown = worker?.incarnation === Number(node.metadata['gleaner-incarnation']);
      if (!worker || !isKnown || !isPaidFor(node)) continue;
      const from_ms = Math.max(since_ms, isReadySince(node));
      const price = usdPerHourIn(node.zone, worker.host_count);
      const usd = rise.hours(from_ms, now) * price;
      const isSaved = this.#canBeSaved(worker, node, now);
      const life = paths.attempt(worker.name, worker.incarnation);
      const unpriced_usd = usd - ((now - from_ms) / HOUR_MS) * price;
      this.#unpriced.set(life, (this.#unpriced.get(life) ?? 0) + unpriced_usd);
      if (worker.ready_at === null) this.#unseen.set(life, (this.#unseen.get(life) ?? 0) + usd);
      for (const budget of budgetsOf(worker)) {
        const account = this.#accountOf(budget);
        account.spent_usd += usd;
        const isOver =
          account.spent_usd + costOfDeleting(account.usd_per_hour) >=
          (budgets.get(budget) ?? Number.POSITIVE_INFINITY);
        account.over_usd = isOver ? account.over_usd + (isSaved ? usd : 0) : 0;
        rates.set(budget, (rates.get(budget) ?? 0) + (usd * HOUR_MS) / (now - since_ms));
      }
    }
    for (const [budget, account] of this.#accounts) {
      const rate = rates.get(budget) ?? 0;
      account.usd_per_hour = account.over_usd > 0 ? Math.max(account.usd_per_hour, rate) : rate;
      const allowed_usd = (account.usd_per_hour * this.#allowed_ms()) / HOUR_MS;
      if (account.over_usd > allowed_usd)
        this.breach(
          `${budget} of $${budgets.get(budget)} has cost $${account.spent_usd}: decisions could have saved $${account.over_usd}, and $${allowed_usd} are allowed`,
        );
    }
  }

  /** Budgets by what pays from them. */
  #budgets(): Map<string, number> {
    const {config, store} = this.context;
    const runs = store.collection('runs').map(({id, data}) => [`run ${id}`, data.budget_usd] as const);
    const pools = poolsOf(this.context).map(({pool, budget_usd}) => [`pool ${pool}`, budget_usd] as const);
    const all = [...runs, ...pools, ['the month', config.ceilings.max_budget_usd] as const];
    return new Map(all.flatMap(([name, usd]) => (typeof usd === 'number' ? [[name, usd]] : [])));
  }

  /** A tick, a delete, and the clocks of the instances that decide. */
  #allowed_ms(): number {
    return MINUTE_MS + DELETE_S.most * 1000 + 2 * this.context.storm.skew_s * 1000 + LOOK_MS;
  }

  /**
   * True if a decision can end the cost now: a tick completes each minute, the price is known, no decided delete is late, and Google has
   * shown that the node is READY.
   */
  #canBeSaved({phase, ready_at}: Worker, {state}: FakeNode, now: number): boolean {
    const {rise, storm} = this.context;
    const isTickLate = now - this.#tick_ms > MINUTE_MS;
    const isPriceHidden = rise.since_ms <= now && now < rise.seen_ms;
    const isDeleteLate = phase === 'deleting' && DELETE_FAULTS.some(fault => storm[fault] > 0);
    const isHidden = ready_at === null && state !== 'READY';
    return !isTickLate && !isPriceHidden && !isDeleteLate && !isHidden;
  }
}

function budgetsOf(worker: Worker): string[] {
  const payer = payerOf(worker);
  return [`pool ${parseWorkerName(worker.name)?.pool}`, 'the month', ...(payer ? [`run ${payer}`] : [])];
}

/** True from READY on, until the node is gone or was taken away. */
function isPaidFor({state, before}: FakeNode): boolean {
  const isOf = (shown: string) => shown !== 'CREATING' && !TAKEN.includes(shown);
  return isOf(state) && (state !== 'DELETING' || isOf(before));
}

function isReadySince({state, before, changed_at}: FakeNode): number {
  return state === 'READY' && before === 'CREATING' ? changed_at : 0;
}
