/** Workers that outlive their lease, their incarnation or their memory: zombies, and hosts that restart. */
import assert from 'node:assert/strict';
import {assertRecovered, aWorldWithAShard, aWorldWithAStream} from '../../world/scenes/one-worker.ts';
import {A0, A1} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';

describe('a worker that does not know that it was replaced', () => {
  it('stores nothing twice and overwrites nothing, however long it goes on', async () => {
    const world = await aWorldWithAShard();
    const zombie = world.zombify(A0);
    await world.until('its successor works', () => world.agents.get(A0)?.state === 'working', 20, 1);
    for (let minute = 0; minute < 30; minute++) {
      await zombie.step();
      await world.minute(1);
      if (minute > 3) await zombie.beat();
    }
    await assertRecovered(world);
    assert.equal(zombie.state, 'ended');
    assert.ok(
      zombie.told.every(told => told === 'exit' || told === '409'),
      zombie.told.join(),
    );
  });

  it('is told to stop where its lease went to another worker, and gets other work', async () => {
    const patient = {GLEANER_SILENT_S: '3600', GLEANER_STALL_S: '3600'};
    const world = await aWorldWithAShard({GLEANER_ZONES: 'us-central1-a', ...patient});
    const slow = world.agent(A0);
    slow.silent = true;
    // Enough work for both until then, in whatever order the other takes it.
    for (let index = 1; index < 40; index++) world.drop('my-run', index, someLines(4, `other${index}`));
    await world.until(
      'another has its stream',
      async () => (await world.stream('my-run', '000'))?.lease?.worker === A1,
      60,
      2,
    );
    const {lease} = slow;
    const from = {worker: A0, incarnation: 1, host: 0};
    const beat = await world.api({action: 'heartbeat', ...from, phase: 'running', lease, progress: null});
    assert.deepEqual([beat.status, beat.body.action, beat.body.lease_expires_at], [200, 'stop', null]);
    for (const outcome of ['completed', 'drained', 'preempted', 'failed']) {
      const {status} = await world.api({action: 'release', ...from, lease, outcome, failure: null});
      assert.equal(status, 409);
    }
    assert.equal((await world.stream('my-run', '000'))?.lease?.worker, A1);
    slow.silent = false;
    await assertRecovered(world);
  });
});

describe('a host that restarts', () => {
  it('gets its own stream back at once, before any other', async () => {
    const world = await aWorldWithAShard();
    world.drop('my-run', 1, someLines(2));
    world.objects.put('datasets/urgent/run.json', '{"priority": 9}');
    world.drop('urgent', 0, someLines(2));
    await world.deliverAll();
    const before = await world.stream('my-run', '000');
    const agent = world.boot(A0);
    await agent.step();
    await agent.step();
    assert.deepEqual([agent.state, agent.lease?.run, agent.lease?.stream], ['working', 'my-run', '000']);
    const after = await world.stream('my-run', '000');
    assert.equal(after?.epoch, (before?.epoch ?? 0) + 1);
    await assertRecovered(world);
    assert.deepEqual(world.tpus.made, [`${A0}#1`]);
  });

  it('after a repair by Google charges its stream nothing', async () => {
    const world = await aWorldWithAShard();
    let mends = 0;
    for (let minute = 0; minute < 60 && mends < 6; minute++) {
      await world.minute(1);
      if (world.agents.get(A0)?.state !== 'working') continue;
      mends += 1;
      world.agent(A0).silent = true;
      for (const health of ['UNHEALTHY_MAINTENANCE', 'HEALTHY']) {
        world.tpus.node(A0).health = health;
        world.now += 60_000;
        await world.tick();
      }
      world.boot(A0);
    }
    assert.deepEqual([mends, (await world.stream('my-run', '000'))?.faults], [6, 0]);
  });

  it('of five machines at work on one stream fails that stream', async () => {
    const world = aWorldWithAStream(20);
    for (let minute = 0; minute < 90; minute++) {
      await world.minute(1);
      if (world.agents.get(A0)?.state === 'working') world.boot(A0);
    }
    const stream = await world.stream('my-run', '000');
    assert.deepEqual([stream?.status, stream?.faults, stream?.failures], ['failed', 5, 0]);
    assert.equal(world.tpus.made.length, 5);
    assert.match(stream?.last_error ?? '', /restarted in the middle of it/);
    assert.match((await world.timeline('stream')).join(), /failed after 5 machines/);
    await world.untilAsleep();
  });
});

describe('a worker that forgot its stream', () => {
  it('loses the stream when the lease runs out, and another worker gets it', async () => {
    const world = await aWorldWithAShard({GLEANER_ZONES: 'us-central1-a', GLEANER_WORKERS_PER_ZONE: '2'});
    const agent = world.boot(A0);
    for (let minute = 0; minute < 3; minute++) {
      world.now += 60_000;
      await agent.beat();
      await world.tick();
    }
    assert.equal((await world.worker(A0))?.phase, 'booting');
    const stream = await world.stream('my-run', '000');
    assert.deepEqual([stream?.status, stream?.lease], ['pending', null]);
    assert.match((await world.timeline('stream')).join(), /The lease of my-run\/000 ran out/);
    await assertRecovered(world);
  });
});
