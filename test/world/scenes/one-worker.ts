/** A world with one slot and its worker at work on my-run/000, and the end that must follow each loss of that worker. */
import assert from 'node:assert/strict';
import type {Document} from '../../../shared/ports/ports.ts';
import type {FakeAgent} from '../agent.ts';
import {someLines} from '../shard-plan.ts';
import {World} from '../world.ts';
import {A0, ONE_SLOT} from './places.ts';

/** A world into which a stream was dropped. Nothing is delivered yet. */
export function aWorldWithAStream(lines: number, set: Record<string, string> = ONE_SLOT): World {
  const world = new World(set);
  world.drop('my-run', 0, someLines(lines));
  return world;
}

/** The same, with a run.json of the run. */
export function aWorldWithSpec(run_json: string | object, lines = 3, set = ONE_SLOT): World {
  const world = new World(set);
  const text = typeof run_json === 'string' ? run_json : JSON.stringify(run_json);
  world.objects.put('datasets/my-run/run.json', text);
  world.drop('my-run', 0, someLines(lines));
  return world;
}

/** A world in which a tick has requested the node of a stream. Its message is under way. */
export async function aRequestedNode(): Promise<World> {
  const world = aWorldWithAStream(2);
  await world.deliverNext('object');
  await world.tick();
  assert.deepEqual(world.asked(), [`create ${A0}#1`]);
  return world;
}

/** A world in which A0 works on a stream, of ten shards by default, and has stored few shards or none. */
export async function aWorkingWorld(set: Record<string, string> = ONE_SLOT, lines = 20): Promise<World> {
  const world = aWorldWithAStream(lines, set);
  await world.until('work', () => world.agents.get(A0)?.state === 'working', 9, 1);
  return world;
}

/** A world in which Cloud TPU takes the node of A0 at work, without notice, some ticks ago. */
export async function aTakenWorker(ticks: number): Promise<World> {
  const world = await aWorkingWorld();
  world.tpus.node(A0).state = 'PREEMPTED';
  world.agent(A0).silent = true;
  for (let tick = 0; tick < ticks; tick++) await world.tick();
  return world;
}

/** A world in which A0 has said nothing since its loss at work, and is deleted for that. */
export async function aSilentWorker(lose: (world: World) => unknown = () => {}): Promise<World> {
  const world = await aWorkingWorld();
  lose(world);
  world.agent(A0).silent = true;
  await world.until('the end', async () => (await world.worker(A0))?.phase === 'deleting', 20, 0);
  return world;
}

/** A world in which A0 has stored the first of ten shards. */
export async function aWorldWithAShard(set: Record<string, string> = ONE_SLOT): Promise<World> {
  const world = aWorldWithAStream(20, set);
  await untilAShard(world);
  return world;
}

export function untilAShard(world: World): Promise<void> {
  return untilShards(world, 1, 9);
}

/** Lets minutes go by until the stream my-run/000 has so many shards. */
export async function untilShards(world: World, count: number, most = 20, stream = '000'): Promise<void> {
  const hasShards = async () => ((await world.stream('my-run', stream))?.total_shards ?? 0) >= count;
  await world.until(`shard ${count}`, hasShards, most, 1);
}

/** Changes each agent and lets a minute go by, until the stream my-run/000 has failed or `most` minutes are over. */
export async function untilFailed(
  world: World,
  most: number,
  change: (agent: FakeAgent) => void,
): Promise<void> {
  const hasFailed = async () => (await world.stream('my-run', '000'))?.status === 'failed';
  for (let minute = 0; minute < most && !(await hasFailed()); minute++) {
    for (const agent of world.agents.values()) change(agent);
    await world.minute(1);
  }
}

/** The run is completed with each sample stored once, and no failure is charged for a lost machine. */
export async function assertRecovered(world: World, text = someLines(20)): Promise<void> {
  await world.untilStoredOnce('my-run', '000', text);
  assert.equal((await world.run('my-run'))?.status, 'completed');
  assert.equal((await world.stream('my-run', '000'))?.failures, 0, 'a lost machine is no failure');
}

/** The stream of a world with one is completed, and charged nothing. */
export async function assertDone(world: World, text = someLines(12)): Promise<void> {
  await world.untilStoredOnce('my-run', '000', text);
  const stream = await world.stream('my-run', '000');
  assert.deepEqual([stream?.status, stream?.failures, stream?.faults], ['completed', 0, 0]);
}

/** The documents of the attempts of a worker, the oldest first. */
export async function attemptsOf(world: World, name = A0): Promise<Document[]> {
  return (await world.store.query(`workers/${name}/attempts`)).map(({data}) => data);
}
