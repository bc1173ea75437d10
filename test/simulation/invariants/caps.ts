/**
 * Checks the promise about caps in dollars: the true cost of a pool, a month or a run exceeds its budget by at most one tick and the time of
 * a delete of its nodes. The true cost is what the nodes cost from READY until they are gone, whatever the documents say.
 */
import {costOfDeleting, payerOf} from '../../../shared/domain/billing/cost.ts';
import {parseWorkerName, paths} from '../../../shared/domain/names.ts';
import type {Worker} from '../../../shared/domain/worker/worker.ts';
import {DELETE_S, type FakeNode, TAKEN} from '../../support/fake-tpus.ts';
import {MINUTE_MS} from '../context.ts';
import type {Faults} from '../faults.ts';
import {poolsOf, usdPerHourIn} from './money.ts';
import {Check} from './violations.ts';

const HOUR_MS = 3_600_000;
/** Time between two looks at the nodes. */
export const LOOK_MS = 5_000;

/** Faults that delay a delete after its decision, or lose it until it is sent again. */
const DELETE_FAULTS: (keyof Faults)[] = [
  ...(['loss', 'delay_s', 'refusal', 'silence', 'latency_ms', 'hang', 'crash', 'aim'] as const),
  ...(['store_outage', 'permission', 'partition', 'stuck'] as const),
];

/**
 * True dollars of a budget. `over_usd`: dollars since only the cost of deletes was left, without those that no decision could save.
 * `usd_per_hour`: of its nodes at that time, or of more nodes since.
 */
type Account = {spent_usd: number; over_usd: number; usd_per_hour: number};

export class Caps extends Check {
  readonly #accounts = new Map<string, Account>();
  #looked_ms = 0;
  /** Start of the last tick that completed. */
  #tick_ms = 0;
  #isWiped = false;

  override onWipe(): void {
    this.#isWiped = true;
  }

  onTickEnded({at}: {at: number}): void {
    this.#tick_ms = Math.max(this.#tick_ms, at);
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
      const hours = rise.hours(Math.max(since_ms, isReadySince(node)), now);
      const usd = hours * usdPerHourIn(node.zone);
      const isSaved = this.#canBeSaved(worker, now);
      for (const budget of budgetsOf(worker)) {
        const account = this.#accounts.get(budget) ?? {spent_usd: 0, over_usd: 0, usd_per_hour: 0};
        this.#accounts.set(budget, account);
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

  /** True if a decision can end the cost now: a tick completes each minute, the price is known, and no decided delete is late. */
  #canBeSaved({phase}: Worker, now: number): boolean {
    const {rise, storm} = this.context;
    const isTickLate = now - this.#tick_ms > MINUTE_MS;
    const isPriceHidden = rise.since_ms <= now && now < rise.seen_ms;
    const isDeleteLate = phase === 'deleting' && DELETE_FAULTS.some(fault => storm[fault] > 0);
    return !isTickLate && !isPriceHidden && !isDeleteLate;
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
