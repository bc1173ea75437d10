import assert from 'node:assert/strict';
import {aTpu} from '../../world/builders.ts';
import {A0, A1, TWO_SLOTS} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

/** Makes every call of this port fail until the returned function is called. */
function cutOff<K extends 'bus' | 'tpus' | 'objects'>(world: World, port: K): () => void {
  const whole = world.deps[port];
  const fail = () => Promise.reject(new Error(`${port} is away`));
  world.deps[port] = new Proxy(whole, {
    get: (target, name) => (name === 'bucket' ? Reflect.get(target, name) : fail),
  });
  return () => {
    world.deps[port] = whole;
  };
}

async function aWorkingWorld(): Promise<World> {
  const world = new World(TWO_SLOTS);
  for (const index of [0, 1]) world.drop('my-run', index, someLines(30, `s${index}`));
  await world.until('work', () => [A0, A1].every(name => world.agents.get(name)?.state === 'working'), 9, 1);
  return world;
}

async function assertEndsWell(world: World): Promise<void> {
  await world.untilAsleep();
  for (const index of [0, 1])
    await world.assertStoredOnce('my-run', `00${index}`, someLines(30, `s${index}`));
}

describe('a function that died between the end of a run and a late stream', () => {
  it('leaves the stream to the next comparison with the bucket', async () => {
    const world = new World(TWO_SLOTS);
    world.drop('my-run', 0, someLines(5, 's0'));
    await world.untilAsleep();
    world.drop('my-run', 1, someLines(5, 's1'));
    await world.deliverNext('object');
    world.queue.length = 0;
    await world.edit('runs/my-run', {status: 'completed'});
    await world.untilStoredOnce('my-run', '001', someLines(5, 's1'));
  });
});

describe('a bucket with more objects than one page', () => {
  it('has the stream at its end registered, though its event was lost', async () => {
    const world = new World(TWO_SLOTS);
    for (let index = 0; index < 12_000; index++) world.objects.put(`datasets/aaa/old_${index}.txt`, 'x');
    world.queue.length = 0;
    world.drop('mmm', 0, someLines(2));
    await world.deliverAll();
    world.drop('zzz', 0, someLines(5));
    world.queue.length = 0;
    await world.until(
      'the end of the first run',
      async () => (await world.run('mmm'))?.status === 'completed',
    );
    await world.untilStoredOnce('zzz', '000', someLines(5));
  });
});

describe('a service that is away', () => {
  for (const port of ['bus', 'tpus', 'objects'] as const)
    it(`(${port}) makes the tick fail without a conclusion, and the next tick makes up for it`, async () => {
      const world = await aWorkingWorld();
      world.preempt(A0);
      const back = cutOff(world, port);
      await assert.rejects(world.tick(), new RegExp(`${port} is away`));
      assert.equal((await world.worker(A1))?.phase, 'working');
      back();
      await assertEndsWell(world);
      assert.deepEqual(world.tpus.made, [`${A0}#1`, `${A1}#1`, `${A0}#2`]);
    });

  for (const path of ['prices/chips', 'system/creates', 'system/spending'])
    it(`(the document ${path}) keeps no preempted node from its delete, and creates none`, async () => {
      const world = new World({...TWO_SLOTS, GLEANER_MAX_BUDGET_USD: '1000'});
      for (const index of [0, 1]) world.drop('my-run', index, someLines(30, `s${index}`));
      await world.until('work', () => world.agents.size === 2, 9, 1);
      const {store} = world.deps;
      const get: typeof store.get = async read => {
        if (read === path) throw new Error(`${path} is away`);
        return store.get(read);
      };
      world.deps.store = {...store, get};
      world.preempt(A0);
      await assert.rejects(world.tick(), new RegExp(`${path} is away`));
      assert.equal((await world.worker(A0))?.phase, 'deleting');
      assert.notEqual((await world.worker(A1))?.phase, 'deleting');
      assert.equal((await world.run('my-run'))?.status, 'active');
      for (let minute = 0; minute < 4; minute++) {
        world.now += 60_000;
        await world.deliverAll();
        world.settleTpus();
        await assert.rejects(world.tick(), new RegExp(`${path} is away`));
      }
      assert.equal((await world.worker(A0))?.phase, 'gone');
      assert.deepEqual(world.tpus.made, [`${A0}#1`, `${A1}#1`]);
      world.deps.store = store;
      await assertEndsWell(world);
    });

  for (const port of ['bus', 'objects'] as const)
    it(`(${port}) makes the event of a stream come again`, async () => {
      const world = new World(TWO_SLOTS);
      const back = cutOff(world, port);
      for (const index of [0, 1]) world.drop('my-run', index, someLines(30, `s${index}`));
      await world.deliverAll();
      assert.ok(world.logs.some(({message}) => message === `object: ${port} is away`));
      back();
      await assertEndsWell(world);
    });

  it('(the database) is a server error for agents, which ask again', async () => {
    const world = await aWorkingWorld();
    world.outage.begin(2, () => 0);
    const agent = world.agent(A0);
    const {lease} = agent;
    await agent.beat();
    await agent.step().catch(() => {});
    assert.deepEqual([agent.state, agent.lease, agent.told], ['working', lease, []]);
    world.outage.end();
    await assertEndsWell(world);
  });
});

