/** Nodes that no document knows: orphans with our label, and nodes of other owners. */
import assert from 'node:assert/strict';
import {TpuError} from '../../../shared/contracts/errors.ts';
import {workerRecords} from '../../../shared/control-plane/documents/documents.ts';
import {handleTpuMessage} from '../../../shared/control-plane/workers/tpu-operations.ts';
import {labelsOf} from '../../../shared/domain/deployment.ts';
import {aTpu, at, aWorker} from '../../world/builders.ts';
import {aWorldWithAShard} from '../../world/scenes/one-worker.ts';
import {A0, B0, ONE_SLOT, TWO_SLOTS} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

describe('a node with our label and without a document', () => {
  const labels = {...labelsOf('gleaner'), 'gleaner-pool': 'tpu', 'gleaner-incarnation': '5'};

  it('is deleted, and its incarnation is not used again', async () => {
    const world = new World();
    for (const [name, zone] of [
      [A0, 'us-central1-a'],
      ['tpu-us-east1-c-3', 'us-east1-c'],
    ] as const)
      world.tpus.add(aTpu({name, zone, labels}));
    await world.untilAsleep();
    assert.deepEqual(world.asked(), [`delete ${A0}#5`, 'delete tpu-us-east1-c-3#5']);
    world.drop('my-run', 0, someLines(2));
    await world.untilAsleep();
    assert.deepEqual(world.tpus.made, [`${A0}#6`]);
  });

  for (const [name, zone] of [
    ['gleaner-old-node', 'us-central1-a'],
    [A0, 'us-east1-c'],
  ] as const)
    it(`is deleted also where no slot has its name in its zone: ${name} in ${zone}`, async () => {
      const world = new World(ONE_SLOT);
      world.tpus.add(aTpu({name, zone, labels}));
      await world.untilAsleep();
      assert.deepEqual(world.tpus.states(), {});
      assert.match((await world.timeline()).join(), new RegExp(`${name} in ${zone} has our label`));
    });
});

describe('a node of another deployment', () => {
  const TEAM_A = {GLEANER_DEPLOYMENT: 'team-a', GLEANER_STORE: 'firestore:team-a'};
  const labelsWith = (name: string | undefined) => ({
    'managed-by': 'gleaner',
    'gleaner-incarnation': '5',
    ...(name === undefined ? {} : {'gleaner-deployment': name}),
  });
  const rows: {what: string; ours: Record<string, string>; label: string | undefined; isDeleted: boolean}[] =
    [
      {what: 'with the label of another deployment', ours: {}, label: 'team-a', isDeleted: false},
      {what: 'with the label of the default deployment', ours: TEAM_A, label: 'gleaner', isDeleted: false},
      {what: 'with our label', ours: TEAM_A, label: 'team-a', isDeleted: true},
      {what: 'without a label', ours: {}, label: undefined, isDeleted: false},
    ];
  const places = [
    [A0, 'us-central1-a'],
    ['team-a-tpu-us-central1-a-0', 'us-central1-a'],
    ['gleaner-old-node', 'us-central1-a'],
    [A0, 'us-east1-c'],
  ] as const;
  for (const {what, ours, label, isDeleted} of rows)
    for (const [name, zone] of places)
      it(`${what} is ${isDeleted ? 'an orphan' : 'left alone'}: ${name} in ${zone}`, async () => {
        const world = new World({...ONE_SLOT, ...ours});
        world.tpus.add(aTpu({name, zone, labels: labelsWith(label)}));
        await world.minutes(3, 0);
        assert.deepEqual(world.tpus.states(), isDeleted ? {} : {[name]: 'READY'});
        assert.equal(world.asked().length > 0 || isDeleted, isDeleted);
      });

  it('in the place of a slot makes the slot wait, and other slots work', async () => {
    const world = new World({...TWO_SLOTS, ...TEAM_A});
    const [first, second] = ['team-a-tpu-us-central1-a-0', 'team-a-tpu-us-central1-a-1'] as const;
    world.tpus.add(aTpu({name: first, labels: labelsWith('team-b')}));
    world.drop('my-run', 0, someLines(4));
    await world.until('the other slot works', () => world.agents.get(second)?.state === 'working', 9, 1);
    assert.equal(world.tpus.node(second).labels['gleaner-deployment'], 'team-a');
    await world.until('the work is done', async () => (await world.run('my-run'))?.status === 'completed');
    assert.equal(world.tpus.states()[first], 'READY');
  });
});

