/** Events that ask for a tick at once: the Scheduler asks every minute only. */
import assert from 'node:assert/strict';
import {runRecords} from '../../../shared/control-plane/documents/documents.ts';
import {aWorkingWorld} from '../../world/scenes/one-worker.ts';
import {A0} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import type {World} from '../../world/world.ts';

const EVENTS: Record<string, (world: World) => Promise<unknown>> = {
  'a new job': async world => {
    await world.writeJob('my-job', {code: 'result = 1', status: 'pending'});
    return world.deliverNext('job');
  },
  'a new stream': async world => {
    world.drop('my-run', 1, someLines(2));
    return world.deliverNext('object');
  },
  'the last shard of a stream': async world => {
    while ((await world.stream('my-run', '000'))?.status !== 'completed') {
      await world.agent(A0).step();
      world.queue.splice(0, world.queue.length, ...world.queue.filter(({topic}) => topic === 'object'));
      while (await world.deliverNext('object')) {}
    }
  },
};

describe('the control plane', () => {
  for (const [name, happen] of Object.entries(EVENTS))
    it(`asks for a tick at the event of ${name}`, async () => {
      const world = await aWorkingWorld();
      world.queue.length = 0;
      await happen(world);
      assert.ok(world.queue.some(({topic}) => topic === 'tick'));
    });

  for (const {waiting, then} of [
    {waiting: 999, then: 'a tick'},
    {waiting: 1000, then: 'no tick'},
  ])
    it(`asks for ${then} at a new stream of a run with ${waiting} waiting streams for one slot`, async () => {
      const world = await aWorkingWorld();
      world.queue.length = 0;
      await runRecords.change(world.store, ['my-run'], run => ({...run, streams_pending: waiting}));
      world.drop('my-run', 1, someLines(2));
      await world.deliverNext('object');
      assert.equal(
        world.queue.some(({topic}) => topic === 'tick'),
        then === 'a tick',
      );
    });
});
