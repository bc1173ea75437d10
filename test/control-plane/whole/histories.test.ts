/** Histories of events that happen at the same time, each played in many orders: the events interleave at every call of a port. */
import assert from 'node:assert/strict';
import {at, aWorker} from '../../world/builders.ts';
import {deliver, dropAfter, type History, playInManyOrders, tick} from '../../world/scenes/histories.ts';
import {aRequestedNode, aWorldWithAStream, aWorldWithSpec} from '../../world/scenes/one-worker.ts';
import {A0, ONE_SLOT} from '../../world/scenes/places.ts';
import {aStoredWorld, endRun, resultIn} from '../../world/scenes/stored-run.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

/** Every stream is stored, and no tick has seen the run over yet. */
async function aRunBeforeItsEnd(): Promise<World> {
  const world = aWorldWithAStream(2);
  const isStored = async () => (await world.stream('my-run', '000'))?.status === 'completed';
  await world.until('the last shard', isStored, 9);
  await world.deliverAll();
  await world.edit('runs/my-run', {status: 'active'});
  return world;
}

/** The further stream is worked on, and the run ends again. */
async function assertReopened(world: World): Promise<void> {
  assert.equal((await world.run('my-run'))?.status, 'active');
  await world.untilStoredOnce('my-run', '001', someLines(2, '1'));
  assert.equal((await world.run('my-run'))?.status, 'completed');
}

/** Two streams are stored, a third comes, and each read of a summary takes this time. */
async function aSlowStoredWorld(read_ms: number): Promise<World> {
  const world = await aStoredWorld([someLines(2, 'a'), someLines(3, 'b')]);
  const read = world.deps.objects.read.bind(world.deps.objects);
  world.deps.objects.read = (name, options) => {
    if (name.endsWith('metadata.json')) world.now += read_ms;
    return read(name, options);
  };
  world.drop('my-run', 2, someLines(2, 'late'));
  return world;
}

