/** Scenes that are played in many orders. */

import {seeded} from '../fakes/kernel.ts';
import type {World} from './control-plane-harness.ts';
import {someLines} from './shard-plan.ts';

export const ORDERS = Number(process.env.GLEANER_ORDERS ?? 6);

type Job = () => Promise<unknown>;

/** Plays a scene in many orders: its jobs interleave at every call of a port, and `then` must hold in each order. */
export function inEveryOrder(
  title: string,
  scene: {
    given: () => Promise<World>;
    when: (world: World) => Job[];
    then: (world: World) => Promise<void>;
  },
): void {
  it(title, async () => {
    for (let seed = 0; seed < ORDERS; seed++) {
      const world = await scene.given();
      await world.interleaver.run(seeded(seed), scene.when(world));
      await scene.then(world).catch((error: Error) => {
        error.message = `In order ${seed}: ${error.message}`;
        throw error;
      });
      await world.store.close();
    }
  });
}

export const tick = (world: World) => () => world.tick();

/** Delivers the oldest messages at once. */
export const deliver = (world: World, count = 1): Job[] =>
  Array.from({length: count}, () => () => world.deliver());

/** Drops a stream of two lines after some steps of the other jobs, and delivers its event and the wake that follows. */
export const dropAfter =
  (world: World, pauses: number, index: number): Job =>
  async () => {
    for (let pause = 0; pause < pauses; pause++) await world.interleaver.pause();
    world.drop('my-run', index, someLines(2, String(index)));
    await world.deliverNext('object');
    await world.deliverNext('tick');
  };
