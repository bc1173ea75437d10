/**
 * Turns a burst of wakes into a few ticks. One tick runs at a time. After a tick, wakes pause for ten seconds or five times its length,
 * whichever is longer. The first wake waits for the end of the pause; further wakes only set a flag and are acknowledged. The Scheduler's
 * message is never paused.
 */
import {LONGEST_TICK_S} from '../../domain/worker/nodes.ts';
import type {Now} from '../../ports/ports.ts';

export type TickSource = 'wake' | 'scheduler';

const SHORTEST_PAUSE_MS = 10_000;
const PAUSE_PER_TICK = 5;
/** A request may begin a tick this long after its start. A later wake waits for the Scheduler. */
const LONGEST_REQUEST_MS = 240_000;

/** A longer tick counts as over, so that a hanging call does not stop all ticks. */
const LONGEST_TICK_MS = LONGEST_TICK_S * 1000;

type Clock = {now: Now; sleep: (ms: number) => Promise<void>};

export class TickQueue {
  readonly #clock: Clock;
  #running_since_ms: number | undefined;
  #isWaiting = false;
  /** True if a wake came since the last tick began, and no request waits for it. */
  #isFlagged = false;
  #begun = 0;
  /** Ends the wait of the waiting request when a tick begins. */
  #onBegun: () => void = () => {};
  #paused_until_ms = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Runs a tick for a message, or leaves the tick to the request that runs or waits. Rethrows errors of the tick. */
  async request(source: TickSource, tick: () => Promise<void>): Promise<void> {
    const last_ms = this.#clock.now() + LONGEST_REQUEST_MS;
    if (source === 'scheduler') {
      if (this.#isRunning()) return;
      await this.#run(tick);
    } else if (this.#isRunning() || this.#isWaiting) this.#isFlagged = true;
    else await this.#runAfterPause(tick, last_ms);
    while (this.#isFlagged && !this.#isRunning() && !this.#isWaiting)
      if (!(await this.#runAfterPause(tick, last_ms))) return;
  }

  /** False if the pause ends too late for this request. */
  async #runAfterPause(tick: () => Promise<void>, last_ms: number): Promise<boolean> {
    if (this.#paused_until_ms > last_ms) return false;
    const before = this.#begun;
    this.#isWaiting = true;
    try {
      const isBegun = new Promise<void>(resolve => {
        this.#onBegun = resolve;
      });
      for (let left = this.#left(); left > 0 && this.#begun === before; left = this.#left())
        await Promise.race([this.#clock.sleep(left), isBegun]);
    } finally {
      this.#isWaiting = false;
    }
    // A tick that the Scheduler started during the pause has seen the change that this wake announced.
    if (this.#begun > before && !this.#isFlagged) return true;
    if (this.#isRunning()) this.#isFlagged = true;
    else await this.#run(tick);
    return true;
  }

  #isRunning(): boolean {
    const since_ms = this.#running_since_ms;
    return since_ms !== undefined && this.#clock.now() - since_ms < LONGEST_TICK_MS;
  }

  #left(): number {
    return this.#paused_until_ms - this.#clock.now();
  }

  async #run(tick: () => Promise<void>): Promise<void> {
    const began_ms = this.#clock.now();
    this.#running_since_ms = began_ms;
    this.#isFlagged = false;
    this.#begun += 1;
    this.#onBegun();
    try {
      await tick();
    } finally {
      const now = this.#clock.now();
      this.#paused_until_ms = now + Math.max(SHORTEST_PAUSE_MS, PAUSE_PER_TICK * (now - began_ms));
      if (this.#running_since_ms === began_ms) this.#running_since_ms = undefined;
    }
  }
}
