/** Cases about a fleet of ten workers at work in one zone, unless a case begins otherwise. */
import type {World} from '../world.ts';
import {aFleet, firstLives} from './fleet.ts';

export type Case = {
  name: string;
  given?: () => Promise<World>;
  when: (world: World) => Promise<unknown>;
  then: (world: World) => Promise<unknown>;
};

export function runCases(cases: readonly Case[]): void {
  for (const {name, given = () => aFleet(10), when, then} of cases)
    it(name, async () => {
      const world = await given();
      await when(world);
      await then(world);
      await world.store.close();
    });
}

/** The number of workers that have ended their first incarnation. */
export const ended = async (world: World, workers: number) => workers - (await firstLives(world)).length;
