import assert from 'node:assert/strict';
import {streamRecords} from '../../../shared/control-plane/documents/documents.ts';
import {holderOf, storeAdvance} from '../../../shared/control-plane/documents/lease-documents.ts';
import {endExpiredJobs} from '../../../shared/control-plane/jobs/end-jobs.ts';
import {revokeExpired} from '../../../shared/control-plane/streams/revoke-leases.ts';
import {decideAdvance} from '../../../shared/domain/stream/advance.ts';
import {NEVER_SERVED} from '../../../shared/domain/worker/served-time.ts';
import {aLeasedStream, aRun, aShard, aStream, aWorker, FROZEN, T0} from '../../world/builders.ts';
import {aWorldAtWork, jobIn} from '../../world/scenes/jobs.ts';
import {aWorkingWorld, aWorldWithAShard, aWorldWithAStream} from '../../world/scenes/one-worker.ts';
import {A0, A1} from '../../world/scenes/places.ts';
import {putDocuments} from '../../world/scenes/put-documents.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

type Given = {lease: {run: string; stream: string; epoch: number} | null};

/** A TPU that is READY and has begun its setup; the test speaks for its agent. */
async function aReadyWorld() {
  const world = aWorldWithAStream(20);
  await world.until('it is READY', () => world.agents.has(A0), 9, 1);
  const agent = world.agent(A0);
  agent.silent = true;
  const sender = {worker: A0, incarnation: agent.incarnation, host: 0};
  const ask = async () => (await world.api({action: 'lease', ...sender, loaded: null})).body as Given;
  const beat = async (lease: Given['lease'], phase = 'running') =>
    (await world.api({action: 'heartbeat', ...sender, phase, lease, progress: null})).body;
  const release = (lease: Given['lease'], outcome = 'drained') =>
    world.api({action: 'release', ...sender, lease, outcome, failure: null});
  await beat(null, 'setup');
  return {world, ask, beat, release};
}

describe('a worker', () => {
  it('that gives its stream back asks for a tick', async () => {
    const {world, ask, beat, release} = await aReadyWorld();
    await beat(null, 'idle');
    const {lease} = await ask();
    assert.ok(lease);
    world.queue.length = 0;
    await release(lease);
    const topics = world.queue.map(({topic}) => topic);
    assert.deepEqual(topics, ['tick']);
  });

  for (const {name, change} of [
    {name: 'has another incarnation', change: {incarnation: 2}},
    {name: 'is being deleted', change: {phase: 'deleting'}},
  ])
    it(`gets no stream if its slot ${name} before the grant`, async () => {
      const {world, ask} = await aReadyWorld();
      const {store} = world.deps;
      const {query} = store;
      store.query = async (collection, options) => {
        store.query = query;
        const worker = await world.worker(A0);
        await store.transaction(async tx => tx.set(`workers/${A0}`, {...worker, ...change}));
        return query(collection, options);
      };
      assert.equal((await ask()).lease, undefined);
      assert.equal((await world.stream('my-run', '000'))?.status, 'pending');
    });

  it('keeps the lease that was granted before an earlier request of it is recorded', async () => {
    const {world, ask} = await aReadyWorld();
    const {store} = world.deps;
    const become = (status: string) => world.edit('runs/my-run/streams/000', {status});
    await become('failed');
    const {transaction} = store;
    store.transaction = async work => {
      store.transaction = transaction;
      await become('pending');
      world.now += 3000;
      assert.equal((await ask()).lease?.epoch, 1);
      return store.transaction(work);
    };
    await ask();
    assert.equal((await world.worker(A0))?.work, 'my-run/000');
  });

  it('keeps a lease that it has claimed since a tick found the lease expired', async () => {
    const {world, ask, beat} = await aReadyWorld();
    const {lease} = await ask();
    await beat(lease);
    await revokeExpired(world.deps, [A0], NEVER_SERVED);
    assert.equal((await world.stream('my-run', '000'))?.lease?.epoch, lease?.epoch);
    assert.equal((await world.worker(A0))?.work, 'my-run/000');
  });

  it('keeps a job that it has claimed since a tick found the lease expired', async () => {
    const world = await aWorldAtWork();
    await endExpiredJobs(world.deps, [A0], NEVER_SERVED);
    assert.equal((await jobIn(world)).status, 'running');
  });
});

describe('a lease that no worker holds', () => {
  it('is revoked by the next tick while another stream of the run is at work', async () => {
    const world = await aWorkingWorld();
    world.drop('my-run', 1, someLines(4));
    await world.deliverAll();
    const stream = (await world.stream('my-run', '001')) ?? assert.fail();
    const lease = {worker: A1, incarnation: 1, epoch: 1};
    await world.store.transaction(async tx =>
      streamRecords.set(tx, {...stream, status: 'in_progress', epoch: 1, lease}),
    );
    await world.tick();
    const streams = await Promise.all(['000', '001'].map(id => world.stream('my-run', id)));
    assert.deepEqual(
      streams.map(each => [each?.status, each?.lease?.worker]),
      [
        ['in_progress', A0],
        ['pending', undefined],
      ],
    );
  });
});

