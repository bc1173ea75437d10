import assert from 'node:assert/strict';
import {runRecords, streamRecords} from '../../../shared/control-plane/documents/documents.ts';
import {paths, stopObject} from '../../../shared/domain/names.ts';
import {aRun, aStream, at, T0} from '../../world/builders.ts';
import {send, sendAlone} from '../../world/people.ts';
import {aWorkingWorld, aWorldWithAStream, aWorldWithSpec} from '../../world/scenes/one-worker.ts';
import {A0} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

describe('pause and resume', () => {
  it('pause lets the worker finish the shard in hand and takes its TPU; resume goes on from there', async () => {
    const world = await aWorkingWorld();
    const agent = world.agent(A0);
    assert.equal((await send(world, {action: 'pause', run: 'my-run'})).outcome, 'applied');
    await world.untilAsleep(20);
    assert.ok(agent.told.includes('drain'), agent.told.join());
    const paused = await world.stream('my-run', '000');
    assert.deepEqual(
      [(await world.run('my-run'))?.status, paused?.status, paused?.failures],
      ['paused', 'pending', 0],
    );
    assert.ok((paused?.total_shards ?? 0) > 0 && (paused?.total_shards ?? 0) < 10);
    world.drop('my-run', 1, someLines(2));
    await world.minutes(5);
    assert.equal(world.tpus.nodes.size, 0, 'a stream dropped during the pause waits too');
    assert.equal((await send(world, {action: 'resume', run: 'my-run'})).outcome, 'applied');
    await world.untilStoredOnce('my-run', '000', someLines(20));
    await world.assertStoredOnce('my-run', '001', someLines(2));
  });

  it('a draining worker gets no further work, also when another run gets a stream', async () => {
    const world = await aWorkingWorld();
    await send(world, {action: 'pause', run: 'my-run'});
    await world.tick();
    assert.equal((await world.worker(A0))?.phase, 'draining');
    world.drop('other', 0, someLines(4));
    await world.deliverAll();
    const agent = world.agent(A0);
    await agent.beat();
    await agent.step();
    assert.equal((await world.stream('my-run', '000'))?.status, 'pending');
    await agent.step();
    assert.deepEqual([agent.state, agent.told.at(-1)], ['ended', 'exit']);
    await world.untilStoredOnce('other', '000', someLines(4));
  });

  for (const [status, told] of [
    ['stopped', 'stop'],
    ['paused', 'drain'],
  ] as const)
    it(`a run that is set to ${status} in the console tells its worker to ${told} after the next tick`, async () => {
      const world = await aWorkingWorld();
      await world.edit('runs/my-run', {status});
      await world.tick();
      await world.agent(A0).beat();
      assert.deepEqual(world.agent(A0).told, [told]);
      await world.minutes(20);
      assert.equal(world.tpus.nodes.size, 0);
    });

  it('pause and resume before the next tick leave the worker at work', async () => {
    const world = await aWorkingWorld();
    for (const action of ['pause', 'resume']) await sendAlone(world, {action, run: 'my-run'});
    await world.agent(A0).beat();
    await world.deliverAll();
    await world.agent(A0).beat();
    assert.deepEqual([world.agent(A0).told, (await world.worker(A0))?.phase], [[], 'working']);
  });

  it('pause and resume around a tick leave a worker at work that another run wants', async () => {
    const world = await aWorkingWorld();
    world.drop('other', 0, someLines(4));
    await send(world, {action: 'pause', run: 'my-run'});
    assert.equal((await world.worker(A0))?.drains, true);
    await send(world, {action: 'resume', run: 'my-run'});
    await world.agent(A0).beat();
    assert.deepEqual([(await world.worker(A0))?.drains, world.agent(A0).told], [false, []]);
  });

  it('a paused run without workers is counted after a change of a stream alone', async () => {
    const world = new World();
    world.drop('my-run', 0, someLines(9));
    await world.deliverAll();
    world.control({action: 'pause', run: 'my-run'});
    await world.untilAsleep();
    await world.minutes(9, 0);
    const {sum} = world.deps.store;
    let counted = 0;
    world.deps.store.sum = (...of) => {
      counted += 1;
      return sum(...of);
    };
    for (let minute = 0; minute < 60; minute++) {
      world.now += 60_000;
      await world.tick();
    }
    assert.equal(counted, 0);
    world.drop('my-run', 1, someLines(9, 'b'));
    await world.deliverNext('object');
    world.queue.length = 0;
    await world.tick();
    assert.deepEqual([counted, (await world.run('my-run'))?.streams_pending], [1, 2], 'its wake was lost');
  });

  it('a paused run without workers is counted after a change that is dated before its last count', async () => {
    const world = new World();
    await world.store.transaction(async tx => {
      runRecords.set(tx, aRun({status: 'paused', streams_pending: 2, updated_at: at(60)}));
      streamRecords.set(tx, aStream());
      streamRecords.set(tx, aStream({stream: '008', worker_id: 8, status: 'failed', updated_at: at(30)}));
    });
    world.now = T0 + 120_000;
    await world.tick();
    const {streams_pending, streams_failed} = (await world.run('my-run')) ?? {};
    assert.deepEqual([streams_pending, streams_failed], [1, 1], 'the change was committed after the count');
  });

  it('pause of one run leaves its worker to the next', async () => {
    const world = await aWorkingWorld();
    world.drop('other', 0, someLines(4));
    await send(world, {action: 'pause', run: 'my-run'});
    const isDone = async () => (await world.run('other'))?.status === 'completed';
    await world.until('the other run is done', isDone, 20);
    assert.deepEqual(world.tpus.made, [`${A0}#1`]);
    await world.untilAsleep();
  });
});

