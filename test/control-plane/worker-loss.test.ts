import assert from 'node:assert/strict';
import {TpuError} from '../../shared/contracts/errors.ts';
import {lookAtEverything} from '../../shared/control-plane/handlers/tick.ts';
import type {Store} from '../../shared/ports.ts';
import {someLines} from '../support/agent.ts';
import {aTpu} from '../support/builders.ts';
import {World} from '../support/control-plane-harness.ts';

const A0 = 'tpu-us-central1-a-0';
const A1 = 'tpu-us-central1-a-1';
const B0 = 'tpu-europe-west4-b-0';
const ONE_SLOT = {GLEANER_ZONES: 'us-central1-a', GLEANER_WORKERS_PER_ZONE: '1'};
const IN_PRODUCTION = {GLEANER_HEARTBEAT_S: '60', GLEANER_LEASE_S: '240', GLEANER_SILENT_S: '300'};

/** A world in which one worker has stored the first of ten shards of my-run/000. */
async function aWorkingWorld(set: Record<string, string> = ONE_SLOT): Promise<World> {
  const world = new World(set);
  world.drop('my-run', 0, someLines(20));
  await world.until(
    'a first shard',
    async () => ((await world.stream('my-run', '000'))?.total_shards ?? 0) > 0,
    9,
    1,
  );
  return world;
}

async function assertRecovered(world: World, text = someLines(20)): Promise<void> {
  await world.untilAsleep();
  await world.assertStoredOnce('my-run', '000', text);
  assert.equal((await world.run('my-run'))?.status, 'completed');
  assert.equal((await world.stream('my-run', '000'))?.failures, 0, 'a lost machine is no failure');
}

describe('a TPU that is lost', () => {
  const losses: {name: string; lose: (world: World) => void; cause: RegExp}[] = [
    {
      name: 'preempted without notice',
      lose: world => {
        world.tpus.node(A0).state = 'PREEMPTED';
        world.agents.delete(A0);
      },
      cause: /preempted/,
    },
    {
      name: 'stopped, as a preemption also looks',
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
      const world = await aWorkingWorld();
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

  it('twice in the same way says so both times', async () => {
    const world = await aWorkingWorld();
    for (const incarnation of [1, 2]) {
      await world.until('work', () => world.agents.get(A0)?.state === 'working', 20, 1);
      assert.equal(world.agent(A0).incarnation, incarnation);
      world.tpus.node(A0).state = 'PREEMPTED';
      world.agents.delete(A0);
      await world.minutes(2);
    }
    const attempts = await world.store.query(`workers/${A0}/attempts`);
    assert.deepEqual(
      attempts.map(({data}) => data.cause),
      ['it was preempted', 'it was preempted'],
    );
  });

  it('never boots is deleted after its time', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(3));
    await world.deliverAll();
    world.settle();
    world.agent(A0).silent = true;
    await assertRecovered(world, someLines(3));
    assert.deepEqual(world.tpus.made, [`${A0}#1`, `${A0}#2`]);
    const [first] = await world.store.query(`workers/${A0}/attempts`);
    assert.match(String(first?.data.cause), /READY but said nothing/);
  });

  it('with notice gives its stream back at once', async () => {
    const world = await aWorkingWorld();
    await world.agent(A0).preempted();
    const stream = await world.stream('my-run', '000');
    assert.deepEqual([stream?.status, stream?.lease, stream?.failures], ['pending', null, 0]);
    world.tpus.node(A0).state = 'PREEMPTED';
    await assertRecovered(world);
  });

  it('frees its stream for the others as soon as a tick sees it', async () => {
    const world = await aWorkingWorld({});
    world.drop('my-run', 1, someLines(20, 'other'));
    await world.until('a second worker', () => world.agents.get(A1)?.state === 'working', 9, 1);
    world.tpus.node(A0).state = 'PREEMPTED';
    world.agents.delete(A0);
    await world.tick();
    assert.equal((await world.stream('my-run', '000'))?.status, 'pending');
    await assertRecovered(world);
    await world.assertStoredOnce('my-run', '001', someLines(20, 'other'));
  });
});

