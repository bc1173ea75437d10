/** Checks that an event that can change the plan causes a tick soon, and that a burst of events causes few ticks. */
import type {Context} from '../context.ts';
import {keepsWakes, MAX_HANG_MINUTES} from '../faults.ts';
import type {Violations} from './violations.ts';

/** Longer than a wake waits after a tick, and shorter than the interval of the Scheduler. */
const SOON_MS = 40_000;
/** The most ticks in a minute: one every ten seconds, the Scheduler's, and one more. */
const MAX_TICKS = 8;

export class Wakes {
  readonly #context: Context;
  readonly #violations: Violations;
  #calm_since_ms: number | undefined;
  /** The starts of the ticks of the last minute. */
  #started: number[] = [];

  constructor(context: Context, violations: Violations) {
    this.#context = context;
    this.#violations = violations;
  }

  onMinute(): void {
    const {clockwork, isCalm} = this.#context;
    if (isCalm) this.#calm_since_ms ??= clockwork.now;
  }

  onTickStarted(): void {
    const {now} = this.#context.clockwork;
    this.#started = [...this.#started, now].filter(at => now - at < 60_000);
    this.#violations.check(
      !this.#isCalm(60_000) || this.#started.length <= MAX_TICKS,
      () => `${this.#started.length} ticks started within a minute`,
    );
  }

  /** Expects a tick soon after an event that can change the plan. */
  expectTick(why: string): void {
    // A function that crashes by plan may crash before it sends its wake.
    const {options, storm} = this.#context;
    if (options.crashes || (!this.#isCalm(0) && !keepsWakes(storm))) return;
    const {now} = this.#context.clockwork;
    this.#context.after(SOON_MS, () =>
      this.#violations.check(
        this.#started.some(at => at >= now),
        () => `${why}, and no tick started within ${SOON_MS} ms`,
      ),
    );
  }

  /** True if the calm has lasted for this time after the longest hang of a call. */
  #isCalm(longer_ms: number): boolean {
    const since_ms = this.#calm_since_ms ?? Number.POSITIVE_INFINITY;
    return this.#context.clockwork.now - since_ms > MAX_HANG_MINUTES * 60_000 + longer_ms;
  }
}