describe('a node of another owner', () => {
  it('with the name of a slot in another zone does not hide the node of that slot', async () => {
    const world = await aWorldWithAShard();
    const {list} = world.deps.tpus;
    world.deps.tpus.list = async () => {
      const {tpus, unreachable} = await list.call(world.tpus);
      return {tpus: [...tpus, aTpu({name: A0, zone: 'us-east1-c', labels: {}})], unreachable};
    };
    await world.minutes(3, 0);
    const worker = await world.worker(A0);
    assert.deepEqual([worker?.phase, worker?.incarnation], ['working', 1]);
  });

  it('is left alone where a late list has shown a node of ours in its place', async () => {
    const world = new World(ONE_SLOT);
    const worker = aWorker({name: A0, phase: 'deleting', provider_state: 'READY', ready_at: at(0)});
    await world.store.transaction(async tx => workerRecords.set(tx, worker));
    world.tpus.add(aTpu({name: A0, labels: {'managed-by': 'another-owner'}}));
    await handleTpuMessage(world.deps, {action: 'delete', worker: A0, incarnation: worker.incarnation});
    assert.deepEqual([world.asked(), world.tpus.states()], [[], {[A0]: 'READY'}]);
  });

  it('is left alone by a delete that fails to read it, where no list has shown a node of ours', async () => {
    const world = new World(ONE_SLOT);
    const worker = aWorker({name: A0, phase: 'deleting'});
    await world.store.transaction(async tx => workerRecords.set(tx, worker));
    world.tpus.add(aTpu({name: A0, labels: {'managed-by': 'another-owner'}}));
    world.deps.tpus.get = () =>
      Promise.reject(new TpuError('transient', worker.zone, `Failed to get ${A0}: 503`));
    const message = {action: 'delete', worker: A0, incarnation: worker.incarnation} as const;
    await assert.rejects(handleTpuMessage(world.deps, message), /Failed to get/);
    assert.deepEqual(world.tpus.states(), {[A0]: 'READY'});
  });

  it('is left alone by the delete of our request behind it, also where the read no longer shows that request', async () => {
    for (const answer of ['our request', 'no answer']) {
      const world = new World(ONE_SLOT);
      const worker = aWorker({name: A0, phase: 'deleting', queue_state: 'FAILED'});
      await world.store.transaction(async tx => workerRecords.set(tx, worker));
      const foreign = aTpu({name: A0, labels: {'managed-by': 'another-owner'}});
      world.tpus.add(foreign);
      const queued = {
        ...{state: 'FAILED', initiator: 'USER', error: null, valid_until_at: null, created_at: null},
        labels: {...labelsOf('gleaner'), 'gleaner-pool': 'tpu'},
      };
      world.deps.tpus.get = async () => {
        if (answer === 'our request') return {...foreign, queued};
        throw new TpuError('transient', worker.zone, `Failed to get ${A0}: 503`);
      };
      await handleTpuMessage(world.deps, {action: 'delete', worker: A0, incarnation: worker.incarnation});
      assert.deepEqual(world.tpus.states(), {[A0]: 'READY'}, answer);
    }
  });

  it('is left alone, also where it has the name of a slot', async () => {
    const world = new World({GLEANER_WORKERS_PER_ZONE: '1'});
    for (const name of [A0, 'notebook']) world.tpus.add(aTpu({name, labels: {}}));
    world.drop('my-run', 0, someLines(4));
    await world.until('the other slot works', () => world.agents.get(B0)?.state === 'working', 9, 1);
    await world.until('the work is done', async () => (await world.run('my-run'))?.status === 'completed');
    await world.until('our TPUs are gone', () => world.tpus.nodes.size === 2);
    assert.deepEqual(world.tpus.states(), {[A0]: 'READY', notebook: 'READY'});
    assert.match((await world.timeline()).join('\n'), new RegExp(`${A0} that is not ours`));
  });

  it('that lists leave out is left alone also when its slot is given up', async () => {
    const world = new World(ONE_SLOT);
    world.tpus.add(aTpu({name: A0, labels: {}}));
    world.tpus.zone('us-central1-a').isOmitted = true;
    world.drop('my-run', 0, someLines(4));
    await world.minutes(30, 0);
    assert.ok(world.asked().includes(`delete ${A0}#1`), world.asked().join());
    world.tpus.openZones();
    await world.minutes(3);
    assert.deepEqual(world.tpus.states(), {[A0]: 'READY'});
  });

  it('is left alone by a repeated delete of our request in the queue behind it', async () => {
    const world = new World({...ONE_SLOT, GLEANER_PROVISIONING: 'queued-resource'});
    world.tpus.zone('us-central1-a').soldOut = true;
    world.drop('my-run', 0, someLines(4));
    await world.minutes(3);
    world.tpus.add(aTpu({name: A0, labels: {}}));
    world.settle = () => {};
    world.now += 60_000;
    await world.tick();
    const message = world.queue.find(({topic}) => topic === 'tpu') ?? assert.fail();
    await world.deliverAll();
    assert.equal(world.tpus.queue.get(A0)?.state, 'DELETING');
    world.tpus.queue.delete(A0);
    await world.handle(message);
    assert.deepEqual(world.tpus.states(), {[A0]: 'READY'});
  });

  it('does not hide our request in the queue behind it, which has no document and is deleted', async () => {
    const world = new World(ONE_SLOT);
    const labels = {...labelsOf('gleaner'), 'gleaner-pool': 'tpu', 'gleaner-incarnation': '5'};
    const queued = {
      state: 'WAITING_FOR_RESOURCES',
      initiator: 'USER',
      error: null,
      valid_until_at: null,
      labels,
    };
    world.tpus.add(aTpu({name: A0, labels: {}, queued}));
    await world.minutes(1, 0);
    assert.equal(world.asked().length, 1);
    assert.match(world.asked().join(), new RegExp(`^delete ${A0}`));
  });

  it('in the place of a preempted node is one loss of its zone', async () => {
    const world = await aWorldWithAShard();
    world.tpus.node(A0).state = 'PREEMPTED';
    world.now += 60_000;
    await world.tick();
    await world.deliverAll();
    world.settle();
    world.tpus.add(aTpu({name: A0, labels: {}, state: 'CREATING'}));
    world.settle = () => {};
    await world.minutes(20, 0);
    const {losses} = (await world.store.get('zones/us-central1-a')) ?? assert.fail();
    assert.equal((losses as unknown[]).length, 1);
  });

  it('in another zone than its name says is no node of that slot', async () => {
    const world = await aWorldWithAShard();
    world.zombify(A0);
    world.tpus.add(aTpu({name: A0, zone: 'us-east1-c', labels: {}}));
    await world.minutes(2);
    assert.equal((await world.worker(A0))?.last_death, 'it vanished from Cloud TPU');
  });
});
