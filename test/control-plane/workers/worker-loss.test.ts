import assert from 'node:assert/strict';
import {tick} from '../../../shared/control-plane/tick/tick.ts';
import type {Store} from '../../../shared/ports/ports.ts';
import {assertRecovered, aWorldWithAShard, aWorldWithAStream} from '../../world/scenes/one-worker.ts';
import {A0, A1} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import type {World} from '../../world/world.ts';

describe('a TPU that is lost', () => {
  const losses: {name: string; lose: (world: World) => void; cause: RegExp}[] = [
    {
      name: 'preempted without notice',
      lose: world => {
        world.preempt(A0);
      },
      cause: /preempted/,
    },
    {
      name: 'STOPPED, as a preemption also shows',
      lose: world => {
        world.tpus.node(A0).state = 'STOPPED';
        world.agents.delete(A0);
      },
      cause: /STOPPED/,
    },
    {name: 'vanished', lose: world => void world.zombify(A0), cause: /vanished/},
    {
      name: 'READY but silent',
      lose: world => {
        world.agent(A0).silent = true;
      },
      cause: /said nothing/,
    },
  ];
  for (const {name, lose, cause} of losses)
    it(`${name} is deleted, made again with the next number, and loses nothing`, async () => {
      const world = await aWorldWithAShard();
      lose(world);
      await assertRecovered(world);
      assert.deepEqual(world.asked(), [
        `create ${A0}#1`,
        `delete ${A0}#1`,
        `create ${A0}#2`,
        `delete ${A0}#2`,
      ]);
      const [first, second] = await world.store.query(`workers/${A0}/attempts`);
      assert.match(String(first?.data.cause), cause);
      assert.equal(first?.data.work, 'my-run/000');
      assert.equal(second?.data.cause, 'not needed any more');
    });

  it('before its first word is deleted after the time to boot', async () => {
    const world = aWorldWithAStream(3);
    await world.deliverAll();
    world.settle();
    world.agent(A0).silent = true;
    await assertRecovered(world, someLines(3));
    assert.deepEqual(world.tpus.made, [`${A0}#1`, `${A0}#2`]);
    const [first] = await world.store.query(`workers/${A0}/attempts`);
    assert.match(String(first?.data.cause), /READY but said nothing/);
  });

  it('with notice gives its stream back at once', async () => {
    const world = await aWorldWithAShard();
    await world.agent(A0).preempted();
    const stream = await world.stream('my-run', '000');
    assert.deepEqual([stream?.status, stream?.lease, stream?.failures], ['pending', null, 0]);
    world.tpus.node(A0).state = 'PREEMPTED';
    await assertRecovered(world);
  });

  it('frees its stream for the others as soon as a tick sees it', async () => {
    const world = await aWorldWithAShard({});
    world.drop('my-run', 1, someLines(20, 'other'));
    await world.until('a second worker', () => world.agents.get(A1)?.state === 'working', 9, 1);
    world.preempt(A0);
    await world.tick();
    assert.equal((await world.stream('my-run', '000'))?.status, 'pending');
    await assertRecovered(world);
    await world.assertStoredOnce('my-run', '001', someLines(20, 'other'));
  });
});

describe('a shard whose event is lost', () => {
  it('is counted by the next resync while the work goes on', async () => {
    const world = await aWorldWithAShard();
    const before = (await world.stream('my-run', '000'))?.total_shards ?? 0;
    for (let minute = 0; minute < 3; minute++) {
      world.now += 60_000;
      await world.agent(A0).beat();
      await world.agent(A0).step();
      world.queue.length = 0;
      await world.tick();
      await world.deliverAll();
    }
    const stream = await world.stream('my-run', '000');
    assert.equal(stream?.status, 'in_progress');
    assert.ok((stream?.total_shards ?? 0) > before + 1);
  });
});

describe('a TPU that a message takes away', () => {
  it('is no loss of its zone, and each attempt names the message', async () => {
    const world = await aWorldWithAShard();
    for (let life = 1; life <= 4; life++) {
      await world.until('work', () => world.agents.get(A0)?.state === 'working', 9, 1);
      world.control({action: life < 4 ? 'recreate' : 'delete', worker: A0});
      await world.until('it goes', () => !world.agents.has(A0), 9, 1);
    }
    await world.minutes(9);
    assert.deepEqual((await world.store.get('zones/us-central1-a'))?.losses, []);
    const attempts = await world.store.query(`workers/${A0}/attempts`);
    assert.deepEqual(
      attempts.map(({data}) => data.cause),
      [...Array(3).fill('recreate was asked for'), 'delete was asked for'],
    );
  });
});

describe('a slow tick', () => {
  it('that saw a run at work does not open it again after its end', async () => {
    const world = await aWorldWithAShard();
    const gate = Promise.withResolvers<void>();
    const {store} = world.deps;
    const slowly: Store = {
      ...store,
      transaction: async work => {
        await gate.promise;
        return store.transaction(work);
      },
    };
    const slow = tick({...world.deps, store: slowly});
    await world.untilAsleep();
    gate.resolve();
    await slow;
    assert.equal((await world.run('my-run'))?.status, 'completed');
  });
});
