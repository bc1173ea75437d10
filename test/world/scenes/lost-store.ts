/** Worlds whose database is lost while nodes and shards are there. */

import {someLines} from '../shard-plan.ts';
import {World} from '../world.ts';
import {aWorldWithSpec} from './one-worker.ts';
import {ZONE} from './places.ts';

/** A world with `size` workers in one zone. Each works on its own stream and has stored a shard of it. */
export async function aStoringFleet(size: number, settings: Record<string, string> = {}): Promise<World> {
  const world = new World({
    GLEANER_ZONES: ZONE,
    GLEANER_WORKERS_PER_ZONE: String(Math.max(1, size)),
    ...settings,
  });
  for (let index = 0; index < size; index++) world.drop('my-run', index, someLines(400, String(index)));
  const hasShard = async (_: unknown, index: number) =>
    ((await world.stream('my-run', String(index).padStart(3, '0')))?.total_shards ?? 0) > 0;
  const stored = () => Promise.all(Array.from({length: size}, hasShard));
  await world.until('a shard of each', async () => (await stored()).every(is => is), 20, 1);
  return world;
}

/** The alerts about nodes without a document. */
export function orphanAlerts(world: World): string[] {
  return world.logs.filter(({message}) => /have no document/.test(message)).map(({message}) => message);
}

/** A world whose database was lost when three shards of my-run's two streams were stored. */
export async function aWipedWorld(): Promise<World> {
  const world = aWorldWithSpec('{"seed": 7, "priority": 3}', 20);
  world.drop('my-run', 1, someLines(4, 'b'));
  await world.until(
    'some shards',
    async () => ((await world.stream('my-run', '000'))?.total_shards ?? 0) >= 3,
    20,
    1,
  );
  await world.wipe();
  return world;
}