describe('a worker that does not know that it was replaced', () => {
  it('of an earlier life is told to exit, and what it does changes nothing', async () => {
    const world = await aWorkingWorld();
    const zombie = world.zombify(A0);
    const {lease} = zombie;
    await world.until('its successor works', () => world.agents.get(A0)?.state === 'working', 20, 1);
    const before = await world.stream('my-run', '000');
    const from = {worker: A0, incarnation: 1, host: 0};
    const asked = await world.api({action: 'lease', ...from, loaded: null});
    assert.deepEqual([asked.status, asked.body.action], [200, 'exit']);
    const released = await world.api({action: 'release', ...from, lease, outcome: 'failed', failure: null});
    assert.deepEqual([released.status, released.body.action], [409, 'stop']);
    const beat = await world.api({action: 'heartbeat', ...from, phase: 'running', lease, progress: null});
    assert.deepEqual([beat.status, beat.body.action, beat.body.lease_expires_at], [200, 'exit', null]);
    assert.deepEqual(await world.stream('my-run', '000'), before);
    assert.equal((await world.worker(A0))?.phase, 'working');
    await assertRecovered(world);
  });

  it('stores nothing twice and overwrites nothing, however long it goes on', async () => {
    const world = await aWorkingWorld();
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

  it('of this life, with a lease that went to another, is told to stop and gets other work', async () => {
    const patient = {GLEANER_SILENT_S: '3600', GLEANER_STALL_S: '3600'};
    const world = await aWorkingWorld({GLEANER_ZONES: 'us-central1-a', ...patient});
    const slow = world.agent(A0);
    slow.silent = true;
    for (let index = 1; index < 10; index++) world.drop('my-run', index, someLines(4, `other${index}`));
    await world.until(
      'another has its stream',
      async () => (await world.stream('my-run', '000'))?.lease?.worker === A1,
      20,
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

  it('has no document waits for the look that makes one, or takes its node away', async () => {
    const world = new World();
    const from = {worker: 'tpu-us-east1-c-7', incarnation: 1, host: 0};
    const asked = await world.api({action: 'lease', ...from, loaded: null});
    const beat = await world.api({
      action: 'heartbeat',
      ...from,
      phase: 'idle',
      lease: null,
      progress: null,
    });
    assert.deepEqual([asked.body.action, beat.body.action], ['wait', 'continue']);
    const lease = {run: 'my-run', stream: '000', epoch: 1};
    assert.equal(
      (await world.api({action: 'release', ...from, lease, outcome: 'drained', failure: null})).status,
      409,
    );
    assert.deepEqual(await world.store.query('workers'), [], 'and leaves nothing behind');
  });
});

describe('a host that restarts', () => {
  it('gets its own stream back at once, before any other', async () => {
    const world = await aWorkingWorld();
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

  it('because Google has mended it holds nothing against its stream', async () => {
    const world = await aWorkingWorld();
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

  it('whenever it works on one stream does not do so for ever: the stream is parked', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(20));
    let restarts = 0;
    for (let minute = 0; minute < 60; minute++) {
      await world.minute(1);
      if (world.agents.get(A0)?.state !== 'working') continue;
      world.boot(A0);
      restarts += 1;
    }
    const stream = await world.stream('my-run', '000');
    assert.deepEqual([stream?.status, stream?.faults, stream?.failures, restarts], ['failed', 5, 0, 5]);
    assert.match(stream?.last_error ?? '', /restarted in the middle of it/);
    assert.match((await world.timeline('stream')).join(), /parked after 5 machines/);
    await world.untilAsleep();
  });
});

describe('a worker that forgot its stream', () => {
  it('loses it when the lease runs out, and the others get it', async () => {
    const world = await aWorkingWorld({GLEANER_ZONES: 'us-central1-a', GLEANER_WORKERS_PER_ZONE: '2'});
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

describe('a shard whose event is lost', () => {
  it('is counted by the next audit while the work goes on', async () => {
    const world = await aWorkingWorld();
    const before = (await world.stream('my-run', '000'))?.total_shards ?? 0;
    for (let minute = 0; minute < 3; minute++) {
      world.now += 60_000;
      await world.agent(A0).beat();
      await world.agent(A0).step();
      world.queue.length = 0;
      await world.tick();
    }
    const stream = await world.stream('my-run', '000');
    assert.equal(stream?.status, 'in_progress');
    assert.ok((stream?.total_shards ?? 0) > before + 1);
  });
});

describe('a zone that has nothing to give', () => {
  it('is passed over for the next zone, and tried again later', async () => {
    const world = new World();
    world.tpus.soldOut.add('us-central1-a');
    for (const index of [0, 1, 2]) world.drop('my-run', index, someLines(60));
    await world.until('both slots of the other zone work', () => world.agents.size === 2, 9, 1);
    assert.deepEqual([...world.agents.keys()].sort(), [B0, 'tpu-europe-west4-b-1']);
    const refused = await world.worker(A0);
    assert.equal(refused?.phase, 'gone');
    assert.match(refused?.last_error ?? '', /no capacity in us-central1-a/);
    assert.ok(world.tickerOn, 'a stream still waits');
    const tries = world.asked().filter(what => what.startsWith(`create ${A0}`)).length;
    world.tpus.soldOut.clear();
    await world.until('the zone is back', () => world.agents.has(A0), 9, 1);
    assert.ok(world.asked().filter(what => what.startsWith(`create ${A0}`)).length > tries);
    await world.untilAsleep(120);
    for (const index of [0, 1, 2]) await world.assertStoredOnce('my-run', `00${index}`, someLines(60));
  });

  it('is asked once in a while, not all the time', async () => {
    const world = new World(ONE_SLOT);
    world.tpus.soldOut.add('us-central1-a');
    world.drop('my-run', 0, someLines(2));
    await world.minutes(30);
    const tries = world.asked().length;
    assert.ok(tries >= 5 && tries <= 12, String(tries));
    assert.equal((await world.timeline('worker')).filter(text => text.includes('no capacity')).length, tries);
  });

  for (const [what, happens] of [
    ['never shows a node', (world: World) => void world.tpus.nodes.delete(A0)],
    ['shows a node that vanishes while it is made', vanishing],
    ['never finishes a node', unfinished],
  ] as const)
    it(`but accepts what it is asked for and ${what} lets other zones go first`, async () => {
      const world = new World({GLEANER_CREATES_PER_HOUR: '20'});
      world.drop('my-run', 0, someLines(2));
      const {create} = world.tpus;
      world.tpus.create = async request => {
        const outcome = await create.call(world.tpus, request);
        if (request.zone === 'us-central1-a') happens(world);
        return outcome;
      };
      await world.until('the other zone works', () => world.agents.has(B0), 12);
      await world.untilAsleep();
      await world.assertStoredOnce('my-run', '000', someLines(2));
      assert.match(String((await world.store.get('zones/us-central1-a'))?.blocked_reason), /READY|late/);
    });

  /** The look after the next finds it gone. */
  function vanishing(world: World): void {
    const {list} = world.tpus;
    let looks = 0;
    world.tpus.list = async () => {
      if (++looks === 3) world.tpus.nodes.delete(A0);
      return list.call(world.tpus);
    };
    unfinished(world);
  }

  function unfinished(world: World): void {
    const {settle} = world.tpus;
    world.tpus.settle = () => {
      const before = world.tpus.nodes.get(A0)?.state;
      settle.call(world.tpus);
      const node = world.tpus.nodes.get(A0);
      if (node && before === 'CREATING') node.state = 'CREATING';
    };
  }

  it('is asked no more often in an hour than it may be, those counted that were asked again', async () => {
    const world = new World({...ONE_SLOT, GLEANER_CREATES_PER_HOUR: '4', GLEANER_CREATE_S: '3600'});
    world.drop('my-run', 0, someLines(2));
    const {create} = world.tpus;
    world.tpus.create = async request => {
      const outcome = await create.call(world.tpus, request);
      world.tpus.nodes.clear();
      return outcome;
    };
    await world.minutes(55);
    assert.deepEqual(world.asked(), Array(4).fill(`create ${A0}#1`));
  });
});

describe('a zone that gives no answer', () => {
  it('loses nothing that works there', async () => {
    const world = await aWorkingWorld();
    world.tpus.unreachable.add('us-central1-a');
    await assertStillWorking(world);
    world.tpus.unreachable.clear();
    await assertRecovered(world);
    assert.deepEqual(world.tpus.made, [`${A0}#1`]);
  });

  async function assertStillWorking(world: World): Promise<void> {
    await world.minutes(2, 1);
    assert.equal((await world.worker(A0))?.phase, 'working');
  }

  it('does not end its nodes before it answers again', async () => {
    const world = await aWorkingWorld();
    world.control({action: 'stop', run: 'my-run'});
    world.tpus.unreachable.add('us-central1-a');
    await world.minutes(20);
    assert.equal((await world.worker(A0))?.phase, 'deleting');
    assert.ok(world.tickerOn, 'somebody must delete it');
    world.tpus.unreachable.clear();
    await world.untilAsleep();
  });

  it('does not hold up work that another zone can do', async () => {
    const world = await aWorkingWorld({GLEANER_WORKERS_PER_ZONE: '1'});
    world.agent(A0).silent = true;
    world.tpus.unreachable.add('us-central1-a');
    await world.until('the other zone works', () => world.agents.get(B0)?.state === 'working', 30, 1);
    world.tpus.unreachable.clear();
    await assertRecovered(world);
  });
});

describe('a list of nodes that fails', () => {
  it('keeps no budget, stop or silent lease waiting, and the beat goes on', async () => {
    const world = await aWorkingWorld();
    const {list} = world.deps.tpus;
    world.deps.tpus.list = async () => {
      throw new Error('403 Permission denied');
    };
    world.control({action: 'stop', run: 'my-run'});
    await world.deliverAll();
    world.now += 60_000;
    await assert.rejects(() => world.tick(), /403/);
    assert.equal(world.tickerOn, true);
    assert.equal((await world.worker(A0))?.phase, 'deleting');
    world.deps.tpus.list = list;
    await world.untilAsleep();
  });
});

describe('a TPU that a message takes away', () => {
  it('says nothing about its zone, and each attempt says what was asked for', async () => {
    const world = await aWorkingWorld();
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

describe('a run that is stopped', () => {
  it('is without its TPU at the second tick, also where the agent says nothing', async () => {
    const world = await aWorkingWorld();
    world.agent(A0).silent = true;
    world.control({action: 'stop', run: 'my-run'});
    await world.deliverAll();
    await world.minutes(2);
    assert.ok(world.isAsleep());
  });
});

describe('a delete that is refused', () => {
  it('is told, and asked for again', async () => {
    const world = await aWorkingWorld();
    const {delete: remove} = world.deps.tpus;
    world.deps.tpus.delete = async (name, zone) => {
      throw new TpuError('permission', zone, `Failed to delete ${name} in ${zone}: denied`);
    };
    world.control({action: 'stop', run: 'my-run'});
    await world.minutes(6);
    const told = (await world.timeline('worker')).join('\n');
    assert.match(told, /Failed to delete tpu-us-central1-a-0 in us-central1-a: denied/);
    assert.match(told, /is still there: asking again to delete it/);
    world.deps.tpus.delete = remove;
    await world.untilAsleep();
    assert.deepEqual(world.tpus.states(), {});
  });
});

describe('a node that nobody asked for', () => {
  const labels = {'managed-by': 'gleaner', 'gleaner-pool': 'tpu', 'gleaner-incarnation': '5'};

  it('and no document knows, but our label is on it, is deleted', async () => {
    const world = new World();
    for (const [name, zone] of [
      [A0, 'us-central1-a'],
      ['tpu-us-east1-c-3', 'us-east1-c'],
    ] as const)
      world.tpus.nodes.set(name, {...aTpu({name, zone, labels}), metadata: {}});
    world.tickerOn = true;
    await world.untilAsleep();
    assert.deepEqual(world.asked(), [`delete ${A0}#5`, 'delete tpu-us-east1-c-3#5']);
    world.drop('my-run', 0, someLines(2));
    await world.untilAsleep();
    assert.deepEqual(world.tpus.made, [`${A0}#6`], 'its number is not used again');
  });

  for (const [name, zone] of [
    ['gleaner-old-node', 'us-central1-a'],
    [A0, 'us-east1-c'],
  ] as const)
    it(`and has our label, though ${name} in ${zone} is no slot, is deleted`, async () => {
      const world = new World(ONE_SLOT);
      world.tpus.nodes.set(name, {...aTpu({name, zone, labels}), metadata: {}});
      world.tickerOn = true;
      await world.untilAsleep();
      assert.deepEqual(world.tpus.states(), {});
      assert.match((await world.timeline()).join(), new RegExp(`${name} in ${zone} has our label`));
    });

  it('and has the name of a slot in another zone does not hide the node of that slot', async () => {
    const world = await aWorkingWorld();
    const {list} = world.deps.tpus;
    world.deps.tpus.list = async () => {
      const {tpus, unreachable} = await list.call(world.tpus);
      return {tpus: [...tpus, aTpu({name: A0, zone: 'us-east1-c', labels: {}})], unreachable};
    };
    await world.minutes(3, 0);
    const worker = await world.worker(A0);
    assert.deepEqual([worker?.phase, worker?.incarnation], ['working', 1]);
  });

  it('and is somebody else’s is left alone, also where it has the name of a slot', async () => {
    const world = new World({GLEANER_WORKERS_PER_ZONE: '1'});
    for (const name of [A0, 'notebook'])
      world.tpus.nodes.set(name, {...aTpu({name, labels: {}}), metadata: {}});
    world.drop('my-run', 0, someLines(4));
    await world.until('the other slot works', () => world.agents.get(B0)?.state === 'working', 9, 1);
    await world.until('the work is done', async () => (await world.run('my-run'))?.status === 'completed');
    await world.until('nothing ticks', () => !world.tickerOn);
    assert.deepEqual(world.tpus.states(), {[A0]: 'READY', notebook: 'READY'});
    assert.match((await world.timeline()).join('\n'), new RegExp(`${A0} that is not ours`));
  });

  it('and is somebody else’s is left alone also where nobody could look before it is given up', async () => {
    const world = new World(ONE_SLOT);
    world.tpus.nodes.set(A0, {...aTpu({name: A0, labels: {}}), metadata: {}});
    world.drop('my-run', 0, someLines(4));
    await world.deliverAll();
    const {list} = world.deps.tpus;
    world.deps.tpus.list = async () => {
      throw new Error('503');
    };
    for (let minute = 0; minute < 30; minute++) {
      world.now += 60_000;
      await world.tick().catch(() => {});
      await world.deliver().catch(() => {});
    }
    world.deps.tpus.list = list;
    await world.minutes(3);
    assert.deepEqual(world.tpus.states(), {[A0]: 'READY'});
  });

  it('and is somebody else’s is left alone by a delete of our request behind it that comes again', async () => {
    const world = new World({...ONE_SLOT, GLEANER_PROVISIONING: 'queued-resource'});
    world.tpus.soldOut.add('us-central1-a');
    world.drop('my-run', 0, someLines(4));
    await world.minutes(3);
    const node = world.tpus.node(A0);
    Object.assign(node, {state: 'READY', labels: {}, metadata: {}});
    world.settle = () => {};
    world.now += 60_000;
    await world.tick();
    const message = world.queue.find(({topic}) => topic === 'tpu') ?? assert.fail();
    await world.deliverAll();
    assert.equal(node.queued?.state, 'DELETING');
    node.queued = null;
    await world.handle(message);
    assert.deepEqual(world.tpus.states(), {[A0]: 'READY'});
  });

  it('and is somebody else’s in the place of one that was taken is one loss of its zone', async () => {
    const world = await aWorkingWorld();
    world.tpus.node(A0).state = 'PREEMPTED';
    world.now += 60_000;
    await world.tick();
    await world.deliverAll();
    world.settle();
    world.tpus.nodes.set(A0, {...aTpu({name: A0, labels: {}}), state: 'CREATING', metadata: {}});
    world.settle = () => {};
    await world.minutes(20, 0);
    const {losses} = (await world.store.get('zones/us-central1-a')) ?? assert.fail();
    assert.equal((losses as unknown[]).length, 1);
  });

  it('and lies in another zone than its name says, is no node of that slot', async () => {
    const world = await aWorkingWorld();
    world.zombify(A0);
    world.tpus.nodes.set(A0, {...aTpu({name: A0, zone: 'us-east1-c', labels: {}}), metadata: {}});
    await world.minutes(2);
    assert.equal((await world.worker(A0))?.last_death, 'it vanished from Cloud TPU');
  });
});

describe('a stream that cannot be finished', () => {
  it('is parked after three failures with its reason, and the others go on', async () => {
    const world = new World({GLEANER_ZONES: 'us-central1-a'});
    world.drop('my-run', 0, someLines(20));
    world.drop('my-run', 1, someLines(20, 'other'));
    for (
      let minute = 0;
      minute < 40 && (await world.stream('my-run', '000'))?.status !== 'failed';
      minute++
    ) {
      for (const agent of world.agents.values())
        agent.failure =
          agent.lease?.stream === '000' ? {kind: 'stream', reason: 'line 3 is too odd'} : undefined;
      await world.minute(1);
    }
    await world.untilAsleep();
    const stream = await world.stream('my-run', '000');
    assert.deepEqual(
      [stream?.status, stream?.failures, stream?.last_error],
      ['failed', 3, 'line 3 is too odd'],
    );
    const run = await world.run('my-run');
    assert.deepEqual([run?.status, run?.reason], ['failed', 'stream 000: line 3 is too odd']);
    await world.assertStoredOnce('my-run', '001', someLines(20, 'other'));
  });

  it('on any machine is parked after five of them, so that nobody pays for the sixth', async () => {
    const world = await aWorkingWorld();
    const stored = (await world.stream('my-run', '000'))?.total_shards;
    for (let minute = 0; minute < 60 && world.tickerOn; minute++) {
      for (const agent of world.agents.values())
        agent.failure = {kind: 'infrastructure', reason: 'Failed to write: the disk is full'};
      await world.minute(1);
    }
    await world.untilAsleep();
    const stream = await world.stream('my-run', '000');
    assert.deepEqual(
      [stream?.status, stream?.faults, stream?.failures, stream?.total_shards],
      ['failed', 5, 0, stored],
    );
    assert.match((await world.run('my-run'))?.reason ?? '', /the disk is full/);
    assert.equal(world.tpus.made.length, 5);
  });

  it('is parked after five that fell silent at work on it, also where a lease ends a minute before silence is death', async () => {
    const world = new World({...ONE_SLOT, ...IN_PRODUCTION});
    world.drop('my-run', 0, someLines(20));
    for (
      let minute = 0;
      minute < 120 && (await world.stream('my-run', '000'))?.status !== 'failed';
      minute++
    ) {
      await world.minute(1);
      for (const agent of world.agents.values()) agent.silent ||= agent.state === 'working';
    }
    const stream = await world.stream('my-run', '000');
    assert.deepEqual([stream?.status, stream?.faults, stream?.failures], ['failed', 5, 0]);
    assert.match(stream?.last_error ?? '', /died at work on it: it has said nothing/);
    assert.equal(world.tpus.made.length, 5);
    await world.untilAsleep();
  });

  it('for reasons that are very long and end in half a character is recorded all the same', async () => {
    for (const length of [3900, 3901]) {
      const world = await aWorkingWorld();
      const {lease} = world.agent(A0);
      const reason = `${'x'.repeat(length)}${'\u{1F600}'.repeat(5000)}\ud83d`;
      const from = {worker: A0, incarnation: 1, host: 0};
      const failure = {kind: 'stream', reason};
      const answer = await world.api({action: 'release', ...from, lease, outcome: 'failed', failure});
      assert.equal(answer.status, 200);
      assert.equal((await world.stream('my-run', '000'))?.failures, 1);
    }
  });

  it('for the fault of the machine is given to another machine', async () => {
    const world = await aWorkingWorld();
    world.agent(A0).failure = {kind: 'infrastructure', reason: 'Failed to write: the disk is full'};
    await assertRecovered(world);
    assert.deepEqual(world.tpus.made, [`${A0}#1`, `${A0}#2`]);
    const {epoch} = (await world.stream('my-run', '000')) ?? {};
    assert.equal(epoch, 2, 'the machine that failed did not get it again');
  });

  it('because the worker says completed without the last shard is tried again', async () => {
    const world = await aWorkingWorld();
    const {lease} = world.agent(A0);
    await world.api({
      action: 'release',
      worker: A0,
      incarnation: 1,
      host: 0,
      lease,
      outcome: 'completed',
      failure: null,
    });
    const stream = await world.stream('my-run', '000');
    assert.deepEqual([stream?.status, stream?.failures], ['pending', 1]);
    assert.match(stream?.last_error ?? '', /final shard is not in the bucket/);
    world.boot(A0);
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
  });
});

describe('a function that dies after a finished stream was uploaded again', () => {
  it('leaves its run as it was', async () => {
    const world = await aWorkingWorld();
    await world.untilAsleep();
    world.drop('my-run', 0, someLines(20));
    const {ticker} = world.deps;
    const die = () => Promise.reject(new Error('it died'));
    world.deps.ticker = {...ticker, on: die};
    assert.equal(await world.deliver(), false);
    assert.equal((await world.run('my-run'))?.status, 'completed');
    world.deps.ticker = ticker;
    await assertRecovered(world);
  });
});

describe('a function that is slow', () => {
  it('and saw a run at work that is complete by now does not open it again', async () => {
    const world = await aWorkingWorld();
    const gate = Promise.withResolvers<void>();
    const {store} = world.deps;
    const slowly: Store = {
      ...store,
      transaction: async work => {
        await gate.promise;
        return store.transaction(work);
      },
    };
    const look = lookAtEverything({...world.deps, store: slowly});
    await world.untilAsleep();
    gate.resolve();
    await look;
    assert.equal((await world.run('my-run'))?.status, 'completed');
  });

  it('and switches the beat off when a finished run was opened has it on again', async () => {
    const world = await aWorkingWorld();
    await world.untilAsleep();
    const off = async () => {
      world.tickerOn = false;
      await world.store.transaction(async tx => {
        const run = await tx.get('runs/my-run');
        tx.set('runs/my-run', {...run, status: 'active'});
      });
    };
    await lookAtEverything({...world.deps, ticker: {...world.deps.ticker, off}});
    assert.ok(world.tickerOn);
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'completed');
  });

  it('and asks for a TPU after the beat was switched off has it on again', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(2));
    await world.deliver();
    world.tickerOn = false;
    await world.deliverNext('tpu');
    assert.ok(world.tickerOn);
  });
});
