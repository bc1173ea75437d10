/** Checks that an event that can change the plan causes a tick soon, and that a burst of events causes few ticks. */
import {keepsWakes} from '../conditions/faults.ts';
import {Check} from './violations.ts';

/** Longer than a wake waits after a short tick, and shorter than the interval of the Scheduler. */
const SOON_MS = 40_000;
/** A wake waits so many times as long as the last tick took, or until the Scheduler's next tick. */
const WAITS = 5;
const SCHEDULER_MS = 60_000;
/** The most ticks in a minute: one every ten seconds, the Scheduler's, and one more. */
const MAX_TICKS = 8;

export class Wakes extends Check {
  /** The starts of the ticks of the last minute. */
  #started: number[] = [];
  #took_ms = 0;

  onTickStarted(): void {
    const {now} = this.context.clockwork;
    this.#started = [...this.#started, now].filter(at => now - at < 60_000);
    if (this.context.isSettled(60_000) && this.#started.length > MAX_TICKS)
      this.breach(`${this.#started.length} ticks started within a minute`);
  }

  onTickEnded({at}: {at: number}): void {
    this.#took_ms = this.context.clockwork.now - at;
  }

  /** Expects a tick soon after an event that can change the plan. */
  expectTick(why: string): void {
    // A function that crashes by plan may crash before it sends its wake.
    const {options, storm} = this.context;
    if (options.crashes || (!this.context.isSettled() && !keepsWakes(storm))) return;
    const {now} = this.context.clockwork;
    const soon_ms = SOON_MS + Math.min(WAITS * this.#took_ms, SCHEDULER_MS);
    this.context.after(soon_ms, () => {
      if (!this.#started.some(at => at >= now))
        this.breach(`${why}, and no tick started within ${soon_ms} ms`);
    });
  }
}
