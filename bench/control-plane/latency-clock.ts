/** A clock on which each call of a port takes a fixed time: the figures depend on no machine. */
import {setImmediate as turn} from 'node:timers/promises';

/** Turns of the event loop after which no work of the process is left. */
const QUIET_TURNS = 4;

export class LatencyClock {
  now: number;
  #waiting: {at: number; done: () => void}[] = [];

  constructor(now: number) {
    this.now = now;
  }

  readonly sleep = (ms: number): Promise<void> =>
    new Promise(done => this.#waiting.push({at: this.now + ms, done}));

  /** Runs the work. Returns its seconds on this clock. */
  async seconds(work: () => Promise<unknown>): Promise<number> {
    const began = this.now;
    let isOver = false;
    const outcome = work().finally(() => {
      isOver = true;
    });
    // The loop ends with the work, and then awaits its error.
    outcome.catch(() => {});
    for (;;) {
      for (let turns = 0; turns < QUIET_TURNS; turns++) await turn();
      if (isOver) break;
      this.#wakeNext();
    }
    await outcome;
    return (this.now - began) / 1000;
  }

  #wakeNext(): void {
    if (this.#waiting.length === 0) return;
    const now = Math.min(...this.#waiting.map(({at}) => at));
    const due = this.#waiting.filter(({at}) => at === now);
    this.#waiting = this.#waiting.filter(({at}) => at !== now);
    this.now = now;
    for (const {done} of due) done();
  }
}
