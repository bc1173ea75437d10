import assert from 'node:assert/strict';
import {someLines} from '../support/agent.ts';
import {at, aWorker} from '../support/builders.ts';
import {World} from '../support/control-plane-harness.ts';
import {seeded} from '../support/interleaver.ts';

const A0 = 'tpu-us-central1-a-0';
const ONE_SLOT = {GLEANER_ZONES: 'us-central1-a', GLEANER_WORKERS_PER_ZONE: '1'};
const ORDERS = Number(process.env.GLEANER_ORDERS ?? 30);

/** Plays one scene in many orders: `jobs` run into each other at every use of a port, and `then` must hold in each. */
function inEveryOrder(
  what: string,
  scene: {
    given: () => Promise<World>;
    when: (world: World) => (() => Promise<unknown>)[];
    then: (world: World) => Promise<void>;
  },
): void {
  it(what, async () => {
    for (let seed = 0; seed < ORDERS; seed++) {
      const world = await scene.given();
      await world.interleaver.run(seeded(seed), scene.when(world));
      await scene.then(world).catch((error: Error) => {
        error.message = `In order ${seed}: ${error.message}`;
        throw error;
      });
      await world.store.close();
    }
  });
}

/** Drops a stream of two lines while the others are somewhere in the middle, and delivers its event. */
const dropAfter = (world: World, pauses: number, index: number) => async () => {
  for (let pause = 0; pause < pauses; pause++) await world.interleaver.pause();
  world.drop('my-run', index, someLines(2, String(index)));
  await world.deliver();
};

const tick = (world: World) => () => world.tick();
const deliver = (world: World, count = 1) => Array.from({length: count}, () => () => world.deliver());

