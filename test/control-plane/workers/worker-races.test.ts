/** Requests of workers beside ticks and events. */
import assert from 'node:assert/strict';
import {at, aWorker} from '../../support/world/builders.ts';
import {World} from '../../support/world/control-plane-harness.ts';
import {deliver, inEveryOrder, tick} from '../../support/world/every-order.ts';
import {aRequestedNode, aWorldWithAStream} from '../../support/world/one-worker.ts';
import {A0, ONE_SLOT} from '../../support/world/places.ts';
import {someLines} from '../../support/world/shard-plan.ts';

describe('at the same time', () => {
  inEveryOrder('a tick and the first words of an agent: its TPU is kept', {
    given: aRequestedNode,
    when: world => [
      tick(world),
      async () => {
        await world.deliverNext('tpu');
        world.settle();
        for (let step = 0; step < 3; step++) for (const agent of world.agents.values()) await agent.step();
      },
    ],
    then: async world => {
      await world.untilAsleep();
      assert.deepEqual(world.tpus.made, [`${A0}#1`]);
      await world.assertStoredOnce('my-run', '000', someLines(2));
    },
  });

  inEveryOrder('a late request for work and a new one of its sender: the worker gets one stream', {
    given: async () => {
      const world = new World(ONE_SLOT);
      for (const index of [0, 1]) world.drop('my-run', index, someLines(2, `s${index}`));
      await world.deliverNext('object');
      await world.deliverNext('object');
      await world.store.transaction(async tx => {
        const stream = await tx.get('runs/my-run/streams/000');
        tx.set(`workers/${A0}`, {...aWorker({phase: 'idle', incarnation: 1})});
        const lease = {worker: 'tpu-us-central1-a-1', incarnation: 1, epoch: 1, expires_at: at(600)};
        tx.set('runs/my-run/streams/000', {...stream, status: 'in_progress', epoch: 1, lease});
      });
      return world;
    },
    when: world => {
      const from = {worker: A0, incarnation: 1, host: 0};
      return [
        () => world.api({action: 'lease', ...from, loaded: null}),
        async () => {
          await world.store.transaction(async tx => {
            const stream = await tx.get('runs/my-run/streams/000');
            if (stream) tx.set('runs/my-run/streams/000', {...stream, status: 'pending', lease: null});
          });
          await world.api({action: 'lease', ...from, loaded: null});
        },
      ];
    },
    then: async world => {
      const streams = await Promise.all(['000', '001'].map(id => world.stream('my-run', id)));
      assert.equal(streams.filter(stream => stream?.lease?.worker === A0).length, 1);
    },
  });

  inEveryOrder('three workers ask for two streams: each stream has one holder', {
    given: async () => {
      const world = new World();
      for (const index of [0, 1, 2]) world.drop('my-run', index, someLines(20, `s${index}`));
      await world.deliverAll();
      world.now += 60_000;
      world.settle();
      for (const agent of world.agents.values()) await agent.step();
      world.objects.put('datasets/my-run/stream_002.jsonl', '');
      await world.deliverAll();
      return world;
    },
    when: world => [...world.agents.values()].map(agent => () => agent.step()),
    then: async world => {
      const held = [...world.agents.values()].flatMap(({lease}) => lease?.stream ?? []);
      assert.deepEqual(held.sort(), ['000', '001']);
      for (const stream of held) assert.equal((await world.stream('my-run', stream))?.epoch, 1);
    },
  });

  inEveryOrder(
    'a report of a worker, the end of its lease and the event of its last shard: nothing is lost or failed',
    {
      given: async () => {
        const world = aWorldWithAStream(4);
        await world.until('work', () => world.agents.get(A0)?.state === 'working', 9, 2);
        await world.agent(A0).step();
        assert.equal(world.agent(A0).state, 'working');
        world.now += 100_000;
        return world;
      },
      when: world => [
        async () => {
          await world.agent(A0).step();
          while (await world.deliverNext('object'));
        },
        tick(world),
        ...deliver(world),
      ],
      then: async world => {
        await world.untilAsleep();
        await world.assertStoredOnce('my-run', '000', someLines(4));
        assert.equal((await world.stream('my-run', '000'))?.failures, 0);
      },
    },
  );
});
