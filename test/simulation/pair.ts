/** Two deployments in one project: two worlds with one clock, whose control planes see the nodes of both. */

import {T0} from '../world/builders.ts';
import {Clockwork} from '../world/clock.ts';
import {secondPoolOf} from './second-pool.ts';
import {SharedProject} from './shared-project.ts';
import {startWorld, type World} from './world.ts';

export type PairOutcome = {
  /** Violations of both worlds, and each change of a node of the other deployment. */
  violations: string[];
  /** Lists that showed nodes of the other deployment. */
  sightings: number;
  /** Nodes that were created, by deployment. */
  made: Record<string, number>;
};

/** Runs two worlds of different seeds. A deployment has its own bucket, Store, topics and operators; Cloud TPU is shared. */
export async function simulatePair(seed: number, names: readonly [string, string]): Promise<PairOutcome> {
  const clockwork = new Clockwork(T0);
  const worlds: World[] = [];
  for (const [index, deployment] of names.entries())
    worlds.push(await startWorld(2 * seed + index, {deployment, clockwork}));
  for (const {context} of worlds) {
    const others = worlds.filter(world => world.context !== context).map(world => world.context.tpus);
    context.project = new SharedProject(context.tpus, others);
  }
  const isBroken = () =>
    worlds.some(({context, isBroken}) => isBroken() || (context.project?.trespasses.length ?? 0) > 0);
  await clockwork.run(T0 + Math.max(...worlds.map(({storm_ms}) => storm_ms)), isBroken);
  for (const world of worlds) world.beginCalm();
  // Every world looks at the time since when it is idle.
  const areOver = () => worlds.map(world => world.isOver()).every(Boolean);
  await clockwork.run(
    clockwork.now + Math.max(...worlds.map(({calm_ms}) => calm_ms)),
    () => isBroken() || areOver(),
  );
  const outcome: PairOutcome = {violations: [], sightings: 0, made: {}};
  const {violations} = outcome;
  for (const [index, world] of worlds.entries()) {
    const deployment = names[index] ?? '';
    const {store, tpus, config, project} = world.context;
    for (const what of project?.trespasses ?? [])
      violations.push(`${deployment} ${what} of the other deployment`);
    outcome.sightings += project?.sightings ?? 0;
    const {violation} = world.end();
    if (violation) violations.push(`${deployment}: ${violation}`);
    outcome.made[deployment] = tpus.made.length;
    for (const {id, data} of store.collection('workers'))
      if (![config.pool.pool, secondPoolOf(config)].includes(String(data.pool)))
        violations.push(`${deployment} has a document of ${id}`);
  }
  return outcome;
}
