/** The order of a tick, and failures in it: budgets and deletes go first, and no failure keeps another decision from being made. */
import assert from 'node:assert/strict';
import {runRecords, streamRecords, workerRecords} from '../../shared/control-plane/state/documents.ts';
import {metadataObject} from '../../shared/domain/names.ts';
import type {Worker} from '../../shared/domain/worker/worker.ts';
import type {Transaction} from '../../shared/ports.ts';
import {aRun, aStream, aTpu, at, aWorker} from '../support/builders.ts';
import {World} from '../support/control-plane-harness.ts';
import {NoAnswer, seeded} from '../support/interleaver.ts';

const A0 = 'tpu-us-central1-a-0';

/** Workers with a READY node in one zone, heard a moment ago, and a run that is paused. */
async function aPausedWorld(workers: number, changes: Partial<Worker> = {}): Promise<World> {
  const world = new World({
    GLEANER_ZONES: 'us-central1-a',
    GLEANER_WORKERS_PER_ZONE: String(workers),
    GLEANER_MAX_WORKERS: '1000',
  });
  world.tickerOn = true;
  await world.store.transaction(async tx => {
    runRecords.set(tx, aRun({status: 'paused'}));
    streamRecords.set(tx, aStream());
  });
  const names = Array.from({length: workers}, (_, slot) => `tpu-us-central1-a-${slot}`);
  await world.store.transaction(async tx => {
    for (const name of names) workerRecords.set(tx, anIdleWorker({name, ...changes}));
  });
  for (const name of names) world.tpus.nodes.set(name, {...aTpu({name}), metadata: {}});
  return world;
}

function anIdleWorker(changes: Partial<Worker>): Worker {
  const heard = {heartbeat_at: at(0), progress_at: at(0), ready_at: at(0), provider_state: 'READY'};
  return aWorker({phase: 'idle', health: 'HEALTHY', usd_per_hour: 1, ...heard, ...changes});
}

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
  world.deps = {...world.deps, store: {...methodsOf(store), transaction}};
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
  world.deps = {...world.deps, store: {...methodsOf(store), transaction}};
}

function methodsOf(store: World['deps']['store']): World['deps']['store'] {
  return {
    get: path => store.get(path),
    query: (collection, query) => store.query(collection, query),
    count: (collection, where) => store.count(collection, where),
    sum: (collection, fields) => store.sum(collection, fields),
    transaction: work => store.transaction(work),
    close: () => store.close(),
  };
}

describe('a tick in which calls fail', () => {
  for (const seed of [1, 2, 3])
    it(`tells 1,000 of 1,000 TPUs to go within two ticks, with 1 % of transactions failing (seed ${seed}) @full`, async () => {
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
    }).timeout(60_000);

  for (const {name, changes, state} of [
    {name: 'idle', changes: {}, state: 'READY'},
    {name: 'preempted in one zone', changes: {}, state: 'PREEMPTED'},
    {name: 'gone for good', changes: {phase: 'deleting', asked_at: at(0)} as const, state: undefined},
  ])
    it(`decides about every worker but the one whose document fails (${name}), logs it, and is run again`, async () => {
      const world = await aPausedWorld(20, changes);
      if (state === undefined) world.tpus.nodes.clear();
      else for (const node of world.tpus.nodes.values()) node.state = state;
      breakDocument(world, `workers/${A0}`);
      world.now += 60_000;
      await assert.rejects(world.tick(), NoAnswer);
      const workers = workerRecords.parseAll(await world.store.query('workers'), assert.fail);
      const left = workers.filter(({phase}) => phase !== (state ? 'deleting' : 'gone'));
      assert.deepEqual(
        left.map(({name}) => name),
        [A0],
      );
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

  it('pauses a run whose budget is spent although another cannot be paused, and takes the TPUs of both', async () => {
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

  it('creates nothing and takes no TPU for want of work, when the work cannot be counted', async () => {
    const world = await aPausedWorld(3);
    const {store} = world.deps;
    const query: typeof store.query = async (collection, asked) => {
      if (collection === 'zones') throw new NoAnswer('the zones were not read');
      return store.query(collection, asked);
    };
    world.deps = {...world.deps, store: {...methodsOf(store), query}};
    world.tpus.node(A0).state = 'PREEMPTED';
    await assert.rejects(world.tick(), NoAnswer);
    assert.deepEqual(world.asked(), [`delete ${A0}#2`]);
  });
});

describe('the order of a tick', () => {
  it('has budgets and deletes out before it creates a TPU, lists a stream or reads a metadata.json', async () => {
    const world = await aPausedWorld(8);
    const done = aStream({run: 'done', status: 'completed', finished: true});
    await world.store.transaction(async tx => {
      runRecords.set(tx, aRun({run: 'done'}));
      streamRecords.set(tx, done);
      runRecords.set(tx, aRun({run: 'poor', budget_usd: 1, spent_usd: 2}));
      const lease = {worker: A0, incarnation: 2, epoch: 1};
      streamRecords.set(tx, aStream({run: 'poor', status: 'in_progress', epoch: 1, lease}));
      const worker = anIdleWorker({name: A0, phase: 'working', work: 'poor/007', epoch: 1});
      workerRecords.set(tx, {...worker, claimed_at: at(0)});
    });
    // One slot has no node, and a run with work wants it.
    const empty = 'tpu-us-central1-a-7';
    world.tpus.nodes.delete(empty);
    await world.store.transaction(async tx => {
      tx.delete(`workers/${empty}`);
      runRecords.set(tx, aRun({run: 'rich'}));
      for (let stream = 0; stream < 8; stream++)
        streamRecords.set(tx, aStream({run: 'rich', stream: `00${stream}`}));
    });
    world.tpus.node('tpu-us-central1-a-1').state = 'PREEMPTED';
    const calls: string[] = [];
    const {bus, objects, store} = world.deps;
    world.deps = {
      ...world.deps,
      store: {
        ...methodsOf(store),
        transaction: async work => {
          const result = await store.transaction(work);
          const {status} = (await store.get('runs/poor')) ?? {};
          if (status === 'paused' && !calls.includes('pause')) calls.push('pause');
          return result;
        },
      },
      bus: {
        publish: (topic, message) => {
          calls.push(String(message.action));
          return bus.publish(topic, message);
        },
      },
      objects: Object.assign(Object.create(objects), {
        list: async (...args: Parameters<typeof objects.list>) => {
          calls.push('list');
          return objects.list(...args);
        },
        read: async (...args: Parameters<typeof objects.read>) => {
          if (args[0] === metadataObject('done', done.stream)) calls.push('metadata.json');
          return objects.read(...args);
        },
      }),
    };
    await world.tick();
    const first = ['pause', 'delete', 'create', 'list', 'metadata.json'].map(call => calls.indexOf(call));
    assert.ok(!first.includes(-1), calls.join());
    const [pause = 0, , create = 0, list = 0, metadata = 0] = first;
    const lastDelete = calls.lastIndexOf('delete');
    assert.ok(pause < lastDelete && lastDelete < Math.min(create, list, metadata), calls.join());
    assert.equal(calls.at(-1), 'metadata.json', calls.join());
  });
});
