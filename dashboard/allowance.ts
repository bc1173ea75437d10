/** Dollars that the reads of open pages may cost: a dollar a month in the long run, and the dollars of a day at once. */
import {UNIT_PRICES} from '../shared/domain/billing/unit-prices.ts';

const MONTH_MS = 30 * 86_400_000;
const USD_A_MONTH = 1;
const MOST_USD = USD_A_MONTH / 30;

/** Operations that are billed: documents of Firestore, and operations of Cloud Storage of class A and B. */
export type Operation = 'firestore_read' | 'class_a' | 'class_b';

export class Allowance {
  #usd = MOST_USD;
  #at_ms: number;
  readonly #now: () => number;

  constructor(now: () => number) {
    this.#now = now;
    this.#at_ms = now();
  }

  spend(operation: Operation, count: number): void {
    this.#grow();
    this.#usd -= count * UNIT_PRICES[operation];
  }

  /** Milliseconds until the dollars that are spent have come in. 0: a poll may start. */
  waitMs(): number {
    this.#grow();
    return this.#usd >= 0 ? 0 : Math.ceil((-this.#usd / USD_A_MONTH) * MONTH_MS);
  }

  #grow(): void {
    const now = this.#now();
    this.#usd = Math.min(MOST_USD, this.#usd + ((now - this.#at_ms) / MONTH_MS) * USD_A_MONTH);
    this.#at_ms = now;
  }
}
