/** An event that can change the plan brings a tick soon where no wake is lost, and a burst of events brings few ticks. */
import type {Context} from '../context.ts';
import {keepsWakes, MOST_LATE_MINUTES} from '../faults.ts';
import type {Violations} from './violations.ts';

/** Longer than a wake waits after a tick, and shorter than the Scheduler's minute. */
const SOON_MS = 40_000;
/** Ticks of a minute: one every ten seconds, the Scheduler's, and one more. */
const MOST_TICKS = 8;

export class Wakes {
  readonly #context: Context;
  readonly #violations: Violations;
  #calm_since_ms: number | undefined;
  /** When the ticks of the last minute began. */
  #begun: number[] = [];

  constructor(context: Context, violations: Violations) {
    this.#context = context;
    this.#violations = violations;
  }

  onMinute(): void {
    const {clockwork, isCalm} = this.#context;
    if (isCalm) this.#calm_since_ms ??= clockwork.now;
  }

  onTickBegun(): void {
    const {now} = this.#context.clockwork;
    this.#begun = [...this.#begun, now].filter(at => now - at < 60_000);
    this.#violations.check(
      !this.#isCalm(60_000) || this.#begun.length <= MOST_TICKS,
      () => `${this.#begun.length} ticks began within a minute`,
    );
  }

  /** Something has happened that can change the plan. */
  expectTick(why: string): void {
    // A function that dies by plan may take its wake with it.
    const {options, storm} = this.#context;
    if (options.crashes || (!this.#isCalm(0) && !keepsWakes(storm))) return;
    const {now} = this.#context.clockwork;
    this.#context.after(SOON_MS, () =>
      this.#violations.check(
        this.#begun.some(at => at >= now),
        () => `${why}, and no tick began within ${SOON_MS} ms`,
      ),
    );
  }

  /** True if the calm has lasted for so much longer than a call may hang. */
  #isCalm(longer_ms: number): boolean {
    const since_ms = this.#calm_since_ms ?? Number.POSITIVE_INFINITY;
    return this.#context.clockwork.now - since_ms > MOST_LATE_MINUTES * 60_000 + longer_ms;
  }
}
