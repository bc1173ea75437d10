/** Histories of events that are played in many orders. */
import {seeded} from '../clock.ts';
import {someLines} from '../shard-plan.ts';
import type {World} from '../world.ts';

const ORDERS = Number(process.env.GLEANER_ORDERS ?? 6);

type Job = () => Promise<unknown>;

/** `then` must hold in each order of the events. */
export type History = {
  name: string;
  given: () => Promise<World>;
  events: (world: World) => Job[];
  then: (world: World) => Promise<void>;
};

export const tick = (world: World) => () => world.tick();

/** Delivers the oldest messages at once. */
export const deliver = (world: World, count = 1): Job[] =>
  Array.from({length: count}, () => () => world.deliver());

/** Drops a stream of two lines after some steps of the other events, and delivers its event and the wake that follows. */
export const dropAfter =
  (world: World, pauses: number, index: number): Job =>
  async () => {
    for (let pause = 0; pause < pauses; pause++) await world.interleaver.pause();
    world.drop('my-run', index, someLines(2, String(index)));
    await world.deliverNext('object');
    await world.deliverNext('tick');
  };

/** The events interleave at every call of a port. */
export async function playInManyOrders({given, events, then}: History): Promise<void> {
  for (let seed = 0; seed < ORDERS; seed++) {
    const world = await given();
    await world.interleaver.run(seeded(seed), events(world));
    await then(world).catch((error: Error) => {
      error.message = `In order ${seed}: ${error.message}`;
      throw error;
    });
    await world.store.close();
  }
}
