/** What an instance remembers hides nothing from its later looks, whatever becomes of the Store under it. */
import assert from 'node:assert/strict';
import type {Document} from '../../shared/ports.ts';
import {someLines} from '../support/agent.ts';
import {World} from '../support/control-plane-harness.ts';

const ONE_SLOT = {GLEANER_ZONES: 'us-central1-a', GLEANER_WORKERS_PER_ZONE: '1'};
const ORDERS = 'activations/my-run/orders.json';

/** Another run has the only TPU and keeps the beat; a few looks have seen all that was dropped. */
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

describe('an instance that lives on', () => {
  it('sees that the Store was lost: the run waits for its operator, and keeps what it stored', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(30));
    await world.until('work', async () => ((await world.stream('my-run', '000'))?.total_shards ?? 0) > 2);
    await world.wipe();
    await world.tick();
    const stored = (await world.stream('my-run', '000'))?.total_shards ?? 0;
    assert.ok(stored > 2);
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'paused');
    await world.resume('my-run');
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(30));
    assert.deepEqual(world.tpus.made, ['tpu-us-central1-a-0#1', 'tpu-us-central1-a-0#2']);
  });

  it('makes the document of a stream again that somebody deleted', async () => {
    const world = await aBusyWorld(world => world.drop('my-run', 1, someLines(4)));
    await edit(world, 'runs/my-run/streams/001', found => ({...found, faults: 'many'}));
    await world.minute(1);
    await lose(world, 'runs/my-run/streams/001');
    await world.minute(1);
    assert.equal((await world.stream('my-run', '001'))?.status, 'pending');
  });

  it('makes the document of a run again that somebody deleted', async () => {
    const world = await aBusyWorld(world => world.drop('my-run', 0, someLines(4)));
    await lose(world, 'runs/my-run');
    await world.minute(1);
    assert.equal((await world.run('my-run'))?.status, 'active');
  });

  it('opens a run that ended over a broken document when that is mended', async () => {
    const world = await aBusyWorld(world => world.drop('my-run', 0, someLines(4)));
    await edit(world, 'runs/my-run/streams/000', found => ({...found, faults: 'many'}));
    await world.minutes(2, 1);
    assert.equal((await world.run('my-run'))?.status, 'failed');
    await edit(world, 'runs/my-run/streams/000', found => ({...found, faults: 0}));
    await world.minute(1);
    assert.equal((await world.run('my-run'))?.status, 'active');
  });

  it('begins a run whose run.json was mended, though no event says so', async () => {
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

  it('begins a run whose orders were mended', async () => {
    const world = await aBusyWorld(world => world.drop('my-run', 0, someLines(4)));
    world.control({action: 'configure', run: 'my-run', priority: -3});
    await world.minute(1);
    const good = world.objects.text(ORDERS);
    world.objects.put(ORDERS, '{');
    await world.wipe();
    await world.minutes(3, 1);
    assert.match(String((await world.run('my-run'))?.reason), /orders\.json is not JSON/);
    world.objects.put(ORDERS, good);
    await world.tick();
    assert.equal((await world.run('my-run'))?.priority, -3);
    assert.equal((await world.stream('my-run', '000'))?.status, 'pending');
  });

  it('reads nothing again of a run of which no document is gone', async () => {
    const world = await aBusyWorld(world => {
      for (let index = 0; index < 20; index++) world.drop('my-run', index, someLines(4));
    });
    const read: string[] = [];
    const {store} = world.deps;
    world.deps.store = {
      ...store,
      get: path => {
        read.push(path);
        return store.get(path);
      },
    };
    await world.tick();
    assert.deepEqual(
      read.filter(path => path.startsWith('runs/my-run/streams/')),
      [],
    );
  });
});

describe('a run that is about to end', () => {
  it('is not over while the bucket has a stream of it without a document', async () => {
    const world = new World(ONE_SLOT);
    const texts = [someLines(20), someLines(20, 'b')];
    for (const [index, text] of texts.entries()) world.drop('my-run', index, text);
    const isDone = async (index: number) =>
      (await world.stream('my-run', `00${index}`))?.status === 'completed';
    await world.until('one is done', async () => (await isDone(0)) || (await isDone(1)));
    const left = (await isDone(0)) ? 1 : 0;
    // It is lost just as the look ends the run, after the streams that were missed were taken.
    const {objects} = world.deps;
    let isLost = false;
    world.deps.objects = {
      ...objects,
      list: async (prefix, options) => {
        const found = await objects.list(prefix, options);
        if (prefix !== 'datasets/' || isLost) return found;
        isLost = true;
        await lose(world, `runs/my-run/streams/00${left}`);
        return found.filter(({name}) => !name.includes(`00${left}`));
      },
    };
    await world.tick();
    assert.ok(isLost);
    assert.equal((await world.run('my-run'))?.status, 'active');
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', `00${left}`, texts[left] ?? '');
    assert.equal(JSON.parse(world.objects.text('activations/my-run/manifest.json')).result.streams, 2);
  });
});
