import assert from 'node:assert/strict';
import {someLines} from '../support/agent.ts';
import {World} from '../support/control-plane-harness.ts';

const A0 = 'tpu-us-central1-a-0';
const ONE_SLOT = {GLEANER_ZONES: 'us-central1-a', GLEANER_WORKERS_PER_ZONE: '1'};

/** A stream of two lines, whose event was lost. */
function aForgottenStream(): World {
  const world = new World(ONE_SLOT);
  world.drop('my-run', 0, someLines(2));
  world.queue.length = 0;
  return world;
}

async function aWorkingWorld(): Promise<World> {
  const world = new World(ONE_SLOT);
  world.drop('my-run', 0, someLines(20));
  await world.until('work', () => world.agents.get(A0)?.state === 'working', 9, 1);
  return world;
}

/** What became of a control message. */
async function outcome(world: World, id: string) {
  const record = await world.store.get(`control/${id}`);
  return {outcome: record?.outcome, reason: String(record?.reason)};
}

async function send(world: World, message: string | object) {
  const id = world.control(message);
  await world.deliverAll();
  return {id, ...(await outcome(world, id))};
}

describe('control messages', () => {
  it('pause lets the shard in hand be finished, and then no TPU is left and nothing ticks; resume goes on from there', async () => {
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
    assert.equal(world.tpus.nodes.size, 0, 'a stream dropped meanwhile waits too');
    assert.equal((await send(world, {action: 'resume', run: 'my-run'})).outcome, 'applied');
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
    await world.assertStoredOnce('my-run', '001', someLines(2));
  });

  it('a worker that is let go gets nothing more, also when work comes meanwhile', async () => {
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
    await world.untilAsleep();
    await world.assertStoredOnce('other', '000', someLines(4));
  });

  for (const [status, told] of [
    ['cancelled', 'stop'],
    ['paused', 'drain'],
  ] as const)
    it(`a run that somebody makes ${status} in the console is so for its worker after the next tick`, async () => {
      const world = await aWorkingWorld();
      await world.store.transaction(async tx => {
        const run = await tx.get('runs/my-run');
        tx.set('runs/my-run', {...run, status});
      });
      await world.tick();
      await world.agent(A0).beat();
      assert.deepEqual(world.agent(A0).told, [told]);
      await world.minutes(20);
      assert.equal(world.tpus.nodes.size, 0);
    });

  it('pause and resume before the next beat are as if nobody had said anything', async () => {
    const world = await aWorkingWorld();
    for (const action of ['pause', 'resume']) await send(world, {action, run: 'my-run'});
    await world.agent(A0).beat();
    assert.deepEqual(world.agent(A0).told, []);
  });

  it('pause of one run leaves its worker to the next', async () => {
    const world = await aWorkingWorld();
    world.drop('other', 0, someLines(4));
    await send(world, {action: 'pause', run: 'my-run'});
    await world.until(
      'the other run is done',
      async () => (await world.run('other'))?.status === 'completed',
      20,
    );
    assert.deepEqual(world.tpus.made, [`${A0}#1`]);
    await world.untilAsleep();
  });

  it('stop ends the work at once and for good', async () => {
    const world = await aWorkingWorld();
    const agent = world.agent(A0);
    const shards = world.objects.names('activations/my-run/tpu_0/');
    assert.equal((await send(world, {action: 'stop', run: 'my-run'})).outcome, 'applied');
    assert.equal((await world.stream('my-run', '000'))?.lease, null);
    await agent.beat();
    assert.ok(agent.told.includes('stop'));
    await world.untilAsleep(20);
    assert.ok(world.objects.names('activations/my-run/tpu_0/').length <= shards.length + 1);
    for (const action of ['start', 'resume', 'pause'])
      assert.match((await send(world, {action, run: 'my-run'})).reason, /cancelled/);
    world.drop('my-run', 1, someLines(2));
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'cancelled');
    assert.equal(await world.stream('my-run', '001'), undefined);
    assert.match(
      (await world.timeline('rejected')).join(),
      /stream_001.jsonl is ignored: run "my-run" was stopped/,
    );
    assert.deepEqual(world.tpus.made, [`${A0}#1`]);
  });

  it('stop is final also for a run that waits for a good run.json', async () => {
    const world = new World(ONE_SLOT);
    world.objects.put('datasets/my-run/run.json', '{');
    world.drop('my-run', 0, someLines(2));
    await world.deliverAll();
    await send(world, {action: 'stop', run: 'my-run'});
    world.objects.put('datasets/my-run/run.json', '{}');
    await send(world, {action: 'start', run: 'my-run'});
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'cancelled');
    assert.deepEqual(world.tpus.made, []);
  });

  it('stop of a completed run leaves it completed, and refuses every later stream with the reason', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(2));
    await world.untilAsleep();
    assert.equal((await send(world, {action: 'stop', run: 'my-run'})).outcome, 'applied');
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

  it('recreate makes the TPU again whatever it does, and its work goes on', async () => {
    const world = await aWorkingWorld();
    assert.equal((await send(world, {action: 'recreate', worker: A0})).outcome, 'applied');
    await world.untilAsleep();
    assert.deepEqual(world.tpus.made, [`${A0}#1`, `${A0}#2`]);
    await world.assertStoredOnce('my-run', '000', someLines(20));
    assert.equal((await world.stream('my-run', '000'))?.failures, 0);
  });

  it('start takes streams whose events were lost, and starts a paused run', async () => {
    const world = aForgottenStream();
    assert.equal((await send(world, {action: 'start', run: 'my-run'})).outcome, 'applied');
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(2));
    await send(world, {action: 'start', run: 'my-run'});
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'completed', 'nothing is left to start');
  });

  const rejected: {name: string; message: string | object; says: RegExp}[] = [
    {name: 'that is not JSON', message: 'pause my-run', says: /^The message is not JSON/},
    {name: 'that is empty', message: '', says: /^The message is not JSON/},
    {name: 'that is half a character', message: '{"action":\u{1F600}}', says: /^The message is not JSON/},
    {
      name: 'of 5000 characters, some of them large',
      message: `x${'\u{1F600}'.repeat(2500)}`,
      says: /not JSON/,
    },
    {name: 'with an unknown action', message: {action: 'destroy', run: 'my-run'}, says: /action/},
    {name: 'with a key too many', message: {action: 'stop', run: 'my-run', force: true}, says: /force/},
    {name: 'without a run', message: {action: 'stop'}, says: /run/},
    {name: 'for a run that nobody knows', message: {action: 'stop', run: 'my-rum'}, says: /no run "my-rum"/},
    {
      name: 'to start a run without streams',
      message: {action: 'start', run: 'my-rum'},
      says: /no run "my-rum".*drop/,
    },
    {
      name: 'for a worker that nobody knows',
      message: {action: 'recreate', worker: 'tpu-us-east1-c-9'},
      says: /no worker "tpu-us-east1-c-9"/,
    },
    {name: 'to resume what is done', message: {action: 'resume', run: 'done'}, says: /completed/},
  ];
  for (const {name, message, says} of rejected)
    it(`one ${name} changes nothing, is recorded with its reason, and stops nobody else`, async () => {
      const world = new World(ONE_SLOT);
      world.drop('done', 0, someLines(2));
      await world.untilAsleep();
      world.drop('my-run', 0, someLines(4));
      await world.deliverAll();
      const before = await world.describe();
      const {outcome, reason} = await send(world, message);
      assert.equal(outcome, 'rejected');
      assert.match(reason, says);
      assert.equal(await world.describe(), before);
      assert.ok((await world.timeline('control')).some(text => text.includes(reason)));
      await world.untilAsleep();
      await world.assertStoredOnce('my-run', '000', someLines(4));
    });

  for (const message of [
    {action: 'configure', run: 'my-run', priority: 3},
    {action: 'retry', run: 'my-run'},
    {action: 'cancel', run: 'my-run', stream: '000'},
  ])
    it(`${message.action} reads no stream or worker but its own, however many are at work`, async () => {
      const world = new World({...ONE_SLOT, GLEANER_WORKERS_PER_ZONE: '6'});
      for (let index = 0; index < 6; index++) world.drop('my-run', index, someLines(20));
      const isAtWork = ({state}: {state: string}) => state === 'working';
      await world.until('work', () => [...world.agents.values()].filter(isAtWork).length === 6, 20, 1);
      const {store} = world.deps;
      const read = new Set<string>();
      world.deps.store = {
        ...store,
        transaction: work =>
          store.transaction(tx =>
            work({
              ...{create: tx.create.bind(tx), set: tx.set.bind(tx), delete: tx.delete.bind(tx)},
              get: path => {
                read.add(path);
                return tx.get(path);
              },
            }),
          ),
      };
      await send(world, message);
      const others = [...read].filter(path => /streams|workers/.test(path));
      assert.ok(others.length <= 2, others.join());
    });

  it('a redelivered message does nothing more', async () => {
    const world = await aWorkingWorld();
    await send(world, {action: 'pause', run: 'my-run'});
    const pause = world.published.at(-1);
    assert.ok(pause);
    await send(world, {action: 'resume', run: 'my-run'});
    const before = await world.store.get(`control/${pause.id}`);
    await world.handle(pause);
    assert.equal((await world.run('my-run'))?.status, 'active', 'the later message counts');
    assert.deepEqual(await world.store.get(`control/${pause.id}`), before);
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
  });

  it('a pause that fails once and is delivered again after a later resume leaves the run active', async () => {
    const world = await aWorkingWorld();
    const {store} = world.deps;
    world.deps.store = {...store, transaction: () => Promise.reject(new Error('the Store is away'))};
    const pause = world.control({action: 'pause', run: 'my-run'});
    await world.deliver();
    world.deps.store = store;
    const [late] = world.queue.splice(0);
    assert.equal(late?.id, pause, 'it comes again');
    assert.equal((await send(world, {action: 'resume', run: 'my-run'})).outcome, 'applied');
    assert.ok(late && (await world.handle(late)));
    assert.equal((await world.run('my-run'))?.status, 'active');
    assert.match((await outcome(world, pause)).reason, /^outdated: .*status/);
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
  });

  it('a message without a publish time is rejected, recorded with its reason, and changes nothing', async () => {
    const world = await aWorkingWorld();
    const data = Buffer.from(JSON.stringify({action: 'stop', run: 'my-run'})).toString('base64');
    assert.ok(await world.handle({id: '7', topic: 'control', data: {message: {data, messageId: '7'}}}));
    const record = await outcome(world, '7');
    assert.equal(record.outcome, 'rejected');
    assert.match(record.reason, /no publishTime/);
    assert.equal((await world.run('my-run'))?.status, 'active');
  });

  it('a message with a key twice is rejected, recorded with the key, and changes nothing', async () => {
    const world = await aWorkingWorld();
    for (const [message, key] of [
      ['{"action":"pause","action":"stop","run":"my-run"}', 'action'],
      [`{"action":"stop","run":"${'x'.repeat(9e6)}","run":"my-run"}`, 'run'],
    ] as const) {
      const {id: _, ...record} = await send(world, message);
      const reason = `The message is not valid: it has the key "${key}" twice`;
      assert.deepEqual(record, {outcome: 'rejected', reason});
    }
    assert.equal((await world.run('my-run'))?.status, 'active');
  });

  it('a worker that was deleted and whose zone the pool has left keeps nobody from waiting for the others', async () => {
    const world = new World({...ONE_SLOT, GLEANER_ZONES: 'us-central1-a,europe-west4-b'});
    world.drop('my-run', 0, someLines(2));
    await world.untilAsleep();
    assert.equal((await send(world, {action: 'delete', worker: A0})).outcome, 'applied');
    await send(world, {action: 'scale', zones: ['europe-west4-b']});
    world.tpus.soldOut.add('europe-west4-b');
    world.drop('my-run', 1, someLines(2));
    for (let minute = 0; minute < 3; minute++) await world.minute();
    assert.ok(world.tickerOn);
    world.tpus.soldOut.clear();
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '001', someLines(2));
  });

  it('a message that was rejected and comes again is taken, and not for ever', async () => {
    const world = new World(ONE_SLOT);
    const {id} = await send(world, {action: 'start', run: 'nobody-dropped-it'});
    const message = world.published.find(({id: other}) => other === id) ?? assert.fail();
    assert.equal(await world.handle(message), true);
    assert.equal((await outcome(world, id)).outcome, 'rejected');
  });

  it('a message whose function died after it was recorded is finished when it comes again', async () => {
    const world = await aWorkingWorld();
    await send(world, {action: 'pause', run: 'my-run'});
    await world.untilAsleep(20);
    const {ticker} = world.deps;
    world.deps.ticker = {...ticker, on: () => Promise.reject(new Error('the function was killed'))};
    const resume = await send(world, {action: 'resume', run: 'my-run'});
    assert.equal(resume.outcome, 'applied');
    assert.equal(world.queue.length, 1, 'it comes again');
    world.deps.ticker = ticker;
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
  });

  it('a message that is rejected, and makes a run known whose events were lost, wakes the beat for it', async () => {
    const world = aForgottenStream();
    assert.equal((await send(world, {action: 'retry', run: 'my-run'})).outcome, 'rejected');
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(2));
  });
});

