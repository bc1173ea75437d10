/** The resync makes lost documents again from the bucket, in a process that lives on while the Store changes under it. */
import assert from 'node:assert/strict';
import {streamRecords, workerRecords} from '../../../shared/control-plane/documents/documents.ts';
import {startTask} from '../../../shared/control-plane/documents/tasks.ts';
import {auditPage} from '../../../shared/control-plane/streams/audit-streams.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {aLeasedStream, aWorker} from '../../world/builders.ts';
import {textOf} from '../../world/bus.ts';
import {aWorldWithAStream} from '../../world/scenes/one-worker.ts';
import {ONE_SLOT} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

/** Another run has the only TPU; a few resyncs have seen all that was dropped. */
async function aBusyWorld(drop: (world: World) => void): Promise<World> {
  const world = new World(ONE_SLOT);
  world.drop('busy', 0, someLines(400));
  drop(world);
  await world.minutes(5, 1);
  return world;
}

async function edit(world: World, path: string, change: (found: Document) => Document): Promise<void> {
  await world.store.transaction(async tx => tx.set(path, change((await tx.get(path)) ?? {})));
}

const lose = (world: World, path: string) => world.store.transaction(async tx => tx.delete(path));

describe('a resync', () => {
  it('finds that the Store was lost: the run waits for its operator, and keeps its shards', async () => {
    const world = aWorldWithAStream(30);
    await world.until('work', async () => ((await world.stream('my-run', '000'))?.total_shards ?? 0) > 2);
    await world.wipe();
    await world.tick();
    await world.deliverAll();
    const stored = (await world.stream('my-run', '000'))?.total_shards ?? 0;
    assert.ok(stored > 2);
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'paused');
    await world.resume('my-run');
    await world.untilStoredOnce('my-run', '000', someLines(30));
    assert.deepEqual(world.tpus.made, ['tpu-us-central1-a-0#1', 'tpu-us-central1-a-0#2']);
  });

  it('makes the deleted document of a stream again', async () => {
    const world = await aBusyWorld(world => world.drop('my-run', 1, someLines(4)));
    await edit(world, 'runs/my-run/streams/001', found => ({...found, faults: 'many'}));
    await world.minute(1);
    await lose(world, 'runs/my-run/streams/001');
    await world.minute(1);
    assert.equal((await world.stream('my-run', '001'))?.status, 'pending');
  });

  it('makes the deleted document of a run again, also where the documents of its streams are left', async () => {
    const world = await aBusyWorld(world => world.drop('my-run', 0, someLines(4)));
    await lose(world, 'runs/my-run');
    await world.minute(1);
    const [run, stream] = [await world.run('my-run'), await world.stream('my-run', '000')];
    assert.deepEqual([run?.status, stream?.status], ['active', 'pending']);
  });

  it('ends no run over a document that is left alone', async () => {
    const world = await aBusyWorld(world => world.drop('my-run', 0, someLines(4)));
    await edit(world, 'runs/my-run/streams/000', found => ({...found, faults: 'many'}));
    await world.minutes(40, 1);
    assert.equal((await world.run('my-run'))?.status, 'active');
  });

  it('begins a run whose run.json was mended, though the event of that is lost', async () => {
    const world = await aBusyWorld(world => {
      world.objects.put('datasets/my-run/run.json', '{"layers": "nope"}');
      world.drop('my-run', 0, someLines(4));
    });
    assert.equal((await world.run('my-run'))?.status, 'failed');
    world.objects.put('datasets/my-run/run.json', '{"layers": "all"}');
    world.queue.length = 0;
    await world.minute(1);
    assert.equal((await world.stream('my-run', '000'))?.status, 'pending');
  });

  it('audits every worker of a fleet that needs two pages', async () => {
    const world = new World();
    const names = Array.from({length: 501}, (_, slot) => `tpu-us-central1-a-${slot}`).sort();
    const last = names.at(-1) ?? assert.fail();
    await world.store.transaction(async tx => {
      for (const name of names) workerRecords.set(tx, aWorker({name, phase: 'idle'}));
      workerRecords.set(tx, aWorker({name: last, phase: 'working', work: 'my-run/007', epoch: 1}));
    });
    await startTask(world.deps, {task: 'resync', run: null});
    assert.ok(await world.deliverNext('tasks'));
    assert.equal((await world.worker(last))?.work, null, 'no such stream is leased to it');
  });

  it('leaves a worker at work that was read before its present lease', async () => {
    const {deps, store} = new World();
    const name = 'tpu-us-central1-a-0';
    const worker = aWorker({name, phase: 'working', work: 'my-run/007', epoch: 3});
    await store.transaction(async tx => {
      workerRecords.set(tx, worker);
      streamRecords.set(tx, aLeasedStream());
    });
    const [found] = await store.query('workers');
    assert.ok(found);
    const stale = [{...found, data: {...found.data, work: 'my-run/006', epoch: 2}}];
    await auditPage({...deps, store: {...deps.store, query: async () => stale}}, '');
    assert.equal((await workerRecords.get(store, name))?.work, 'my-run/007');
  });

  it('reads no stream of a run that has all its documents', async () => {
    const world = await aBusyWorld(world => {
      for (let index = 0; index < 20; index++) world.drop('my-run', index, someLines(4));
    });
    const begun = async () => (await world.store.get('tasks/resync'))?.created_at;
    const last = await begun();
    const read: string[] = [];
    const {store} = world.deps;
    world.deps.store = {
      ...store,
      get: path => {
        read.push(path);
        return store.get(path);
      },
    };
    world.now += 60_000;
    await world.tick();
    await world.deliverAll();
    assert.notEqual(await begun(), last, 'a resync has been made');
    assert.ok(read.includes('runs/my-run'), read.join());
    assert.deepEqual(
      read.filter(path => path.startsWith('runs/my-run/streams/')),
      [],
    );
  });
});

describe('a run that is about to end', () => {
  it('goes on while the bucket has a stream of it without a document', async () => {
    const world = new World(ONE_SLOT);
    const texts = [someLines(20), someLines(20, 'b')];
    world.drop('my-run', 0, texts[0] ?? '');
    await world.until('work', () => [...world.agents.values()].some(({state}) => state === 'working'), 9, 1);
    const [agent] = world.agents.values();
    for (let step = 0; step < 20 && agent?.state === 'working'; step++) await agent.step();
    while (await world.deliverNext('object'));
    assert.equal((await world.stream('my-run', '000'))?.status, 'completed');
    world.queue.length = 0;
    world.drop('my-run', 1, texts[1] ?? '');
    world.queue.length = 0;
    await world.tick();
    const {data} = world.queue.find(({topic}) => topic === 'tasks') ?? assert.fail();
    const first = JSON.parse(textOf(data));
    assert.deepEqual([first.task, first.run], ['finish', 'my-run'], 'no resync comes before the end');
    await world.deliverNext('tasks');
    const [run, stream] = [await world.run('my-run'), await world.stream('my-run', '001')];
    assert.deepEqual([run?.status, stream?.status], ['active', 'pending']);
    await world.untilAsleep();
    for (const [index, text] of texts.entries()) await world.assertStoredOnce('my-run', `00${index}`, text);
    assert.equal(JSON.parse(world.text('activations/my-run/manifest.json')).result.streams, 2);
  });
});
