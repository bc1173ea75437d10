import {someLines} from '../shard-plan.ts';
import type {World} from '../world.ts';
import {aWorldWithAStream} from './one-worker.ts';

/** Every document of runs, streams and shards, without its times and costs. */
export async function documentsOf(world: World) {
  const runs = await world.store.query('runs');
  const streams = (await Promise.all(runs.map(({path}) => world.store.query(`${path}/streams`)))).flat();
  const shards = (await Promise.all(streams.map(({path}) => world.store.query(`${path}/shards`)))).flat();
  const still = ({path, data}: {path: string; data: object}) => {
    // The bundle of a run is that of its next lease.
    const past = [
      'created_at',
      'updated_at',
      'changed_at',
      'paused_at',
      // Points of the life before.
      'history',
      'epoch',
      'ended_epoch',
      'lease_key',
      'lease_shards',
      'kept_shards',
      'cost_usd',
      'spent_usd',
      'preemptions',
      'bundle',
    ];
    return [path, Object.entries(data).filter(([field]) => !past.includes(field))];
  };
  return [...runs, ...streams, ...shards].map(still);
}

/** Two finished runs: my-run with two streams, and other. */
export async function aDoneWorld(): Promise<World> {
  const world = aWorldWithAStream(20);
  world.drop('my-run', 1, someLines(5, 'b'));
  world.drop('other', 0, someLines(3, 'c'));
  await world.untilAsleep();
  return world;
}
