/** Events that ask for a tick at once: the Scheduler asks every minute only. */
import assert from 'node:assert/strict';
import {runRecords} from '../../../shared/control-plane/documents/documents.ts';
import {A0, ONE_SLOT} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

/** Number of the stream at work, and its name. Runs with as many waiting streams are large. */
const [NUMBER, STREAM] = [1000, '1000'];

const ofStreams: Record<string, (world: World) => Promise<unknown>> = {
  'a new stream': async world => {
    world.drop('my-run', 1, someLines(2));
    return world.deliverNext('object');
  },
  'the last shard of a stream': async world => {
    while ((await world.stream('my-run', STREAM))?.status !== 'completed') {
      await world.agent(A0).step();
      world.queue.splice(0, world.queue.length, ...world.queue.filter(({topic}) => topic === 'object'));
      while (await world.deliverNext('object')) {}
    }
  },
  'the release of a preempted TPU': world => world.agent(A0).preempted(),
};
const EVENTS: typeof ofStreams = {
  ...ofStreams,
  'a new job': async world => {
    await world.writeJob('my-job', {code: 'result = 1', status: 'pending'});
    return world.deliverNext('job');
  },
};

/** True if the event asks for a tick in a world with one slot, whose worker has a stream and whose run has so many waiting ones. */
async function asksForTick(happen: (world: World) => Promise<unknown>, waiting: number): Promise<boolean> {
  const world = new World(ONE_SLOT);
  world.drop('my-run', NUMBER, someLines(20));
  await world.until('work', () => world.agents.get(A0)?.state === 'working', 9, 1);
  await runRecords.change(world.store, ['my-run'], run => ({...run, streams_pending: waiting}));
  world.queue.length = 0;
  await happen(world);
  return world.queue.some(({topic}) => topic === 'tick');
}

describe('the control plane', () => {
  for (const [name, happen] of Object.entries(EVENTS))
    it(`asks for a tick at the event of ${name}`, async () => assert.ok(await asksForTick(happen, 999)));

  for (const [name, happen] of Object.entries(ofStreams))
    it(`asks for no tick at the event of ${name} while 1,000 streams of its run wait for one slot`, async () =>
      assert.ok(!(await asksForTick(happen, 1000))));
});
