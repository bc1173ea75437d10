import assert from 'node:assert/strict';
import {zoneRecords} from '../../shared/control-plane/state/documents.ts';
import {someLines} from '../support/agent.ts';
import {aTpu, at} from '../support/builders.ts';
import {World} from '../support/control-plane-harness.ts';

const A0 = 'tpu-us-central1-a-0';
const B0 = 'tpu-europe-west4-b-0';
const ONE_SLOT = {GLEANER_ZONES: 'us-central1-a', GLEANER_WORKERS_PER_ZONE: '1'};
const QUEUED = {...ONE_SLOT, GLEANER_PROVISIONING: 'queued-resource', GLEANER_QUEUE_S: '1800'};
const LINES = someLines(12);

function aWorld(set: Record<string, string>, {soldOut = false} = {}): World {
  const world = new World(set);
  if (soldOut) world.tpus.soldOut.add('us-central1-a');
  world.drop('my-run', 0, LINES);
  return world;
}

async function assertDone(world: World): Promise<void> {
  await world.untilAsleep();
  await world.assertStoredOnce('my-run', '000', LINES);
  const stream = await world.stream('my-run', '000');
  assert.deepEqual([stream?.status, stream?.failures, stream?.faults], ['completed', 0, 0]);
}

const attempts = async (world: World, name = A0) =>
  (await world.store.query(`workers/${name}/attempts`)).map(({data}) => data);

