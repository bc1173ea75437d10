/** Queued resources: nodes that wait until their zone has capacity. */
import assert from 'node:assert/strict';
import {zoneRecords} from '../../../shared/control-plane/documents/documents.ts';
import {aTpu, at} from '../../world/builders.ts';
import {assertDone, attemptsOf, aWorldWithAStream} from '../../world/scenes/one-worker.ts';
import {A0, B0, ONE_SLOT} from '../../world/scenes/places.ts';
import {World} from '../../world/world.ts';

const QUEUED = {...ONE_SLOT, GLEANER_PROVISIONING: 'queued-resource', GLEANER_QUEUE_S: '1800'};

function aWorld(set: Record<string, string>, {soldOut = false} = {}): World {
  const world = aWorldWithAStream(12, set);
  if (soldOut) world.tpus.zone('us-central1-a').soldOut = true;
  return world;
}

function requestOf(world: World) {
  return world.tpus.queue.get(A0)?.request ?? assert.fail('no request is in the queue');
}

describe('a pool with queued resources', () => {
  it('sends a request with an end and an id, waits at no cost, works, and leaves nothing', async () => {
    const world = aWorld(QUEUED, {soldOut: true});
    await world.until('the request', () => world.tpus.queue.has(A0));
    const {queue} = requestOf(world);
    assert.match(queue?.request_id ?? '', /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$/);
    await world.minutes(12);
    const waiting = await world.worker(A0);
    assert.deepEqual(
      [waiting?.phase, waiting?.queue_state, waiting?.provisioning, waiting?.ready_at, waiting?.costs],
      ['creating', 'WAITING_FOR_RESOURCES', 'queued-resource', null, {}],
    );
    assert.equal(queue?.valid_until_at, waiting?.valid_until_at);
    assert.deepEqual(world.asked(), [`create ${A0}#1`], 'the request is sent once');
    world.tpus.openZones();
    await assertDone(world);
  });

  it('repeats a lost request with the same id, and asks with another id in the next life', async () => {
    const world = aWorld(QUEUED, {soldOut: true});
    const ids: (string | undefined)[] = [];
    for (let time = 0; time < 2; time++) {
      await world.deliverAll();
      ids.push(requestOf(world).queue?.request_id);
      // The request was taken and got lost before a list showed it.
      world.tpus.queue.delete(A0);
      await world.minutes(1);
      world.now += 120_000;
      await world.tick();
    }
    assert.equal(ids[0], ids[1]);
    world.control({action: 'recreate', worker: A0});
    await world.until('another life', () => world.tpus.made.includes(`${A0}#2`));
    assert.notEqual(requestOf(world).queue?.request_id, ids[0]);
  });

  it('asks with another id when a lost database counts incarnations from one again', async () => {
    const ids: (string | undefined)[] = [];
    for (const later_ms of [0, 3_600_000]) {
      const world = aWorld(QUEUED, {soldOut: true});
      world.now += later_ms;
      await world.deliverAll();
      assert.deepEqual(world.tpus.made, [`${A0}#1`]);
      ids.push(requestOf(world).queue?.request_id);
    }
    assert.notEqual(ids[0], ids[1]);
  });

  it('deletes a request at its end, blocks the zone for some minutes, and then asks again', async () => {
    const world = aWorld(QUEUED, {soldOut: true});
    // Cloud TPU forgets the request.
    world.tpuFaults.strikes = kind => kind === 'stuck';
    await world.until('the wait', () => world.tpus.states()[A0] === 'queue WAITING_FOR_RESOURCES', 9);
    world.tpuFaults.strikes = () => false;
    await world.until('the next request', () => world.tpus.made.includes(`${A0}#2`), 60);
    const [first] = await attemptsOf(world);
    assert.match(String(first?.cause), /the queue gave it nothing until/);
    assert.deepEqual([first?.cause_kind, first?.queue_state], ['setup', 'WAITING_FOR_RESOURCES']);
    world.tpus.openZones();
    await assertDone(world);
  });

  for (const [state, kind] of [
    ['FAILED', 'quota'],
    ['FAILED', 'no-capacity'],
  ] as const)
    it(`deletes a request that is ${state} for ${kind}, and asks its zone again after retry_s`, async () => {
      const world = aWorld({...QUEUED, GLEANER_ZONES: 'us-central1-a,europe-west4-b'}, {soldOut: true});
      await world.until('the request', () => world.tpus.queue.has(A0));
      Object.assign(world.tpus.queue.get(A0) ?? assert.fail(), {state, error: {kind, message: 'because'}});
      await world.minutes(1);
      const zone = await zoneRecords.get(world.store, 'us-central1-a');
      const {cause, reason, next_at} = zone?.limiter ?? assert.fail();
      assert.deepEqual([cause, /because/.test(reason ?? '')], [kind, true]);
      const wait_ms = Date.parse(next_at ?? '') - world.now;
      assert.ok(wait_ms <= 60_000 && wait_ms > 0, String(wait_ms));
      await assertDone(world);
      assert.ok(world.tpus.made.includes(`${B0}#1`), 'another zone was asked');
    });

  it('deletes requests that a lost database does not know, with or without a node', async () => {
    const world = new World(QUEUED);
    const {labels} = aTpu();
    const waiting = {state: 'WAITING_FOR_RESOURCES', initiator: 'USER', error: null};
    const queued = {...waiting, valid_until_at: at(3600), labels};
    world.tpus.zone('us-central1-a').soldOut = true;
    world.tpus.zone('us-east1-c').soldOut = true;
    world.tpus.add(aTpu({state: null, queued}));
    const ended = {...queued, state: 'FAILED'};
    world.tpus.add(aTpu({name: B0, zone: 'europe-west4-b', state: null, queued: ended}));
    const others = {...queued, labels: {}};
    const C0 = 'tpu-us-east1-c-0';
    world.tpus.add(aTpu({name: C0, zone: 'us-east1-c', state: null, labels: {}, queued: others}));
    // A node of Gleaner and a request of another owner have one name: a delete deletes both.
    const D0 = 'tpu-us-east1-d-0';
    const active = {...others, state: 'ACTIVE'};
    world.tpus.add(aTpu({name: D0, zone: 'us-east1-d', queued: active}));
    await world.until('the sweep', () => world.tpus.names().length === 2);
    await world.minutes(5);
    assert.deepEqual(world.asked(), [`delete ${A0}#2`, `delete ${B0}#2`]);
    const left = {[C0]: 'queue WAITING_FOR_RESOURCES', [D0]: 'READY'};
    assert.deepEqual(world.tpus.states(), left, 'the others have another owner');
  });
});