describe('an invalid message', () => {
  const requests: {name: string; body: unknown; says: RegExp}[] = [
    {name: 'nothing', body: undefined, says: /The request is not valid/},
    {name: 'an unknown action', body: {action: 'dance'}, says: /action/},
    {name: 'no host', body: {action: 'lease', worker: A0, incarnation: 1}, says: /host/},
    {
      name: 'an impossible worker name',
      body: {action: 'lease', worker: '../x', incarnation: 1, host: 0},
      says: /worker: a worker name/,
    },
  ];
  for (const {name, body, says} of requests)
    it(`from an agent is refused with the reason and changes nothing: ${name}`, async () => {
      const world = await aWorkingWorld();
      const before = await world.describe();
      const answer = await world.api(body as object);
      assert.equal(answer.status, 400);
      assert.match(String(answer.body.error), says);
      assert.equal(await world.describe(), before);
    });

  for (const [topic, data] of [
    ['tpu', {message: {data: Buffer.from('create it').toString('base64')}}],
    [
      'tpu',
      {message: {data: Buffer.from('{"action":"create","worker":"x","incarnation":1}').toString('base64')}},
    ],
    ['tpu', {}],
    ['tasks', {message: {data: Buffer.from('{"task":"dance"}').toString('base64')}}],
    ['tick', {}],
    ['object', {bucket: 'bucket'}],
    ['object', {message: {attributes: {eventType: 'OBJECT_FINALIZE', bucketId: 'bucket'}}}],
    ['control', 'text'],
  ] as const)
    it(`on topic ${topic} is logged and acknowledged: ${JSON.stringify(data).slice(0, 40)}`, async () => {
      const world = new World(TWO_SLOTS);
      assert.equal(await world.handle({id: '1', topic, data}), true);
      assert.ok(
        world.logs.some(
          ({severity, message}) =>
            severity === (topic === 'control' ? 'WARNING' : 'ERROR') && /is not (valid|JSON)/.test(message),
        ),
      );
      assert.ok(await world.isAsleep());
    });

  it('for a worker without a document asks nothing of Cloud TPU', async () => {
    const world = new World(TWO_SLOTS);
    for (const action of ['create', 'delete'])
      await world.deps.bus.publish('tpu', {action, worker: A0, incarnation: 1});
    world.tpus.add(aTpu({name: A0, labels: {}}));
    await world.deliverAll();
    assert.deepEqual([world.tpus.states(), world.tpus.made], [{[A0]: 'READY'}, []]);
  });

  it('for an earlier incarnation does nothing to the present one', async () => {
    const world = await aWorkingWorld();
    const late = world.published.filter(({topic}) => topic === 'tpu');
    world.control({action: 'recreate', worker: A0});
    await world.until('the next incarnation', () => world.agents.get(A0)?.incarnation === 2, 9, 1);
    late.push(...world.published.filter(({topic}) => topic === 'tpu'));
    const before = [world.tpus.states(), world.tpus.made.length];
    world.queue.push(...late);
    await world.deliverAll();
    assert.deepEqual([world.tpus.states(), world.tpus.made.length], before);
    await assertEndsWell(world);
  });
});
