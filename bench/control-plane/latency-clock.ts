/** A clock on which each call of a port takes a fixed time: the figures depend on no machine. */
import {setImmediate as turn} from 'node:timers/promises';
import {Clockwork} from '../../test/world/clock.ts';

/** Turns of the event loop after which no work of the process is left. */
const QUIET_TURNS = 4;

export class LatencyClock extends Clockwork {
  readonly sleep = (ms: number): Promise<void> => new Promise(done => this.after(ms, done));

  override async rest(): Promise<void> {
    for (let turns = 0; turns < QUIET_TURNS; turns++) await turn();
  }

  /** Runs the work. Returns its seconds on this clock. */
  async seconds(work: () => Promise<unknown>): Promise<number> {
    const began = this.now;
    let isOver = false;
    const outcome = work().finally(() => {
      isOver = true;
    });
    // The events end with the work, whose error is awaited then.
    outcome.catch(() => {});
    await this.rest();
    await this.run(Number.MAX_SAFE_INTEGER, () => isOver);
    await outcome;
    return (this.now - began) / 1000;
  }
}