describe('at the same time', () => {
  inEveryOrder('a run ends and a further stream comes: it is worked on', {
    given: async () => {
      const world = new World(ONE_SLOT);
      world.drop('my-run', 0, someLines(2));
      await world.until(
        'the last shard',
        async () => (await world.stream('my-run', '000'))?.status === 'completed',
        9,
      );
      await world.deliverAll();
      // The tick that will find the run complete has not come yet.
      await world.store.transaction(async tx => {
        const run = await tx.get('runs/my-run');
        if (run) tx.set('runs/my-run', {...run, status: 'active'});
      });
      world.tickerOn = true;
      return world;
    },
    when: world => [tick(world), dropAfter(world, 9, 1)],
    then: async world => {
      await world.untilAsleep();
      await world.assertStoredOnce('my-run', '001', someLines(2, '1'));
      assert.equal((await world.run('my-run'))?.status, 'completed');
    },
  });

  inEveryOrder('the ticker is switched off and a stream comes: it is on again', {
    given: async () => {
      const world = new World(ONE_SLOT);
      world.tickerOn = true;
      return world;
    },
    when: world => [tick(world), dropAfter(world, 0, 0)],
    then: async world => {
      assert.ok(world.tickerOn);
      await world.untilAsleep();
      await world.assertStoredOnce('my-run', '000', someLines(2, '0'));
    },
  });

  inEveryOrder('the ticker is switched off and a paused run is resumed: it is on again', {
    given: async () => {
      const world = new World(ONE_SLOT);
      world.drop('my-run', 0, someLines(8));
      await world.deliverAll();
      world.control({action: 'pause', run: 'my-run'});
      await world.untilAsleep();
      world.tickerOn = true;
      world.control({action: 'resume', run: 'my-run'});
      return world;
    },
    when: world => [tick(world), ...deliver(world)],
    then: async world => {
      await world.untilAsleep();
      await world.assertStoredOnce('my-run', '000', someLines(8));
    },
  });

  inEveryOrder('streams come one by one and a tick looks: no TPU is given up that they want', {
    given: async () => {
      const world = new World();
      for (const index of [0, 1, 2]) world.drop('my-run', index, someLines(2, `s${index}`));
      return world;
    },
    when: world => [tick(world), ...deliver(world, 3)],
    then: async world => {
      assert.deepEqual(
        world.asked().filter(what => what.startsWith('delete')),
        [],
      );
      assert.equal(new Set(world.asked()).size, world.asked().length, 'each was asked for once');
      await world.untilAsleep();
      for (const index of [0, 1, 2])
        await world.assertStoredOnce('my-run', `00${index}`, someLines(2, `s${index}`));
    },
  });

  inEveryOrder('streams of a later time come and a tick looks: slots of an earlier time are not given up', {
    given: async () => {
      const world = new World();
      for (const index of [0, 1]) world.drop('my-run', index, someLines(2, `s${index}`));
      await world.untilAsleep();
      world.tickerOn = true;
      world.published.length = 0;
      return world;
    },
    when: world => [tick(world), dropAfter(world, 2, 2), dropAfter(world, 5, 3)],
    then: async world => {
      assert.deepEqual(
        world.asked().filter(what => what.startsWith('delete')),
        [],
      );
      await world.untilAsleep();
    },
  });

  inEveryOrder('a TPU is being made and its run is stopped: it does not stay', {
    given: async () => {
      const world = new World(ONE_SLOT);
      world.drop('my-run', 0, someLines(2));
      await world.deliver();
      world.control({action: 'stop', run: 'my-run'});
      return world;
    },
    when: world => [
      () => world.deliverNext('tpu'),
      async () => {
        await world.deliverNext('control');
        for (let minute = 0; minute < 4 && world.tickerOn; minute++) {
          await world.tick();
          await world.deliverNext('tpu');
          world.tpus.settle();
        }
      },
    ],
    then: async world => {
      await world.untilAsleep();
      assert.equal(world.tpus.nodes.size, 0);
    },
  });

  inEveryOrder('a zone refuses a life of a slot that has its next one already: that one goes on', {
    given: async () => {
      const world = new World(ONE_SLOT);
      world.drop('my-run', 0, someLines(2));
      await world.deliver();
      world.tpus.soldOut.add('us-central1-a');
      return world;
    },
    when: world => [
      () => world.deliverNext('tpu'),
      async () => {
        await world.interleaver.pause();
        await world.store.transaction(async tx => {
          tx.set(`workers/${A0}`, {...aWorker({phase: 'creating', incarnation: 2})});
        });
      },
    ],
    then: async world => {
      const worker = await world.worker(A0);
      assert.deepEqual([worker?.phase, worker?.incarnation], ['creating', 2]);
    },
  });

  inEveryOrder('an agent speaks for the first time and a tick looks: it is believed', {
    given: async () => {
      const world = new World(ONE_SLOT);
      world.drop('my-run', 0, someLines(2));
      await world.deliver();
      return world;
    },
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

  inEveryOrder('three ticks look: each thing is asked for once', {
    given: async () => {
      const world = new World();
      for (const index of [0, 1]) world.drop('my-run', index, someLines(20, `s${index}`));
      await world.until('work', () => world.agents.size === 2, 9, 1);
      world.tpus.node(A0).state = 'PREEMPTED';
      world.agents.delete(A0);
      return world;
    },
    when: world => [tick(world), tick(world), tick(world)],
    then: async world => {
      assert.equal(new Set(world.asked()).size, world.asked().length, world.asked().join());
      await world.untilAsleep();
      for (const index of [0, 1])
        await world.assertStoredOnce('my-run', `00${index}`, someLines(20, `s${index}`));
    },
  });

  inEveryOrder('a request for work is late, and its sender has work by now: it gets no second stream', {
    given: async () => {
      const world = new World(ONE_SLOT);
      for (const index of [0, 1]) world.drop('my-run', index, someLines(2, `s${index}`));
      await world.deliver();
      await world.deliver();
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

  inEveryOrder('one event is delivered three times: the stream is accepted once, under one spec', {
    given: async () => {
      const world = new World(ONE_SLOT);
      world.drop('my-run', 0, someLines(3));
      world.queue.push(...world.queue, ...world.queue);
      return world;
    },
    when: world => deliver(world, 3),
    then: async world => {
      const accepted = (await world.timeline('stream')).filter(text => text.includes('accepted'));
      assert.equal(accepted.length, 1);
      await world.untilAsleep();
      await world.assertStoredOnce('my-run', '000', someLines(3));
    },
  });

  inEveryOrder('run.json is replaced and the first stream comes: there is one spec, whichever', {
    given: async () => {
      const world = new World(ONE_SLOT);
      world.objects.put('datasets/my-run/run.json', '{"seed": 1}');
      world.drop('my-run', 0, someLines(3));
      world.drop('my-run', 1, someLines(3, 'b'));
      return world;
    },
    when: world => [
      ...deliver(world, 3),
      async () => {
        await world.interleaver.pause();
        world.objects.put('datasets/my-run/run.json', '{"seed": 2}');
      },
    ],
    then: async world => {
      await world.untilAsleep();
      const run = await world.run('my-run');
      const manifest = JSON.parse(world.objects.text('activations/my-run/manifest.json'));
      assert.equal(run?.spec_hash, manifest.spec_hash);
      for (const stream of ['000', '001'])
        await world.assertStoredOnce('my-run', stream, someLines(3, stream === '001' ? 'b' : undefined));
    },
  });

  inEveryOrder(
    'a worker reports, its lease runs out, and its last shard is seen: nothing is lost or failed',
    {
      given: async () => {
        const world = new World(ONE_SLOT);
        world.drop('my-run', 0, someLines(2));
        await world.until('work', () => world.agents.get(A0)?.state === 'working', 9, 2);
        await world.agent(A0).step();
        world.now += 100_000;
        return world;
      },
      when: world => [() => world.agent(A0).step(), tick(world), ...deliver(world)],
      then: async world => {
        await world.untilAsleep();
        await world.assertStoredOnce('my-run', '000', someLines(2));
        assert.equal((await world.stream('my-run', '000'))?.failures, 0);
      },
    },
  );
});
