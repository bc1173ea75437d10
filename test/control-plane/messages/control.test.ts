import assert from 'node:assert/strict';
import {KEPT_DAYS} from '../../../shared/contracts/settings/config.ts';
import {msOf} from '../../../shared/domain/time.ts';
import {outcomeOf, send, sendAlone} from '../../world/people.ts';
import {aWorkingWorld, aWorldWithAStream} from '../../world/scenes/one-worker.ts';
import {A0, ONE_SLOT} from '../../world/scenes/places.ts';
import {FAST} from '../../world/scenes/second-pool.ts';
import {wholeStore} from '../../world/scenes/whole-store.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

describe('a control message that is rejected', () => {
  const rejected: {name: string; message: string | object; says: RegExp}[] = [
    {name: 'that is not JSON', message: 'pause my-run', says: /^The message is not JSON/},
    {name: 'that is empty', message: '', says: /^The message has no data/},
    {name: 'that is half a character', message: '{"action":\u{1F600}}', says: /^The message is not JSON/},
    {
      name: 'of 5000 characters, some of them large',
      message: `x${'\u{1F600}'.repeat(2500)}`,
      says: /not JSON/,
    },
    {name: 'with an unknown action', message: {action: 'destroy', run: 'my-run'}, says: /action/},
    {name: 'with a key too many', message: {action: 'stop', run: 'my-run', force: true}, says: /force/},
    {name: 'without a run', message: {action: 'stop'}, says: /run/},
    {name: 'for an unknown run', message: {action: 'stop', run: 'my-rum'}, says: /no run "my-rum"/},
    {
      name: 'to start a run without streams',
      message: {action: 'start', run: 'my-rum'},
      says: /no run "my-rum".*drop/,
    },
    {
      name: 'for an unknown worker',
      message: {action: 'recreate', worker: 'tpu-us-east1-c-9'},
      says: /no worker "tpu-us-east1-c-9"/,
    },
    {name: 'to resume a completed run', message: {action: 'resume', run: 'done'}, says: /completed/},
  ];
  for (const {name, message, says} of rejected)
    it(`a message ${name} changes nothing, is recorded with its reason, and stops no other run`, async () => {
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
      await world.untilStoredOnce('my-run', '000', someLines(4));
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
    it(`the message ${JSON.stringify(message)} is refused with the reason`, async () => {
      const world = aWorldWithAStream(2);
      await world.deliverAll();
      const {outcome, reason: why} = await send(world, message);
      assert.equal(outcome, 'rejected');
      assert.match(why, reason);
    });

  it('a message without a publish time is rejected, recorded with its reason, and changes nothing', async () => {
    const world = await aWorkingWorld();
    const data = Buffer.from(JSON.stringify({action: 'stop', run: 'my-run'})).toString('base64');
    assert.ok(await world.handle({id: '7', topic: 'control', data: {message: {data, messageId: '7'}}}));
    const record = await outcomeOf(world, '7');
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

  for (const given of ['{', {action: 'start', run: 'my-run'}, {action: 'scale', pool: 'fast', budget_usd: 9}])
    it(`${JSON.stringify(given)} that comes again later stays rejected, and its record stays as it is`, async () => {
      const world = new World(ONE_SLOT);
      const {id} = await send(world, given);
      const message = world.published.find(({id: other}) => other === id) ?? assert.fail();
      const record = (await world.store.get(`control/${id}`)) ?? assert.fail();
      assert.equal(record.outcome, 'rejected');
      assert.equal(msOf(String(record.expire_at)) - msOf(String(record.at)), KEPT_DAYS.commands * 86_400_000);
      world.drop('my-run', 0, someLines(2));
      await send(world, FAST);
      world.now += 60_000;
      const before = await wholeStore(world);
      assert.equal(await world.handle(message), true);
      assert.deepEqual(await wholeStore(world), before);
    });

  it('a rejected message that makes a run known keeps no stream whose event was lost from being registered', async () => {
    const world = aWorldWithAStream(2);
    world.queue.length = 0;
    const message = {action: 'configure', run: 'my-run', priority: 1, if_version: 9};
    assert.equal((await send(world, message)).outcome, 'rejected');
    assert.equal((await world.run('my-run'))?.status, 'active');
    assert.equal(await world.stream('my-run', '000'), undefined);
    await world.untilStoredOnce('my-run', '000', someLines(2));
  });
});

describe('a control message that comes again', () => {
  it('a redelivered message does nothing more', async () => {
    const world = await aWorkingWorld();
    const {id} = await sendAlone(world, {action: 'pause', run: 'my-run'});
    const pause = world.published.find(message => message.id === id) ?? assert.fail();
    await send(world, {action: 'resume', run: 'my-run'});
    const before = await world.store.get(`control/${id}`);
    await world.handle(pause);
    assert.equal((await world.run('my-run'))?.status, 'active', 'the later message counts');
    assert.deepEqual(await world.store.get(`control/${id}`), before);
    await world.untilStoredOnce('my-run', '000', someLines(20));
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
    assert.match((await outcomeOf(world, pause)).reason, /^outdated: .*status/);
    await world.untilStoredOnce('my-run', '000', someLines(20));
  });

  it('a message whose function died after it was recorded wakes the tick when it comes again', async () => {
    const world = await aWorkingWorld();
    await send(world, {action: 'pause', run: 'my-run'});
    await world.until('no TPU', () => world.tpus.nodes.size === 0, 20);
    const {bus} = world.deps;
    world.deps.bus = {publish: () => Promise.reject(new Error('the function was killed'))};
    const resume = await send(world, {action: 'resume', run: 'my-run'});
    assert.equal(resume.outcome, 'applied');
    assert.equal(world.queue.length, 1, 'it comes again');
    world.deps.bus = bus;
    await world.deliverAll();
    assert.deepEqual(world.tpus.made, [`${A0}#1`, `${A0}#2`], 'no other message asks for a tick');
    await world.untilStoredOnce('my-run', '000', someLines(20));
  });
});

describe('a control message about one document', () => {
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
      await sendAlone(world, message);
      assert.ok(read.has('runs/my-run'), [...read].join());
      const others = [...read].filter(path => /streams|workers/.test(path));
      assert.ok(others.length <= 2, others.join());
    });
});
