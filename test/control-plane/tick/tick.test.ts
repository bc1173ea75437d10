/** A tick in which calls fail: no failure keeps another decision from being made. */
import assert from 'node:assert/strict';
import {runRecords, streamRecords, workerRecords} from '../../../shared/control-plane/documents/documents.ts';
import type {Transaction} from '../../../shared/ports/ports.ts';
import {aRun, aStream, at} from '../../world/builders.ts';
import {seeded} from '../../world/clock.ts';
import {NoAnswer} from '../../world/interleaver.ts';
import {anIdleWorker, aPausedWorld} from '../../world/scenes/paused-fleet.ts';
import {A0} from '../../world/scenes/places.ts';
import type {World} from '../../world/world.ts';

/** Lets `fails` say for every transaction of the functions whether it fails, and whether its commit was written all the same. */
function breakTransactions(world: World, fails: () => 'before' | 'after' | undefined): void {
  const {store} = world.deps;
  const transaction: typeof store.transaction = async work => {
    const how = fails();
    if (how === 'before') throw new NoAnswer('the transaction was not reached');
    const done = await store.transaction(work);
    if (how === 'after') throw new NoAnswer('the answer of the transaction was lost');
    return done;
  };
  world.deps = {...world.deps, store: {...store, transaction}};
}

/** A document that no transaction can read. */
function breakDocument(world: World, path: string): void {
  const {store} = world.deps;
  const broken = (tx: Transaction): Transaction => ({
    ...tx,
    get: async read => {
      if (read === path) throw new NoAnswer(`${path} was not read`);
      return tx.get(read);
    },
  });
  const transaction: typeof store.transaction = work => store.transaction(tx => work(broken(tx)));
  world.deps = {...world.deps, store: {...store, transaction}};
}

