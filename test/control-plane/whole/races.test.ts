/** Ticks, events, commands and the ends of runs at the same time. */
import assert from 'node:assert/strict';
import {aWorker} from '../../support/world/builders.ts';
import {World} from '../../support/world/control-plane-harness.ts';
import {deliver, dropAfter, inEveryOrder, tick} from '../../support/world/every-order.ts';
import {aRequestedNode, aWorldWithAStream} from '../../support/world/one-worker.ts';
import {A0, ONE_SLOT} from '../../support/world/places.ts';
import {someLines} from '../../support/world/shard-plan.ts';
import {deliverFinish, endRun, isFinish} from '../../support/world/stored-run.ts';

/** Every stream is stored, and no tick has seen the run over yet. */
async function aRunBeforeItsEnd(): Promise<World> {
  const world = aWorldWithAStream(2);
  const isStored = async () => (await world.stream('my-run', '000'))?.status === 'completed';
  await world.until('the last shard', isStored, 9);
  await world.deliverAll();
  await world.store.transaction(async tx => {
    const run = await tx.get('runs/my-run');
    if (run) tx.set('runs/my-run', {...run, status: 'active'});
  });
  return world;
}

/** The further stream is worked on, and the run ends again. */
async function assertReopened(world: World): Promise<void> {
  assert.equal((await world.run('my-run'))?.status, 'active');
  await world.untilAsleep();
  await world.assertStoredOnce('my-run', '001', someLines(2, '1'));
  assert.equal((await world.run('my-run'))?.status, 'completed');
}

describe('at the same time', () => {
  inEveryOrder('the end of a run and a further stream: the stream is worked on', {
    given: aRunBeforeItsEnd,
    when: world => [() => endRun(world), dropAfter(world, 9, 1)],
    then: assertReopened,
  });

  inEveryOrder('the message that ends a run and a further stream: the stream is worked on', {
    given: async () => {
      const world = await aRunBeforeItsEnd();
      await world.tick();
      assert.ok(world.queue.some(isFinish));
      return world;
    },
    when: world => [() => deliverFinish(world), dropAfter(world, 14, 1)],
    then: assertReopened,
  });

  inEveryOrder('an idle tick and a first stream: the stream is worked on', {
    given: async () => new World(ONE_SLOT),
    when: world => [tick(world), dropAfter(world, 0, 0)],
    then: async world => {
      await world.untilAsleep();
      await world.assertStoredOnce('my-run', '000', someLines(2, '0'));
    },
  });

  inEveryOrder('a tick and the resume of a paused run: the run is worked on', {
    given: async () => {
      const world = aWorldWithAStream(8);
      await world.deliverAll();
      world.control({action: 'pause', run: 'my-run'});
      await world.untilAsleep();
      world.control({action: 'resume', run: 'my-run'});
      return world;
    },
    when: world => [tick(world), ...deliver(world)],
    then: async world => {
      await world.untilAsleep();
      await world.assertStoredOnce('my-run', '000', someLines(8));
    },
  });

  inEveryOrder('a tick and streams with ticks of their own: no TPU is deleted that a stream needs', {
    given: async () => {
      const world = new World();
      for (const index of [0, 1, 2]) world.drop('my-run', index, someLines(2, `s${index}`));
      return world;
    },
    when: world => [
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
  });

  inEveryOrder('a tick after the end of a run and further streams: no TPU is deleted', {
    given: async () => {
      const world = new World();
      for (const index of [0, 1]) world.drop('my-run', index, someLines(2, `s${index}`));
      await world.untilAsleep();
      world.published.length = 0;
      return world;
    },
    when: world => [tick(world), dropAfter(world, 2, 2), dropAfter(world, 5, 3)],
    then: async world => {
      assert.ok(world.asked().length > 0);
      assert.deepEqual(
        world.asked().filter(what => what.startsWith('delete')),
        [],
      );
      await world.untilAsleep();
    },
  });

  inEveryOrder('the create of a TPU and the stop of its run: the TPU is deleted', {
    given: async () => {
      const world = await aRequestedNode();
      world.control({action: 'stop', run: 'my-run'});
      return world;
    },
    when: world => [
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
  });

  inEveryOrder('a zone refuses an incarnation, and the next incarnation of its slot begins: it goes on', {
    given: async () => {
      const world = await aRequestedNode();
      world.tpus.zone('us-central1-a').soldOut = true;
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

  inEveryOrder('three ticks: each TPU is asked for once', {
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

  inEveryOrder('one event three times: the stream is accepted once', {
    given: async () => {
      const world = aWorldWithAStream(3);
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

  inEveryOrder('a new run.json and the first streams: run and manifest have one spec', {
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
      const manifest = JSON.parse(world.text('activations/my-run/manifest.json'));
      assert.equal(run?.spec_hash, manifest.spec_hash);
      for (const stream of ['000', '001'])
        await world.assertStoredOnce('my-run', stream, someLines(3, stream === '001' ? 'b' : undefined));
    },
  });
});