describe('a pool with automatic provisioning', () => {
  const AUTO = {...QUEUED, GLEANER_PROVISIONING: 'auto'};

  it('asks for a queued resource in a zone without capacity, and for a node where one was given', async () => {
    const world = aWorld(AUTO, {soldOut: true});
    await world.until('the request', () => world.tpus.queue.has(A0), 9);
    assert.deepEqual(world.asked(), [`create ${A0}#1`, `create ${A0}#1`]);
    assert.equal((await world.worker(A0))?.provisioning, 'queued-resource');
    world.tpus.openZones();
    await world.until('work', () => world.agents.get(A0)?.state === 'working', 9, 1);
    world.control({action: 'recreate', worker: A0});
    await world.until('the next life', () => world.tpus.made.includes(`${A0}#2`), 9, 0);
    assert.equal((await world.worker(A0))?.provisioning, 'node');
    await assertDone(world);
  });

  it('takes its provisioning from a message', async () => {
    const world = aWorld(ONE_SLOT, {soldOut: true});
    world.control({action: 'scale', provisioning: 'queued-resource'});
    await world.until('the request', () => world.tpus.queue.has(A0), 9);
    assert.equal(world.tpus.states()[A0], 'queue WAITING_FOR_RESOURCES');
    world.tpus.openZones();
    await assertDone(world);
  });
});
