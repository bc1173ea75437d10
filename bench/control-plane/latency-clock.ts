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
    const outcome: {error?: unknown; isOver: boolean} = {isOver: false};
    work().then(
      () => {
        outcome.isOver = true;
      },
      error => Object.assign(outcome, {isOver: true, error}),
    );
    for (;;) {
      for (let turns = 0; turns < QUIET_TURNS; turns++) await turn();
      if (outcome.isOver) break;
      if (this.#waiting.length === 0) continue;
      this.now = Math.min(...this.#waiting.map(({at}) => at));
      const [due, later] = [true, false].map(isDue =>
        this.#waiting.filter(({at}) => at <= this.now === isDue),
      );
      this.#waiting = later ?? [];
      for (const {done} of due ?? []) done();
    }
    if (outcome.error) throw outcome.error;
    return (this.now - began) / 1000;
  }
}