describe('a pool whose nodes come through the queue', () => {
  it('asks with an end and an id, waits without paying, works, and leaves nothing', async () => {
    const world = aWorld(QUEUED, {soldOut: true});
    await world.until('the request', () => world.tpus.nodes.has(A0));
    const {queue} = world.tpus.node(A0);
    assert.match(queue?.request_id ?? '', /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$/);
    await world.minutes(12);
    const waiting = await world.worker(A0);
    assert.deepEqual(
      [waiting?.phase, waiting?.queue_state, waiting?.provisioning, waiting?.ready_at, waiting?.costs],
      ['creating', 'WAITING_FOR_RESOURCES', 'queued-resource', null, {}],
    );
    assert.equal(queue?.valid_until_at, waiting?.valid_until_at);
    assert.deepEqual(world.asked(), [`create ${A0}#1`], 'it is asked once');
    world.tpus.soldOut.clear();
    await assertDone(world);
  });

  it('asks again with the same id when nothing came of the request, and with another in the next life', async () => {
    const world = aWorld(QUEUED, {soldOut: true});
    const ids: (string | undefined)[] = [];
    for (let time = 0; time < 2; time++) {
      await world.deliverAll();
      ids.push(world.tpus.node(A0).queue?.request_id);
      // It was taken and got lost before anybody saw it.
      world.tpus.nodes.delete(A0);
      await world.minutes(1);
      world.now += 120_000;
      await world.tick();
    }
    assert.equal(ids[0], ids[1]);
    world.control({action: 'recreate', worker: A0});
    await world.until('another life', () => world.tpus.made.includes(`${A0}#2`));
    assert.notEqual(world.tpus.node(A0).queue?.request_id, ids[0]);
  });

  it('asks under another id when a lost database counts its lives from one again', async () => {
    const ids: (string | undefined)[] = [];
    for (const later_ms of [0, 3_600_000]) {
      const world = aWorld(QUEUED, {soldOut: true});
      world.now += later_ms;
      await world.deliverAll();
      assert.deepEqual(world.tpus.made, [`${A0}#1`]);
      ids.push(world.tpus.node(A0).queue?.request_id);
    }
    assert.notEqual(ids[0], ids[1]);
  });

  it('gives up a request at its end, leaves the zone alone for a while, and then waits again', async () => {
    const world = aWorld(QUEUED, {soldOut: true});
    await world.until('the next request', () => world.tpus.made.includes(`${A0}#2`), 60);
    const [first] = await attempts(world);
    assert.match(String(first?.cause), /the queue gave it nothing until/);
    assert.deepEqual([first?.cause_kind, first?.queue_state], ['setup', 'WAITING_FOR_RESOURCES']);
    world.tpus.soldOut.clear();
    await assertDone(world);
  });

  for (const [state, kind, waits_s] of [
    ['FAILED', 'quota', 300],
    ['FAILED', 'no-capacity', 150],
  ] as const)
    it(`${state} for ${kind} is deleted, and its zone is asked again after ${waits_s} s`, async () => {
      const world = aWorld({...QUEUED, GLEANER_ZONES: 'us-central1-a,europe-west4-b'}, {soldOut: true});
      await world.until('the request', () => world.tpus.nodes.has(A0));
      const {queued} = world.tpus.node(A0);
      Object.assign(queued ?? {}, {state, error: {kind, message: 'because'}});
      await world.minutes(1);
      const zone = await zoneRecords.get(world.store, 'us-central1-a');
      assert.match(zone?.blocked_reason ?? '', /because/);
      const wait_ms = Date.parse(zone?.blocked_until_at ?? '') - world.now;
      assert.ok(wait_ms <= waits_s * 1000 && wait_ms > (waits_s - 60) * 1000, String(wait_ms));
      await assertDone(world);
      assert.ok(world.tpus.made.includes(`${B0}#1`), 'another zone was asked meanwhile');
    });

  it('SUSPENDED in its work is a preemption: deleted, then made again, at no cost to the stream', async () => {
    const world = aWorld(QUEUED);
    await world.until('work', () => world.agents.get(A0)?.state === 'working', 9, 1);
    const node = world.tpus.node(A0);
    Object.assign(node.queued ?? {}, {state: 'SUSPENDED', initiator: 'SERVICE'});
    node.state = null;
    world.agents.delete(A0);
    await assertDone(world);
    assert.deepEqual(world.tpus.made, [`${A0}#1`, `${A0}#2`]);
    const [first] = await attempts(world);
    assert.deepEqual(
      [first?.cause, first?.cause_kind],
      ['its queued resource is SUSPENDED by Cloud TPU', 'taken'],
    );
  });

  it('and is not wanted any more before it has a node is deleted', async () => {
    const world = aWorld(QUEUED, {soldOut: true});
    await world.until('the request', () => world.tpus.nodes.has(A0));
    world.control({action: 'stop', run: 'my-run'});
    await world.untilAsleep(9);
    assert.deepEqual(await attempts(world).then(([first]) => first?.cause), 'not needed any more');
  });

  it('and that a lost database knows nothing of is swept, with or without a node', async () => {
    const world = new World(QUEUED);
    const {labels} = aTpu();
    const waiting = {state: 'WAITING_FOR_RESOURCES', initiator: 'USER', error: null};
    const queued = {...waiting, valid_until_at: at(3600), labels};
    world.tpus.soldOut.add('us-central1-a').add('us-east1-c');
    world.tpus.nodes.set(A0, {...aTpu({state: null, queued}), metadata: {}});
    const ended = {...queued, state: 'FAILED'};
    world.tpus.nodes.set(B0, {
      ...aTpu({name: B0, zone: 'europe-west4-b', state: null, queued: ended}),
      metadata: {},
    });
    const others = {...queued, labels: {}};
    const C0 = 'tpu-us-east1-c-0';
    world.tpus.nodes.set(C0, {
      ...aTpu({name: C0, zone: 'us-east1-c', state: null, labels: {}, queued: others}),
      metadata: {},
    });
    // A node of ours that somebody else's request has the name of: to delete one is to delete both.
    const D0 = 'tpu-us-east1-d-0';
    const active = {...others, state: 'ACTIVE'};
    world.tpus.nodes.set(D0, {...aTpu({name: D0, zone: 'us-east1-d', queued: active}), metadata: {}});
    await world.until('the sweep', () => world.tpus.nodes.size === 2);
    await world.minutes(5);
    assert.deepEqual(world.asked(), [`delete ${A0}#2`, `delete ${B0}#2`]);
    const left = {[C0]: 'queue WAITING_FOR_RESOURCES', [D0]: 'READY'};
    assert.deepEqual(world.tpus.states(), left, 'they are not ours');
  });
});

describe('a pool that asks at once and else waits', () => {
  const AUTO = {...QUEUED, GLEANER_PROVISIONING: 'auto'};

  it('stands in the queue of a zone that has just had nothing, and asks at once where one gave a node', async () => {
    const world = aWorld(AUTO, {soldOut: true});
    await world.until('the request', () => world.tpus.nodes.has(A0), 9);
    assert.deepEqual(world.asked(), [`create ${A0}#1`, `create ${A0}#2`]);
    assert.equal((await world.worker(A0))?.provisioning, 'queued-resource');
    world.tpus.soldOut.clear();
    await world.until('work', () => world.agents.get(A0)?.state === 'working', 9, 1);
    world.control({action: 'recreate', worker: A0});
    await world.until('the next life', () => world.tpus.made.includes(`${A0}#3`), 9, 0);
    assert.equal((await world.worker(A0))?.provisioning, 'node');
    await assertDone(world);
  });

  it('is what a message makes of it', async () => {
    const world = aWorld(ONE_SLOT, {soldOut: true});
    world.control({action: 'scale', provisioning: 'queued-resource'});
    await world.until('the request', () => world.tpus.nodes.has(A0), 9);
    assert.equal(world.tpus.states()[A0], 'queue WAITING_FOR_RESOURCES');
    world.tpus.soldOut.clear();
    await assertDone(world);
  });
});