describe('messages that change what is wanted', () => {
  it('delete is final also where the Store is lost before the node has gone', async () => {
    const world = await aWorkingWorld();
    assert.equal((await send(world, {action: 'delete', worker: A0})).outcome, 'applied');
    await world.wipe();
    await world.minutes(9);
    assert.deepEqual([world.tpus.states(), world.tpus.made], [{}, [`${A0}#1`]]);
    assert.equal((await world.worker(A0))?.held, true);
  });

  it('delete is final also where the Store is lost after it', async () => {
    const world = await aWorkingWorld();
    await send(world, {action: 'delete', worker: A0});
    await world.minutes(4);
    assert.deepEqual(world.tpus.states(), {});
    await world.wipe();
    await world.minutes(5);
    assert.deepEqual(world.tpus.made, [`${A0}#1`]);
  });

  it('delete and recreate of a worker without a document are rejected: its node goes by itself', async () => {
    const world = await aWorkingWorld();
    await world.wipe();
    for (const action of ['delete', 'recreate']) {
      const {outcome, reason} = await send(world, {action, worker: A0});
      assert.deepEqual([outcome, reason], ['rejected', `there is no worker "${A0}"`]);
    }
    await world.untilAsleep();
    assert.deepEqual(world.tpus.made, [`${A0}#1`]);
  });

  it('delete of the TPU of a fixed stream leaves nothing to tick for', async () => {
    const world = new World({...ONE_SLOT, GLEANER_WORKERS_PER_ZONE: '2'});
    world.objects.put('datasets/my-run/run.json', '{"affinity": "fixed"}');
    world.drop('my-run', 0, someLines(20));
    await world.until('work', () => world.agents.get(A0)?.state === 'working', 9, 1);
    await send(world, {action: 'delete', worker: A0});
    await world.minutes(20);
    assert.ok(world.isAsleep());
  });

  it('retry of more streams than one message revives says so @full', async () => {
    const world = new World(ONE_SLOT);
    for (let index = 0; index < 203; index++) world.drop('my-run', index, '');
    await world.deliverAll();
    const first = await send(world, {action: 'retry', run: 'my-run'});
    assert.match(first.reason, /; and 180 more; more are parked: send it again for them$/);
  });

  it('scale to none lets every TPU go, and scale up goes on', async () => {
    const world = await aWorkingWorld();
    assert.equal((await send(world, {action: 'scale', workers_per_zone: 0})).outcome, 'applied');
    await world.untilAsleep(20);
    assert.equal((await world.stream('my-run', '000'))?.status, 'pending');
    const zones = ['us-central1-a', 'europe-west4-b'];
    assert.equal((await send(world, {action: 'scale', workers_per_zone: 1, zones})).outcome, 'applied');
    world.drop('my-run', 1, someLines(20));
    await world.until('both zones', () => world.tpus.nodes.size === 2, 9, 1);
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
    const pool = await world.store.get('pools/tpu');
    assert.deepEqual([pool?.version, pool?.workers_per_zone, pool?.zones], [2, 1, zones]);
  });

  it('delete takes the TPU away for good, its stream goes on elsewhere, and recreate brings it back', async () => {
    const world = await aWorkingWorld();
    assert.equal((await send(world, {action: 'delete', worker: A0})).outcome, 'applied');
    await world.minutes(6);
    assert.deepEqual([world.tpus.nodes.size, (await world.worker(A0))?.phase], [0, 'gone']);
    assert.equal((await send(world, {action: 'recreate', worker: A0})).outcome, 'applied');
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
  });

  it('cancel parks a stream and its worker leaves it; retry revives it, alone or with all that is parked', async () => {
    const world = await aWorkingWorld();
    const cancel = await send(world, {action: 'cancel', run: 'my-run', stream: '000'});
    assert.deepEqual([cancel.outcome, (await world.stream('my-run', '000'))?.status], ['applied', 'failed']);
    await world.untilAsleep();
    assert.ok(!(await world.stream('my-run', '000'))?.finished);
    assert.equal((await world.run('my-run'))?.status, 'failed');
    const unknown = await send(world, {action: 'retry', run: 'my-run', stream: '009'});
    assert.deepEqual([unknown.outcome, unknown.reason], ['rejected', 'there is no stream my-run/009']);
    assert.equal((await send(world, {action: 'retry', run: 'my-run'})).outcome, 'applied');
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
    assert.match((await send(world, {action: 'retry', run: 'my-run'})).reason, /has no failed stream/);
    const late = await send(world, {action: 'cancel', run: 'my-run', stream: '000'});
    assert.deepEqual([late.outcome, late.reason], ['rejected', 'stream my-run/000 is completed']);
  });

  it('configure changes a run only from the version that its sender knew', async () => {
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

  for (const [message, reason] of [
    [{action: 'scale'}, /say what to change/],
    [{action: 'scale', workers_per_zone: -1}, /workers_per_zone/],
    [{action: 'scale', zones: ['moon-1']}, /zones/],
    [{action: 'scale', zones: ['us-central1-a', 'us-central1-a']}, /each zone once/],
    [{action: 'scale', pool: 'other', workers_per_zone: 1}, /there is no pool "other"/],
    [{action: 'configure', run: 'my-run'}, /say what to change/],
    [{action: 'configure', run: 'my-run', budget_usd: 0}, /budget_usd/],
    [{action: 'configure', run: 'my-run', layers: 'all'}, /layers/],
    [{action: 'configure', run: 'no-run', priority: 1}, /there is no run "no-run"/],
    [{action: 'cancel', run: 'my-run'}, /stream/],
    [{action: 'delete', worker: 'tpu-us-central1-a-9'}, /there is no worker/],
  ] as const)
    it(`${JSON.stringify(message)} is refused with the reason`, async () => {
      const world = new World(ONE_SLOT);
      world.drop('my-run', 0, someLines(2));
      await world.deliverAll();
      const {outcome, reason: why} = await send(world, message);
      assert.equal(outcome, 'rejected');
      assert.match(why, reason);
    });
});
