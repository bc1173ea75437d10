/** A world with one slot and its worker at work on my-run/000, and the end that must follow each loss of that worker. */
import assert from 'node:assert/strict';
import {World} from './control-plane-harness.ts';
import {A0, ONE_SLOT} from './places.ts';
import {someLines} from './shard-plan.ts';

/** A world in which A0 works on a stream of ten shards and has stored few shards or none. */
export async function aWorkingWorld(set: Record<string, string> = ONE_SLOT): Promise<World> {
  const world = new World(set);
  world.drop('my-run', 0, someLines(20));
  await world.until('work', () => world.agents.get(A0)?.state === 'working', 9, 1);
  return world;
}

/** A world in which A0 has stored the first of ten shards. */
export async function aWorldWithAShard(set: Record<string, string> = ONE_SLOT): Promise<World> {
  const world = new World(set);
  world.drop('my-run', 0, someLines(20));
  await untilAShard(world);
  return world;
}

export async function untilAShard(world: World): Promise<void> {
  const hasShard = async () => ((await world.stream('my-run', '000'))?.total_shards ?? 0) > 0;
  await world.until('a first shard', hasShard, 9, 1);
}

/** The run is completed with each sample stored once, and no failure is charged for a lost machine. */
export async function assertRecovered(world: World, text = someLines(20)): Promise<void> {
  await world.untilAsleep();
  await world.assertStoredOnce('my-run', '000', text);
  assert.equal((await world.run('my-run'))?.status, 'completed');
  assert.equal((await world.stream('my-run', '000'))?.failures, 0, 'a lost machine is no failure');
}