describe('a zone that takes its nodes back', () => {
  it('before anybody saw one READY is churning as much as one that does so after', async () => {
    const world = new World({GLEANER_ZONES: 'us-central1-a', GLEANER_WORKERS_PER_ZONE: '4'});
    for (let index = 0; index < 4; index++) world.drop('my-run', index, someLines(4));
    world.settle = () => {
      world.tpus.settle();
      for (const node of world.tpus.nodes.values()) if (node.state === 'READY') node.state = 'PREEMPTED';
    };
    await world.minutes(25);
    assert.equal(world.tpus.made.length, 4);
  });
});

describe('a zone that does not answer', () => {
  const ONE_EACH = {GLEANER_WORKERS_PER_ZONE: '1', GLEANER_CREATE_S: '900', GLEANER_ASK_AGAIN_S: '180'};

  for (const [slot, hadOne] of [
    ['new', false],
    ['empty', true],
  ] as const)
    it(`keeps no work from the next one for longer than a few minutes: a slot that is ${slot}`, async () => {
      const world = new World(ONE_EACH);
      if (hadOne) world.drop('first', 0, LINES);
      await world.untilAsleep();
      const [since, made] = [world.now, world.tpus.made.length];
      world.tpus.unreachable.add('us-central1-a');
      world.drop('my-run', 0, LINES);
      await world.until('the next zone is asked', () => world.tpus.nodes.has(B0), 10, 1);
      assert.ok(world.now - since < 5 * 60_000, `${(world.now - since) / 60_000} min`);
      await world.until('it is done', async () => (await world.run('my-run'))?.status === 'completed');
      world.tpus.unreachable.clear();
      await assertDone(world);
      assert.deepEqual(world.tpus.made.slice(made), [`${B0}#1`]);
    });
});

describe('what is asked of a zone', () => {
  it('is told when it was asked again, and when the hour is full', async () => {
    const world = new World({...ONE_SLOT, GLEANER_CREATES_PER_HOUR: '2'});
    world.settle = () => {};
    world.drop('my-run', 0, someLines(4));
    await world.deliverAll();
    world.tpus.nodes.clear();
    world.now += 130_000;
    await world.tick();
    const told = (await world.timeline('worker')).join('\n');
    assert.match(told, /does not show: asking again to create it/);
    assert.match(told, /has been asked for 2 nodes within an hour: no more before /);
  });

  it('and refused at once leaves an attempt with its cause', async () => {
    const world = aWorld(ONE_SLOT);
    world.tpus.soldOut.add('us-central1-a');
    await world.minutes(2);
    const [first] = await attempts(world);
    assert.match(String(first?.cause), /^no capacity in us-central1-a/);
    assert.equal((await world.worker(A0))?.last_death, first?.cause);
  });
});

describe('a host whose chips nobody can open', () => {
  const failure = {
    kind: 'infrastructure' as const,
    reason: 'Failed to extract stream 000: RuntimeError: TPU initialization failed: open(/dev/vfio/0): busy',
  };

  it('is replaced, and its stream is charged nothing, however often', async () => {
    const world = aWorld(ONE_SLOT);
    for (let life = 1; life <= 6; life++) {
      await world.until(
        `work in life ${life}`,
        () => world.agents.get(A0)?.incarnation === life && world.agent(A0).state === 'working',
        90,
        1,
      );
      world.agent(A0).failure = failure;
      await world.minutes(1);
    }
    const stream = await world.stream('my-run', '000');
    assert.deepEqual([stream?.status, stream?.failures, stream?.faults], ['pending', 0, 0]);
    assert.match(stream?.last_error ?? '', /TPU initialization failed/);
    const [first] = await attempts(world);
    assert.equal(first?.cause_kind, 'broken');
    await assertDone(world);
  });

  it('is met three times by a zone, which is then left alone for half an hour', async () => {
    // However long they lived: they never worked.
    const world = aWorld({...ONE_SLOT, GLEANER_SHORT_LIFE_S: '1'});
    for (let minute = 0; minute < 30; minute++) {
      for (const agent of world.agents.values()) agent.failure = failure;
      await world.minute(1);
    }
    assert.ok(world.tpus.made.length <= 4, world.tpus.made.join());
    await assertDone(world);
  });
});