describe('stop', () => {
  it('ends the work at the next tick and for good', async () => {
    const world = await aWorkingWorld();
    const agent = world.agent(A0);
    const shardsOf = async () => (await world.stream('my-run', '000'))?.total_shards ?? 0;
    await world.until('a shard', async () => (await shardsOf()) > 0, 9, 1);
    const shards = world.objects.names('activations/my-run/tpu_0/');
    const total_shards = await shardsOf();
    await world.store.transaction(async tx => {
      runRecords.set(tx, {...((await world.run('my-run')) ?? assert.fail()), total_shards: 0});
    });
    assert.equal((await sendAlone(world, {action: 'stop', run: 'my-run'})).outcome, 'applied');
    assert.equal((await world.run('my-run'))?.total_shards, total_shards, 'its totals are final');
    assert.ok(await world.deps.objects.head(stopObject('my-run')));
    await world.deliverAll();
    assert.equal((await world.stream('my-run', '000'))?.lease, null);
    await agent.beat();
    assert.ok(agent.told.includes('stop'));
    await world.untilAsleep(20);
    assert.ok(world.objects.names('activations/my-run/tpu_0/').length <= shards.length + 1);
    for (const action of ['start', 'resume', 'pause'])
      assert.match((await send(world, {action, run: 'my-run'})).reason, /stopped/);
    world.drop('my-run', 1, someLines(2));
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'stopped');
    assert.equal(await world.stream('my-run', '001'), undefined);
    assert.match(
      (await world.timeline('rejected')).join(),
      /stream_001.jsonl is ignored: run "my-run" was stopped/,
    );
    assert.deepEqual(world.tpus.made, [`${A0}#1`]);
  });

  it('is final also for a run that waits for a good run.json', async () => {
    const world = aWorldWithSpec('{', 2);
    await world.deliverAll();
    await send(world, {action: 'stop', run: 'my-run'});
    world.objects.put('datasets/my-run/run.json', '{}');
    await send(world, {action: 'start', run: 'my-run'});
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'stopped');
    assert.deepEqual(world.tpus.made, []);
  });

  it('is final also for a run with a bad run.json whose document was lost', async () => {
    const world = aWorldWithSpec('{', 2);
    await world.deliverAll();
    await send(world, {action: 'stop', run: 'my-run'});
    await world.store.transaction(async tx => tx.delete(paths.run('my-run')));
    world.drop('my-run', 1, someLines(2));
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'stopped');
  });

  it('leaves a completed run completed, and refuses every later stream with the reason', async () => {
    const world = aWorldWithAStream(2);
    await world.untilAsleep();
    assert.equal((await send(world, {action: 'stop', run: 'my-run'})).outcome, 'applied');
    assert.equal(await world.deps.objects.head(stopObject('my-run')), undefined, 'a rebuild completes it');
    const made = [...world.tpus.made];
    world.now += 60_000;
    world.drop('my-run', 1, someLines(2));
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'completed');
    assert.equal(await world.stream('my-run', '001'), undefined);
    assert.match(
      (await world.timeline('rejected')).join(),
      /stream_001.jsonl is ignored: run "my-run" was stopped/,
    );
    assert.deepEqual(world.tpus.made, made);
  });

  it('takes the TPU at the second tick, also where the agent says nothing', async () => {
    const world = await aWorkingWorld();
    world.agent(A0).silent = true;
    await send(world, {action: 'stop', run: 'my-run'});
    await world.minutes(2);
    assert.ok(await world.isAsleep());
  });
});

describe('start', () => {
  it('registers streams whose events were lost, and does nothing to a completed run', async () => {
    const world = aWorldWithAStream(2);
    world.queue.length = 0;
    assert.equal((await sendAlone(world, {action: 'start', run: 'my-run'})).outcome, 'applied');
    assert.equal((await world.store.get('tasks/register-my-run'))?.status, 'open');
    assert.ok(world.queue.some(({topic}) => topic === 'tasks'));
    await world.deliverAll();
    const {status, result} = (await world.store.get('tasks/register-my-run')) ?? {};
    assert.deepEqual([status, result], ['done', 'every stream of run my-run is registered']);
    assert.equal((await world.stream('my-run', '000'))?.status, 'pending');
    await world.untilStoredOnce('my-run', '000', someLines(2));
    await send(world, {action: 'start', run: 'my-run'});
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'completed', 'nothing is left to start');
  });

  it('lets a paused run go on', async () => {
    const world = await aWorkingWorld();
    await send(world, {action: 'pause', run: 'my-run'});
    await world.until('no TPU', () => world.tpus.nodes.size === 0, 20);
    await send(world, {action: 'start', run: 'my-run'});
    await world.untilStoredOnce('my-run', '000', someLines(20));
  });
});

describe('configure', () => {
  it('changes a run only from the version that its sender knew', async () => {
    const world = await aWorkingWorld();
    const message = {action: 'configure', run: 'my-run', priority: 7, budget_usd: 12.5, if_version: 0};
    assert.equal((await send(world, message)).outcome, 'applied');
    const {priority, budget_usd, version} = (await world.run('my-run')) ?? assert.fail();
    assert.deepEqual([priority, budget_usd, version], [7, 12.5, 1]);
    const stale = await send(world, {...message, priority: 1});
    assert.equal(stale.outcome, 'rejected');
    assert.match(stale.reason, /is at version 1, not 0/);
    assert.equal((await world.run('my-run'))?.priority, 7);
  });
});
