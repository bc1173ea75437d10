import assert from 'node:assert/strict';
import {workerRecords} from '../../../shared/control-plane/documents/documents.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {aWorker} from '../../world/builders.ts';
import {aFleet, firstLives, silence, workersOf} from '../../world/scenes/fleet.ts';
import {aWorkingWorld} from '../../world/scenes/one-worker.ts';
import {A0, A1, ONE_SLOT, TWO_SLOTS, ZONE} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

const isComplete = (world: World, stream: string) => async () =>
  (await world.stream('my-run', stream))?.status === 'completed';

describe('a document that this release does not understand', () => {
  it('of a run stops that run and no other', async () => {
    const world = new World();
    world.drop('broken', 0, someLines(9));
    world.drop('my-run', 0, someLines(9));
    await world.until('work', () => world.agents.size === 2, 9, 1);
    await world.edit('runs/broken', {priority: 'high'});
    await world.until('the other is done', async () => (await world.run('my-run'))?.status === 'completed');
    await world.assertStoredOnce('my-run', '000', someLines(9));
    assert.ok(world.logs.some(({message}) => /Failed to read runs\/broken: priority/.test(message)));
    await world.edit('runs/broken', {priority: 0});
    world.control({action: 'start', run: 'broken'});
    await world.untilStoredOnce('broken', '000', someLines(9));
  });

  for (const change of [{priority: 'high'}, {status: 'actve'}])
    it(`of a run at work leaves its workers as they are: ${JSON.stringify(change)}`, async () => {
      const world = await aFleet(3);
      const lease = (await world.stream('my-run', '000'))?.lease;
      await world.edit('runs/my-run', change);
      await world.minutes(6, 0);
      const workers = await workersOf(world);
      const held = workers.map(({phase, work, drains}) => [phase, work !== null, drains]);
      assert.deepEqual(held, Array(3).fill(['working', true, false]));
      assert.deepEqual((await world.stream('my-run', '000'))?.lease, lease);
      await world.edit('runs/my-run', {priority: 0, status: 'active'});
      await world.minutes(3, 3);
      assert.equal((await firstLives(world)).length, 3);
    });

  it('of a run at work replaces no preempted worker of it, and another run gets its nodes', async () => {
    const world = await aFleet(2);
    const work = (await world.worker(A1))?.work;
    await world.edit('runs/my-run', {priority: 'high'});
    world.preempt(A0);
    await world.minutes(4, 0);
    assert.deepEqual([(await world.worker(A0))?.phase, (await world.worker(A1))?.phase], ['gone', 'working']);
    world.drop('other', 0, someLines(9));
    await world.until('the other is done', async () => (await world.run('other'))?.status === 'completed');
    assert.equal((await world.worker(A1))?.work, work);
  });

  for (const [field, value] of [
    ['epoch', -1],
    ['status', 'archived'],
  ] as const)
    it(`of a stream stops that stream and no other, and its run waits: ${field}`, async () => {
      const world = new World();
      world.drop('my-run', 0, someLines(9));
      world.drop('my-run', 1, someLines(9, 'b'));
      await world.deliverAll();
      const path = 'runs/my-run/streams/000';
      const before = (await world.store.get(path)) ?? {};
      await world.edit(path, {[field]: value});
      await world.until('the other is done', isComplete(world, '001'));
      await world.minutes(40, 1);
      assert.equal((await world.run('my-run'))?.status, 'active');
      assert.deepEqual(await world.store.get(path), {...before, [field]: value});
      await world.edit(path, {[field]: before[field] ?? null});
      await world.untilStoredOnce('my-run', '000', someLines(9));
      assert.equal((await world.run('my-run'))?.status, 'completed');
    });

  it('of a completed stream is why its run has not ended', async () => {
    const world = new World();
    for (const index of [0, 1]) world.drop('my-run', index, someLines(9 + 90 * index, `s${index}`));
    await world.until('one is done', isComplete(world, '000'), 9, 1);
    await world.edit('runs/my-run/streams/000', {faults: 'many'});
    await world.minutes(20, 9);
    const {status, reason} = (await world.run('my-run')) ?? assert.fail();
    assert.equal(status, 'active');
    assert.match(reason ?? '', /^writing its result.*Failed to read runs\/my-run\/streams\/000: faults/);
    await world.edit('runs/my-run/streams/000', {faults: 0});
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'completed');
  });

  it('of a stream keeps neither its run from being started nor a further stream from being registered', async () => {
    const world = new World();
    world.drop('my-run', 0, someLines(3));
    await world.deliverAll();
    await world.edit('runs/my-run/streams/000', {epoch: -1});
    world.drop('my-run', 1, someLines(3, 'b'));
    world.queue.length = 0;
    const id = await world.order({action: 'start', run: 'my-run'});
    assert.equal((await world.store.get(`control/${id}`))?.outcome, 'applied');
    await world.until('the other is done', isComplete(world, '001'));
  });

  it('of a stream does not keep the TPU of its worker', async () => {
    const world = await aWorkingWorld(ONE_SLOT, 40);
    await world.edit('runs/my-run/streams/000', {epoch: -1});
    await world.until('the TPU is gone', () => world.tpus.nodes.size === 0, 60, 1);
    assert.deepEqual(world.tpus.made, [`${A0}#1`]);
  });

  it('of a run is why a control message about it is rejected', async () => {
    const world = new World();
    world.drop('my-run', 0, someLines(3));
    await world.deliverAll();
    await world.edit('runs/my-run', {priority: 'high'});
    const id = await world.order({action: 'pause', run: 'my-run'});
    const record = await world.store.get(`control/${id}`);
    assert.equal(record?.outcome, 'rejected');
    assert.match(String(record?.reason), /Failed to read runs\/my-run: priority/);
  });

  for (const change of [{phase: 'asleep'}, {slot: 'first'}, {usd_per_hour: 'much'}, {incarnation: 'one'}])
    it(`of a worker keeps its node and its lease: ${JSON.stringify(change)}`, async () => {
      const world = await aWorkingWorld(ONE_SLOT, 40);
      const path = `workers/${A0}`;
      const before = (await world.store.get(path)) ?? assert.fail();
      await world.edit(path, {...change, release: 'the next release'});
      await world.minutes(8, 1);
      assert.deepEqual(await world.store.get(path), {...before, ...change, release: 'the next release'});
      assert.equal((await world.stream('my-run', '000'))?.lease?.worker, A0);
      assert.deepEqual([[...world.tpus.nodes.keys()], world.tpus.made], [[A0], [`${A0}#1`]]);
      await world.edit(path, Object.fromEntries(Object.keys(change).map(key => [key, before[key] ?? null])));
      await world.untilStoredOnce('my-run', '000', someLines(40));
      assert.deepEqual([(await world.worker(A0))?.phase, world.tpus.made], ['gone', [`${A0}#1`]]);
      const [run, pool] = [await world.run('my-run'), await world.store.get('pools/tpu')];
      assert.deepEqual([run?.spent_usd, Number(run?.spent_usd) > 0], [pool?.spent_usd, true]);
    });

  for (const change of [
    {phase: 'gone', held: true},
    {phase: 'working', updated_at: '2020-01-01T00:00:00.000Z'},
  ])
    it(`of a worker does not keep another silent worker: ${JSON.stringify(change)}`, async () => {
      const world = await aWorkingWorld(ONE_SLOT, 40);
      const path = `workers/${A1}`;
      await world.store.transaction(async tx => workerRecords.set(tx, aWorker({name: A1, slot: 1})));
      await world.edit(path, {...change, usd_per_hour: 'much', release: 'the next release'});
      world.agents.delete(A0);
      await world.until('another node', () => world.tpus.made.includes(`${A0}#2`), 30, 1);
    });

  for (const affinity of ['any', 'fixed'])
    it(`of a stream keeps no idle TPU beside the work of its run: affinity ${affinity}`, async () => {
      const world = new World({...TWO_SLOTS, GLEANER_STALL_S: '86400', GLEANER_LOAD_S: '86400'});
      world.objects.put('datasets/my-run/run.json', JSON.stringify({affinity}));
      for (const index of [0, 1]) world.drop('my-run', index, someLines(9, `s${index}`));
      while (await world.deliverNext('object')) {}
      await world.edit('runs/my-run/streams/001', {epoch: -1});
      await world.until('work', () => world.agents.get(A0)?.state === 'working', 9, 1);
      await world.minutes(10, 0);
      assert.deepEqual([...world.tpus.nodes.keys()], [A0]);
    });

  it('of each of many streams keeps no TPU', async () => {
    const world = new World(ONE_SLOT);
    for (let index = 0; index < 12; index++) world.drop('my-run', index, someLines(9, `s${index}`));
    await world.until('work', () => world.agents.get(A0)?.state === 'working', 9, 1);
    for (const {path, data} of await world.store.query('runs/my-run/streams'))
      if (data.status === 'pending') await world.edit(path, {epoch: -1});
    await world.until('the TPU is gone', () => world.tpus.nodes.size === 0, 60, 1);
    assert.equal((await world.run('my-run'))?.status, 'active');
  });

  it('of a zone gets no create, and another zone does', async () => {
    const world = new World({GLEANER_ZONES: 'us-central1-a,us-east5-b', GLEANER_WORKERS_PER_ZONE: '1'});
    await world.edit('zones/us-central1-a', {losses: 'many'});
    world.drop('my-run', 0, someLines(9));
    await world.untilStoredOnce('my-run', '000', someLines(9));
    assert.deepEqual(await world.store.get('zones/us-central1-a'), {losses: 'many'});
    assert.deepEqual(world.tpus.made, ['tpu-us-east5-b-0#1']);
  });

  it('of a zone holds its silent nodes and its orphans, with no event each minute', async () => {
    const world = await aFleet(10);
    await world.edit(`zones/${ZONE}`, {losses: 'many'});
    await world.store.transaction(async tx => tx.delete(`workers/${A0}`));
    silence(world);
    await world.minutes(40, 0);
    assert.equal(world.tpus.nodes.size, 10);
    assert.deepEqual(
      (await world.timeline('worker')).filter(text => /have no document/.test(text)),
      [],
    );
    assert.deepEqual(await world.timeline('zone'), []);
  });

  it('of the pool stops all creates until it is mended, and keeps its settings and its costs', async () => {
    const world = new World(ONE_SLOT);
    await world.order({action: 'scale', budget_usd: 50, workers_per_zone: 2});
    await world.edit('pools/tpu', {workers_per_zone: '8', spent_usd: 3});
    world.drop('my-run', 0, someLines(9));
    world.drop('my-run', 1, someLines(9, 'b'));
    await world.minutes(5);
    assert.deepEqual(world.asked(), []);
    const says = /Failed to read pools\/tpu: workers_per_zone.*fix the field or delete the document/;
    assert.ok(world.logs.some(({severity, message}) => severity === 'ERROR' && says.test(message)));
    await world.edit('pools/tpu', {workers_per_zone: 2});
    await world.until('both slots work', () => world.agents.size === 2, 9, 1);
    const pool = await world.store.get('pools/tpu');
    assert.deepEqual([pool?.workers_per_zone, pool?.budget_usd, pool?.spent_usd], [2, 50, 3]);
    await world.untilStoredOnce('my-run', '001', someLines(9, 'b'));
  });

  it('of the pool keeps its living nodes, also those beyond the settings of the deployment', async () => {
    const world = new World(ONE_SLOT);
    await world.order({action: 'scale', workers_per_zone: 2});
    for (const index of [0, 1]) world.drop('my-run', index, someLines(40, `s${index}`));
    await world.until('both slots work', () => world.agents.size === 2, 9, 1);
    await world.edit('pools/tpu', {workers_per_zone: '2'});
    await world.minutes(5, 0);
    assert.deepEqual([...world.tpus.nodes.keys()].sort(), [A0, A1]);
  });

  it('of a worker without a node leaves its slot empty, and another slot gets the node', async () => {
    const world = new World({GLEANER_ZONES: 'us-central1-a', GLEANER_WORKERS_PER_ZONE: '3'});
    for (const [name, change] of [
      [A0, {phase: 'asleep'}],
      [A1, {slot: 'first'}],
    ] as const) {
      await world.store.transaction(async tx => workerRecords.set(tx, aWorker({name, phase: 'gone'})));
      await world.edit(`workers/${name}`, change);
    }
    world.drop('my-run', 0, someLines(9));
    await world.until('the work is done', async () => (await world.run('my-run'))?.status === 'completed');
    assert.deepEqual(world.tpus.made, ['tpu-us-central1-a-2#1']);
    assert.equal((await world.store.get(`workers/${A0}`))?.phase, 'asleep');
    assert.ok(world.logs.some(({message}) => message.includes(`Failed to read workers/${A0}: phase`)));
  });

  it('is refused also where only an instant is invalid', () => {
    const worker = {...aWorker(), heartbeat_at: 'yesterday'};
    assert.throws(() => workerRecords.parse('workers/w', worker as unknown as Document), /heartbeat_at/);
  });
});
