/** A run whose streams are all stored, and the messages that end it. */
import assert from 'node:assert/strict';
import {manifestObject} from '../../../shared/domain/names.ts';
import type {RunResult} from '../../../shared/domain/run/result.ts';
import type {Query} from '../../../shared/ports/ports.ts';
import {textOf} from '../bus.ts';
import type {Message} from '../functions.ts';
import {BAD_LINE, someLines} from '../shard-plan.ts';
import {World} from '../world.ts';

export const MANIFEST = manifestObject('my-run');
export const TEXTS = [someLines(5, 'a'), `${someLines(3, 'b')}${BAD_LINE}\n`];

export function resultIn(world: World): RunResult | undefined {
  return JSON.parse(world.text(MANIFEST)).result;
}

/** A world in which every stream is stored, no message is under way, and no tick has seen the end yet. */
export async function aStoredWorld(texts = TEXTS): Promise<World> {
  const world = new World({GLEANER_ZONES: 'us-central1-a', GLEANER_WORKERS_PER_ZONE: '1'});
  for (const [index, text] of texts.entries()) world.drop('my-run', index, text);
  const completed: Query = {where: [{field: 'status', op: '==', value: 'completed'}]};
  const areStored = async () =>
    (await world.store.query('runs/my-run/streams', completed)).length === texts.length;
  for (let minute = 0; minute < 30; minute++) {
    world.now += 60_000;
    await world.deliverAll();
    world.settle();
    for (let step = 0; step < 3; step++) for (const agent of world.agents.values()) await agent.step();
    while (world.queue.some(({topic}) => topic === 'object')) await world.deliverNext('object');
    if (await areStored()) break;
    await world.deliverAll();
    await world.tick();
  }
  assert.ok(await areStored());
  world.queue.length = 0;
  assert.equal((await world.run('my-run'))?.status, 'active');
  return world;
}

/** Runs a tick and its task that ends the run. False if the task failed and waits for another tick. */
export async function endRun(world: World): Promise<boolean> {
  await world.tick();
  return deliverFinish(world);
}

export async function deliverFinish(world: World): Promise<boolean> {
  const index = world.queue.findIndex(isFinish);
  const failures = () => world.logs.filter(({message}) => /^Task finish-.* failed/.test(message)).length;
  const before = failures();
  const isTaken = index < 0 || (await world.deliver(index));
  return isTaken && failures() === before;
}

export function isFinish({topic, data}: Message): boolean {
  if (topic !== 'tasks') return false;
  return JSON.parse(textOf(data)).task === 'finish';
}
