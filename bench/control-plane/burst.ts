/** Streams that are dropped within a minute, and the ticks that they wake, on a clock that is stepped. */
import {setImmediate as turn} from 'node:timers/promises';
import {handleObjectEvent} from '../../shared/control-plane/handlers/object-event.ts';
import {TickQueue} from '../../shared/control-plane/state/tick-queue.ts';
import {LONGEST_QUIET_TICK_S} from './limits.ts';
import type {World} from './world.ts';

/** Things to do, each at its time. Real work takes no time on this clock. */
class Agenda {
  readonly #world: World;
  readonly #due: {at_ms: number; act: () => unknown}[] = [];
  readonly #working = new Set<Promise<unknown>>();

  constructor(world: World) {
    this.#world = world;
  }

  at(at_ms: number, act: () => unknown): void {
    this.#due.push({at_ms, act});
  }

  readonly sleep = (ms: number): Promise<void> =>
    new Promise(done => {
      this.at(this.#world.now + ms, done);
    });

  /** The clock stands still until the work is done. */
  async during(work: Promise<unknown>): Promise<void> {
    this.#working.add(work);
    await work.finally(() => this.#working.delete(work));
  }

  /** Steps the clock until nothing is due. */
  async run(): Promise<void> {
    for (;;) {
      do {
        await Promise.all(this.#working);
        await turn();
      } while (this.#working.size > 0);
      this.#due.sort((one, other) => one.at_ms - other.at_ms);
      const next = this.#due.shift();
      if (!next) return;
      this.#world.now = Math.max(this.#world.now, next.at_ms);
      await next.act();
    }
  }
}

/**
 * Drops so many streams of one run, spread evenly over `within_s`. Each wakes the tick, and the Scheduler asks each minute, first after
 * half a minute. Returns the number of ticks. A tick takes as long as a quiet tick may take: its count depends on no machine.
 */
export async function dropStreams(world: World, drops: number, within_s: number): Promise<number> {
  const agenda = new Agenda(world);
  const queue = new TickQueue({now: () => world.now, sleep: agenda.sleep});
  const requests: Promise<void>[] = [];
  let ticks = 0;
  const tick = async () => {
    ticks += 1;
    await agenda.during(world.tick());
    await agenda.sleep(LONGEST_QUIET_TICK_S * 1000);
  };
  world.onWake = () => {
    requests.push(queue.request('wake', tick));
  };
  const began_ms = world.now;
  for (let drop = 0; drop < drops; drop++)
    agenda.at(began_ms + (drop * within_s * 1000) / drops, () =>
      handleObjectEvent(world.deps, `datasets/run-0/stream_${9_000_000 + drop}.jsonl`),
    );
  for (let at_s = 30; at_s < within_s; at_s += 60)
    agenda.at(began_ms + at_s * 1000, () => {
      requests.push(queue.request('scheduler', tick));
    });
  await agenda.run();
  await Promise.all(requests);
  return ticks;
}
