/** Scenes of one tick, and of the resync of the bucket. */
import {UNFINISHED} from '../../shared/control-plane/documents/documents.ts';
import {pagesOf} from '../../shared/control-plane/documents/pages.ts';
import {startTask} from '../../shared/control-plane/documents/tasks.ts';
import {paths} from '../../shared/domain/names.ts';
import {iso} from '../../shared/domain/time.ts';
import type {Tpu} from '../../shared/ports/ports.ts';
import {RUNS, runName, workersOf} from './scene.ts';
import type {Scene, Work} from './scene-work.ts';
import type {World} from './world.ts';

const ROUNDS = 5;

/** Runs a tick, so that the next tick finds nothing new. */
async function quietMinute(world: World): Promise<void> {
  await world.tick();
  await world.minute();
}

function aTick(world: World): Work {
  return {run: () => world.tick()};
}

function withEvery(nodes: readonly Tpu[], nth: number, change: Partial<Tpu>): Tpu[] {
  return nodes.map((tpu, index) => (index % nth === 0 ? {...tpu, ...change} : tpu));
}

/** Pauses the last run, completes every other run long ago, and deletes every living worker. Gone workers are left. */
async function empty(world: World): Promise<void> {
  world.nodes = [];
  const updated_at = iso(world.now - 2 * 86_400_000);
  await world.changeRuns({status: 'completed', streams_pending: 0, streams_in_progress: 0, updated_at});
  for (let run = 0; run < RUNS; run++) {
    const isPaused = run === RUNS - 1;
    if (isPaused) await world.changeRun(runName(run), {status: 'paused'});
    const status = isPaused ? 'pending' : 'completed';
    for await (const page of pagesOf(world.store, paths.streams(runName(run)), {where: [UNFINISHED]}))
      await world.change(page.map(({path, data}) => [path, {...data, status, lease: null}]));
  }
  const living = workersOf(world.size).map(({name}) => name);
  for (let first = 0; first < living.length; first += 400)
    await world.store.transaction(async tx => {
      for (const name of living.slice(first, first + 400)) tx.delete(`workers/${name}`);
    });
}

async function aResync(world: World): Promise<Work> {
  world.now += 900_000;
  await startTask(world.deps, {task: 'resync', run: null});
  return {run: () => world.deliverTasks()};
}

export const TICK_SCENES: Record<string, Scene> = {
  'tick, nothing changed': async world => {
    await quietMinute(world);
    return {...aTick(world), rounds: ROUNDS, again: () => world.minute()};
  },
  'tick, a tenth preempted': async world => {
    await quietMinute(world);
    world.nodes = withEvery(world.nodes, 10, {state: 'PREEMPTED'});
    return aTick(world);
  },
  'tick, all drained': async world => {
    await world.tick();
    await world.changeRuns({status: 'paused'});
    await world.minute();
    return aTick(world);
  },
  'tick, idle': async world => {
    await empty(world);
    // Until no stream of the paused run has changed since its last count.
    for (let minute = 0; minute < 4; minute++) {
      await world.tick();
      world.now += 60_000;
    }
    return aTick(world);
  },
  resync: async world => {
    await quietMinute(world);
    return aResync(world);
  },
  'resync, idle': async world => {
    await empty(world);
    return aResync(world);
  },
};