const HISTORIES: History[] = [
  ...[0, 15_000].map(read_ms => ({
    name: `two ends of a run, a further stream and its worker, where a read takes ${read_ms} ms: the run has three streams`,
    given: () => aSlowStoredWorld(read_ms),
    events: (world: World) => [
      () => endRun(world),
      () => endRun(world),
      () => world.deliverNext('object'),
      async () => {
        for (let step = 0; step < 4; step++) for (const agent of world.agents.values()) await agent.step();
      },
    ],
    then: async (world: World) => {
      await world.untilAsleep();
      const run = await world.run('my-run');
      assert.deepEqual([run?.status, run?.streams_completed], ['completed', 3]);
      assert.deepEqual([resultIn(world)?.streams, resultIn(world)?.samples], [3, 7]);
    },
  })),
  {
    name: 'the end of a run and a further stream: the stream is worked on',
    given: aRunBeforeItsEnd,
    events: world => [() => endRun(world), dropAfter(world, 9, 1)],
    then: assertReopened,
  },
  {
    name: 'an idle tick and a first stream: the stream is worked on',
    given: async () => new World(ONE_SLOT),
    events: world => [tick(world), dropAfter(world, 0, 0)],
    then: async world => {
      await world.untilStoredOnce('my-run', '000', someLines(2, '0'));
    },
  },
  {
    name: 'a tick and the resume of a paused run: the run is worked on',
    given: async () => {
      const world = aWorldWithAStream(8);
      await world.deliverAll();
      world.control({action: 'pause', run: 'my-run'});
      await world.untilAsleep();
      world.control({action: 'resume', run: 'my-run'});
      return world;
    },
    events: world => [tick(world), ...deliver(world)],
    then: async world => {
      await world.untilStoredOnce('my-run', '000', someLines(8));
    },
  },
  {
    name: 'a tick and streams with ticks of their own: no TPU is deleted that a stream needs',
    given: async () => {
      const world = new World();
      for (const index of [0, 1, 2]) world.drop('my-run', index, someLines(2, `s${index}`));
      return world;
    },
    events: world => [
      tick(world),
      ...[0, 1, 2].map(() => async () => {
        await world.deliverNext('object');
        await world.deliverNext('tick');
      }),
    ],
    then: async world => {
      assert.ok(world.asked().length > 0);
      assert.deepEqual(
        world.asked().filter(what => what.startsWith('delete')),
        [],
      );
      assert.equal(new Set(world.asked()).size, world.asked().length, 'each TPU is asked for once');
      await world.untilAsleep();
      for (const index of [0, 1, 2])
        await world.assertStoredOnce('my-run', `00${index}`, someLines(2, `s${index}`));
    },
  },
  {
    name: 'the create of a TPU and the stop of its run: the TPU is deleted',
    given: async () => {
      const world = await aRequestedNode();
      world.control({action: 'stop', run: 'my-run'});
      return world;
    },
    events: world => [
      () => world.deliverNext('tpu'),
      async () => {
        await world.deliverNext('control');
        for (let minute = 0; minute < 4; minute++) {
          await world.tick();
          await world.deliverNext('tpu');
          world.settleTpus();
        }
      },
    ],
    then: async world => {
      await world.untilAsleep();
      assert.equal(world.tpus.nodes.size, 0);
    },
  },
  {
    name: 'a zone refuses an incarnation, and the next incarnation of its slot begins: it goes on',
    given: async () => {
      const world = await aRequestedNode();
      world.tpus.zone('us-central1-a').soldOut = true;
      return world;
    },
    events: world => [
      () => world.deliverNext('tpu'),
      async () => {
        await world.interleaver.pause();
        const worker = aWorker({phase: 'creating', incarnation: 2});
        await world.store.transaction(async tx => tx.set(`workers/${A0}`, {...worker}));
      },
    ],
    then: async world => {
      const worker = await world.worker(A0);
      assert.deepEqual([worker?.phase, worker?.incarnation], ['creating', 2]);
    },
  },
  {
    name: 'one event three times: the stream is accepted once',
    given: async () => {
      const world = aWorldWithAStream(3);
      world.queue.push(...world.queue, ...world.queue);
      return world;
    },
    events: world => deliver(world, 3),
    then: async world => {
      const accepted = (await world.timeline('stream')).filter(text => text.includes('accepted'));
      assert.equal(accepted.length, 1);
      await world.untilStoredOnce('my-run', '000', someLines(3));
    },
  },
  {
    name: 'a new run.json and the first streams: run and manifest have one spec',
    given: async () => {
      const world = aWorldWithSpec('{"seed": 1}');
      world.drop('my-run', 1, someLines(3, 'b'));
      return world;
    },
    events: world => [
      ...deliver(world, 3),
      async () => {
        await world.interleaver.pause();
        world.objects.put('datasets/my-run/run.json', '{"seed": 2}');
      },
    ],
    then: async world => {
      await world.untilAsleep();
      const run = await world.run('my-run');
      const manifest = JSON.parse(world.text('activations/my-run/manifest.json'));
      assert.equal(run?.spec_hash, manifest.spec_hash);
      for (const stream of ['000', '001'])
        await world.assertStoredOnce('my-run', stream, someLines(3, stream === '001' ? 'b' : undefined));
    },
  },
  {
    name: 'a report of a worker, the end of its lease and the event of its last shard: nothing is lost or failed',
    given: async () => {
      const world = aWorldWithAStream(4);
      await world.until('work', () => world.agents.get(A0)?.state === 'working', 9, 2);
      await world.agent(A0).step();
      assert.equal(world.agent(A0).state, 'working');
      world.now += 100_000;
      return world;
    },
    events: world => [
      async () => {
        await world.agent(A0).step();
        while (await world.deliverNext('object'));
      },
      tick(world),
      ...deliver(world),
    ],
    then: async world => {
      await world.untilStoredOnce('my-run', '000', someLines(4));
      assert.equal((await world.stream('my-run', '000'))?.failures, 0);
    },
  },
  {
    name: 'a tick after the end of a run and further streams: no TPU is deleted',
    given: async () => {
      const world = new World();
      for (const index of [0, 1]) world.drop('my-run', index, someLines(2, `s${index}`));
      await world.untilAsleep();
      world.published.length = 0;
      return world;
    },
    events: world => [tick(world), dropAfter(world, 2, 2), dropAfter(world, 5, 3)],
    then: async world => {
      assert.ok(world.asked().length > 0);
      assert.deepEqual(
        world.asked().filter(what => what.startsWith('delete')),
        [],
      );
      await world.untilAsleep();
    },
  },
  {
    name: 'a late request for work and a new one of its sender: the worker gets one stream',
    given: async () => {
      const world = new World(ONE_SLOT);
      for (const index of [0, 1]) world.drop('my-run', index, someLines(2, `s${index}`));
      await world.deliverNext('object');
      await world.deliverNext('object');
      const worker = aWorker({phase: 'idle', incarnation: 1});
      await world.store.transaction(async tx => tx.set(`workers/${A0}`, {...worker}));
      const lease = {worker: 'tpu-us-central1-a-1', incarnation: 1, epoch: 1, expires_at: at(600)};
      await world.edit('runs/my-run/streams/000', {status: 'in_progress', epoch: 1, lease});
      return world;
    },
    events: world => {
      const from = {worker: A0, incarnation: 1, host: 0};
      return [
        () => world.api({action: 'lease', ...from, loaded: null}),
        async () => {
          await world.edit('runs/my-run/streams/000', {status: 'pending', lease: null});
          await world.api({action: 'lease', ...from, loaded: null});
        },
      ];
    },
    then: async world => {
      const streams = await Promise.all(['000', '001'].map(id => world.stream('my-run', id)));
      assert.equal(streams.filter(stream => stream?.lease?.worker === A0).length, 1);
    },
  },
  {
    name: 'three workers ask for two streams: each stream has one holder',
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
    events: world => [...world.agents.values()].map(agent => () => agent.step()),
    then: async world => {
      const held = [...world.agents.values()].flatMap(({lease}) => lease?.stream ?? []);
      assert.deepEqual(held.sort(), ['000', '001']);
      for (const stream of held) assert.equal((await world.stream('my-run', stream))?.epoch, 1);
    },
  },
];

describe('at the same time', () => {
  for (const history of HISTORIES) it(history.name, () => playInManyOrders(history));
});