describe('a stream that is complete', () => {
  it('is found complete after a lost database, by the second message when the first died before it counted', async () => {
    const world = aWorldWithAStream(20);
    await world.untilAsleep();
    world.now += 3_600_000;
    world.drop('my-run', 0, someLines(30));
    await world.untilAsleep();
    const made = world.tpus.made.length;
    await world.wipe();
    const list = world.deps.objects.list.bind(world.deps.objects);
    let asked = 0;
    world.deps.objects.list = async (prefix, options) => {
      if (prefix.startsWith('activations/my-run/tpu_0') && asked++ === 1) throw new Error('unavailable');
      return list(prefix, options);
    };
    await world.tick();
    assert.ok(await world.deliverNext('tasks'), 'the comparison finds the run');
    assert.ok(await world.deliverNext('tasks'), 'the prices are read');
    assert.ok(await world.deliverNext('tasks'), 'the documents of old runs are deleted');
    assert.ok(await world.deliverNext('tasks'), 'the first message fails, and the task stays open');
    assert.match(world.logs.at(-1)?.message ?? '', /unavailable/);
    assert.equal((await world.stream('my-run', '000'))?.status, 'pending');
    await world.tick();
    assert.ok(await world.deliverNext('tasks'));
    assert.equal((await world.stream('my-run', '000'))?.status, 'completed');
    await world.untilAsleep();
    assert.equal(world.tpus.made.length, made, 'the run needs no TPU');
  });

  it('does not belong to a run that begins anew under its name with another spec', async () => {
    const world = aWorldWithAStream(20);
    await world.untilAsleep();
    await world.store.transaction(async tx => {
      tx.delete('runs/my-run');
      tx.delete('runs/my-run/streams/000');
    });
    await world.deps.objects.delete('activations/my-run/manifest.json');
    world.objects.put('datasets/my-run/run.json', JSON.stringify({layers: [0]}));
    world.drop('my-run', 0, someLines(20));
    await world.minutes(3);
    const stream = await world.stream('my-run', '000');
    assert.equal(stream?.status, 'failed');
    assert.match(stream?.last_error ?? '', /was made with spec/);
  });
});

describe('a stream whose document is lost', () => {
  it('while its event is handled gets the epoch of its shards from the next delivery', async () => {
    const world = await aWorldWithAShard();
    const [shard] = world.objects.list('activations/my-run/tpu_0/shard_');
    const stored = Number(shard?.metadata.epoch);
    assert.ok(stored > 0);
    world.queue.length = 0;
    world.drop('my-run', 0, someLines(20));
    const {store} = world.deps;
    const transaction: typeof store.transaction = async work => {
      world.deps.store = store;
      await store.transaction(async tx => tx.delete('runs/my-run/streams/000'));
      return store.transaction(work);
    };
    world.deps.store = {...store, transaction};
    assert.equal(await world.deliver(), false);
    assert.match(world.logs.at(-1)?.message ?? '', /my-run\/000 disappeared while it was registered/);
    assert.ok(await world.deliver());
    assert.equal((await world.stream('my-run', '000'))?.epoch, stored);
  });

  it('is registered again by one comparison, also when another stream came to its run first', async () => {
    const world = aWorldWithAStream(20);
    await world.deliverAll();
    await world.tick();
    await world.wipe();
    world.drop('my-run', 1, someLines(20));
    await world.deliverNext('object');
    assert.equal((await world.stream('my-run', '001'))?.status, 'pending');
    assert.equal(await world.stream('my-run', '000'), undefined);
    await world.tick();
    await world.deliverAll();
    assert.equal((await world.stream('my-run', '000'))?.status, 'pending');
  });
});

describe('the documents of a lease', () => {
  it('are cleared of a holder alone that still has it', async () => {
    const {deps, store} = new World();
    await putDocuments(store, {
      [`workers/${A0}`]: aWorker({name: A0, phase: 'working', work: 'my-run/007', epoch: 3}),
      [`workers/${A1}`]: aWorker({name: A1, phase: 'working', work: 'my-run/008', epoch: 3}),
    });
    const holder = (worker: string) =>
      deps.store.transaction(tx =>
        holderOf(deps.log, tx, aLeasedStream({lease: {worker, incarnation: 2, epoch: 3}})),
      );
    assert.deepEqual([(await holder(A0))?.name, await holder(A1)], [A0, undefined]);
  });

  it('open the run of a failed stream again that is complete after all', async () => {
    const {deps, store} = new World();
    const stream = aStream({status: 'failed'});
    await putDocuments(store, {
      'runs/my-run': aRun({status: 'failed', certain_failure: 'no family', model_misses: 2}),
      'runs/my-run/streams/007': stream,
    });
    const shards = [aShard(1, {final: true})];
    const advance = decideAdvance({...stream, epoch: 1}, FROZEN, {shards, invalid: []}, T0);
    await deps.store.transaction(tx => storeAdvance(deps.log, tx, stream, advance, T0));
    assert.equal(advance.stream.status, 'completed');
    const fresh = {status: 'active', certain_failure: null, model_misses: 0};
    assert.partialDeepStrictEqual(await store.get('runs/my-run'), fresh);
  });
});