describe('a tick in which calls fail', () => {
  for (const {seed, tier} of [
    {seed: 1, tier: '@full'},
    {seed: 2, tier: '@long'},
    {seed: 3, tier: '@long'},
  ])
    it(`deletes 1,000 of 1,000 TPUs within two ticks, with 1 % of transactions failing (seed ${seed}) ${tier}`, async () => {
      const world = await aPausedWorld(1000);
      const random = seeded(seed);
      let failed = 0;
      breakTransactions(world, () => {
        const luck = random();
        if (luck >= 0.01) return undefined;
        failed += 1;
        return luck < 0.005 ? 'before' : 'after';
      });
      for (let tick = 0; tick < 2; tick++) {
        await world.tick().catch((error: Error) => assert.ok(error instanceof NoAnswer, error.message));
        world.now += 60_000;
      }
      assert.ok(failed > 2, `${failed} transactions failed`);
      const deleted = new Set(world.asked().filter(asked => asked.startsWith('delete ')));
      assert.equal(deleted.size, 1000);
    });

  for (const {name, changes, state} of [
    {name: 'idle', changes: {}, state: 'READY'},
    {name: 'preempted in one zone', changes: {}, state: 'PREEMPTED'},
    {name: 'gone for good', changes: {phase: 'deleting', asked_at: at(0)} as const, state: undefined},
  ])
    it(`decides about every worker except one whose document fails (${name}), logs that, and is run again`, async () => {
      const world = await aPausedWorld(20, changes);
      if (state === undefined) world.tpus.nodes.clear();
      else for (const node of world.tpus.nodes.values()) node.state = state;
      breakDocument(world, `workers/${A0}`);
      world.now += 60_000;
      await assert.rejects(world.tick(), NoAnswer);
      const workers = workerRecords.parseAll(await world.store.query('workers'), assert.fail);
      const left = workers.filter(({phase}) => phase !== (state ? 'deleting' : 'gone'));
      const names = left.map(({name}) => name);
      assert.deepEqual(names, [A0]);
      const errors = world.logs.filter(({severity}) => severity === 'ERROR');
      assert.match(errors[0]?.message ?? '', /Failed to decide about tpu-us-central1-a-0: .* was not read/);
      if (state) assert.equal(world.asked().length, 19);
    });

  it('publishes a delete in the same tick, when the answer of its transaction was lost', async () => {
    const world = await aPausedWorld(1);
    // The proofs of worker-api are stored before the decision, which is the second transaction then.
    world.deps = {...world.deps, ping: async () => {}};
    let calls = 0;
    breakTransactions(world, () => (calls++ === 1 ? 'after' : undefined));
    await world.tick();
    assert.deepEqual(world.asked(), [`delete ${A0}#2`]);
  });

  it('publishes a delete again at the next tick, when the message was not taken', async () => {
    const world = await aPausedWorld(2);
    const {bus} = world.deps;
    const publish = () => Promise.reject(new NoAnswer('Pub/Sub was not reached'));
    world.deps = {...world.deps, bus: {publish}};
    await assert.rejects(world.tick(), NoAnswer);
    world.deps = {...world.deps, bus};
    assert.deepEqual(world.asked(), []);
    world.now += 60_000;
    await world.tick();
    assert.deepEqual(world.asked(), [`delete ${A0}#2`, 'delete tpu-us-central1-a-1#2']);
  });

  it('pauses a run whose budget is spent although another cannot be paused, and deletes the TPUs of both', async () => {
    const world = await aPausedWorld(2, {phase: 'working', claimed_at: at(0), epoch: 1, activity: 'running'});
    await world.store.transaction(async tx => {
      for (const [slot, run] of ['one', 'two'].entries()) {
        const name = `tpu-us-central1-a-${slot}`;
        runRecords.set(tx, aRun({run, budget_usd: 1, spent_usd: 2}));
        const lease = {worker: name, incarnation: 2, epoch: 1};
        streamRecords.set(tx, aStream({run, status: 'in_progress', epoch: 1, lease}));
        const worker = anIdleWorker({name, phase: 'working', work: `${run}/007`, epoch: 1});
        workerRecords.set(tx, {...worker, claimed_at: at(0)});
      }
    });
    breakDocument(world, 'runs/one');
    await assert.rejects(world.tick(), NoAnswer);
    assert.deepEqual(
      [(await world.run('one'))?.status, (await world.run('two'))?.status, world.asked().length],
      ['active', 'paused', 2],
    );
  });

  it('decides about every other slot when the document of an orphan cannot be read', async () => {
    const world = await aPausedWorld(3);
    const unknown = 'tpu-us-central1-a-2';
    await world.store.transaction(async tx => {
      tx.delete(`workers/${unknown}`);
      tx.delete('workers/tpu-us-central1-a-1');
      runRecords.set(tx, aRun());
      runRecords.set(tx, aRun({run: 'poor', budget_usd: 1, spent_usd: 2}));
      const lease = {worker: A0, incarnation: 2, epoch: 1};
      streamRecords.set(tx, aStream({run: 'poor', status: 'in_progress', epoch: 1, lease}));
      workerRecords.set(tx, anIdleWorker({name: A0, phase: 'working', work: 'poor/007', epoch: 1}));
    });
    world.tpus.nodes.delete('tpu-us-central1-a-1');
    breakDocument(world, `workers/${unknown}`);
    await assert.rejects(world.tick(), NoAnswer);
    assert.deepEqual(world.asked(), [`delete ${A0}#2`, 'create tpu-us-central1-a-1#1']);
  });

  it('creates nothing and deletes no TPU for lack of work, when the work cannot be counted', async () => {
    const world = await aPausedWorld(3);
    const {store} = world.deps;
    const query: typeof store.query = async (collection, asked) => {
      if (collection === 'zones') throw new NoAnswer('the zones were not read');
      return store.query(collection, asked);
    };
    world.deps = {...world.deps, store: {...store, query}};
    world.tpus.node(A0).state = 'PREEMPTED';
    await assert.rejects(world.tick(), NoAnswer);
    assert.deepEqual(world.asked(), [`delete ${A0}#2`]);
  });
});
