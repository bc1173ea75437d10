/** Streams that are dropped within a minute, and the ticks that they wake, on a clock that is stepped. */
import {setImmediate as turn} from 'node:timers/promises';
import {TickQueue} from '../../shared/control-plane/calls/tick-queue.ts';
import {handleObjectEvent} from '../../shared/control-plane/events/object-event.ts';
import {Clockwork} from '../../test/world/clock.ts';
import {LONGEST_QUIET_TICK_S} from './limits.ts';
import type {World} from './world.ts';

/** The burst and its last ticks are over by then. */
const LONGEST_BURST_MS = 3_600_000;

/** A clock that stands still while real work is under way. */
class WorkClock extends Clockwork {
  readonly #working = new Set<Promise<unknown>>();

  readonly sleep = (ms: number): Promise<void> => new Promise(done => this.after(ms, done));

  async during(work: Promise<unknown>): Promise<void> {
    this.#working.add(work);
    await work.finally(() => this.#working.delete(work));
  }

  override async rest(): Promise<void> {
    do {
      await Promise.all(this.#working);
      await turn();
    } while (this.#working.size > 0);
  }
}

/**
 * Drops so many streams of one run, spread evenly over `within_s`. Each wakes the tick, and the Scheduler asks each minute, first after
 * half a minute. Returns the number of ticks. A tick takes as long as a quiet tick may take: its count depends on no machine.
 */
export async function dropStreams(world: World, drops: number, within_s: number): Promise<number> {
  const clock = new WorkClock(world.now);
  world.deps.now = () => clock.now;
  const queue = new TickQueue({now: world.deps.now, sleep: clock.sleep});
  const requests: Promise<void>[] = [];
  let ticks = 0;
  const tick = async () => {
    ticks += 1;
    await clock.during(world.tick());
    await clock.sleep(LONGEST_QUIET_TICK_S * 1000);
  };
  world.onWake = () => {
    requests.push(queue.request('wake', tick));
  };
  const drop = (name: string) => void clock.during(handleObjectEvent(world.deps, name));
  for (let index = 0; index < drops; index++)
    clock.after((index * within_s * 1000) / drops, () =>
      drop(`datasets/run-0/stream_${9_000_000 + index}.jsonl`),
    );
  for (let after_s = 30; after_s < within_s; after_s += 60)
    clock.after(after_s * 1000, () => {
      requests.push(queue.request('scheduler', tick));
    });
  await clock.run(world.now + LONGEST_BURST_MS);
  await Promise.all(requests);
  return ticks;
}
