import assert from 'node:assert/strict';
import {setImmediate} from 'node:timers/promises';
import {runRecords, streamRecords, workerRecords} from '../../../shared/control-plane/documents/documents.ts';
import {type Fold, foldPage, newFold} from '../../../shared/control-plane/tasks/finish-run.ts';
import {metadataObject, paths, streamObject} from '../../../shared/domain/names.ts';
import {iso} from '../../../shared/domain/time.ts';
import type {Query, Transaction} from '../../../shared/ports/ports.ts';
import {aRun, aStats, aStream} from '../../world/builders.ts';
import {NoAnswer} from '../../world/interleaver.ts';
import {aStoredWorld, endRun, isFinish, MANIFEST, resultIn} from '../../world/scenes/stored-run.ts';
import {metadataOf, someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

describe('the result of a large run', () => {
  const COUNT = 1200;

  it('goes on after a crash with the page that was begun, and has the same bytes @full', async () => {
    const whole = await aLargeWorld(COUNT);
    await endRun(whole);
    assert.equal((await whole.run('my-run'))?.status, 'completed');
    const world = await aLargeWorld(COUNT);
    const reads = countReads(world);
    reads.from(700, () => world.outage.begin(1, () => 0));
    const isDone = await endRun(world).catch(() => false);
    assert.equal(isDone, false);
    world.outage.end();
    assert.deepEqual([(await world.run('my-run'))?.status, isWritten(world)], ['active', false]);
    reads.from(Number.POSITIVE_INFINITY);
    // The instance that died gives its task up after two minutes.
    world.now += 121_000;
    assert.ok(await endRun(world));
    assert.equal((await world.run('my-run'))?.status, 'completed');
    assert.equal(world.text(MANIFEST), whole.objects.text(MANIFEST));
    assert.ok(reads.count < 700 + COUNT - 400, `${reads.count} reads: the first page is not read again`);
  });

  it('is written by one message where one of a hundred reads fails', async () => {
    const world = await aLargeWorld(300);
    const reads = countReads(world);
    reads.from(0, () => {
      if (reads.count % 100 === 0) throw new NoAnswer('Cloud Storage was not reached');
    });
    assert.ok(await endRun(world));
    assert.deepEqual([resultIn(world)?.streams, resultIn(world)?.unread], [300, {}]);
  });

  it('goes on after the streams that were read before a read failed', async () => {
    const world = await aLargeWorld(600);
    const reads = countReads(world);
    reads.from(500, fail);
    assert.equal(await endRun(world), false);
    const before = reads.count;
    reads.from(Number.POSITIVE_INFINITY);
    assert.ok(await endRun(world));
    assert.equal((await world.run('my-run'))?.status, 'completed');
    assert.ok(reads.count - before < 200, `${reads.count - before} further reads`);
  });

  it('takes several messages of bounded length, and the run stays open, says so and asks for no TPU @full', async () => {
    const world = await aLargeWorld(2000);
    const reads = countReads(world);
    reads.take_ms = 50;
    const reasons: string[] = [];
    for (let tick = 0; (await world.run('my-run'))?.status === 'active'; tick++) {
      assert.ok(tick < 5, 'it does not end');
      const began = world.now;
      assert.ok(await endRun(world));
      assert.ok(world.now - began < 45_000, `tick and message took ${world.now - began} ms`);
      const {status, reason} = (await world.run('my-run')) ?? assert.fail();
      if (status === 'active') reasons.push(String(reason));
    }
    assert.ok(reasons.length > 1);
    for (const reason of reasons) assert.match(reason, /^writing its result: \d+ of 2000 streams are read$/);
    const run = await world.run('my-run');
    assert.deepEqual([run?.status, run?.reason, world.asked()], ['completed', null, []]);
    const {streams, samples, unread} = resultIn(world) ?? {};
    assert.deepEqual([streams, samples, unread], [2000, 4000, {}]);
    assert.ok(reads.count < 2000 + 500, `${reads.count} reads`);
  });

  it('counts a stream whose name is among those that were read already', async () => {
    const world = await aLargeWorld(COUNT);
    const reads = countReads(world);
    reads.from(700, fail);
    assert.equal(await endRun(world), false);
    reads.from(Number.POSITIVE_INFINITY);
    // The streams are 000 to 999 and 1000 to 1199: 10000 comes before 1001.
    await world.store.transaction(async tx => putStream(world, tx, 10_000));
    assert.ok(await endRun(world));
    assert.equal((await world.run('my-run'))?.status, 'completed');
    assert.equal(resultIn(world)?.streams, COUNT + 1);
  });

  it('waits for streams without a document, which are registered first', async () => {
    const world = await aLargeWorld(COUNT);
    for (const index of [3, 700, 1300]) world.drop('my-run', index, someLines(2, String(index)));
    world.queue.length = 0;
    await world.store.transaction(async tx => {
      for (const stream of ['003', '700']) tx.delete(paths.stream('my-run', stream));
    });
    const pending: Query = {where: [{field: 'status', op: '==', value: 'pending'}]};
    for (const registered of [['003', '1300'], ['700']]) {
      assert.ok(await endRun(world));
      assert.deepEqual([(await world.run('my-run'))?.status, isWritten(world)], ['active', false]);
      const streams = await world.store.query('runs/my-run/streams', pending);
      const ids = streams.map(({id}) => id);
      assert.deepEqual(ids, registered);
      await world.store.transaction(async tx => {
        for (const stream of registered) putStream(world, tx, Number(stream));
      });
    }
    assert.ok(await endRun(world));
    assert.deepEqual(
      [(await world.run('my-run'))?.status, resultIn(world)?.streams],
      ['completed', COUNT + 1],
    );
  });

  it('is not begun while a worker has a stream of the run', async () => {
    const world = await aStoredWorld();
    const A0 = 'tpu-us-central1-a-0';
    const {work: _, ...worker} = (await world.worker(A0)) ?? assert.fail();
    await world.store.transaction(async tx =>
      workerRecords.set(tx, {...worker, phase: 'working', work: 'my-run/001', claimed_at: iso(world.now)}),
    );
    const reads = countReads(world);
    await world.tick();
    assert.ok(!world.queue.some(isFinish));
    const run = await world.run('my-run');
    assert.deepEqual(
      [run?.status, run?.reason, reads.count],
      ['active', 'its last workers still hold its streams', 0],
    );
    await world.untilAsleep();
    assert.equal(resultIn(world)?.streams, 2);
  });

  it('is written with more than 10 and at most 32 reads at once', async () => {
    const world = await aLargeWorld(100);
    const counted = {under_way: 0, most: 0, calls: 0};
    const read = world.deps.objects.read.bind(world.deps.objects);
    world.deps.objects.read = async (name, options) => {
      counted.calls += 1;
      counted.under_way += 1;
      counted.most = Math.max(counted.most, counted.under_way);
      await setImmediate();
      counted.under_way -= 1;
      return read(name, options);
    };
    await foldToEnd(world, await newFold(world.deps, 'my-run'));
    const {streams, samples, unread} = resultIn(world) ?? {};
    assert.deepEqual([streams, samples, unread], [100, 200, {}]);
    assert.ok(counted.most > 10 && counted.most <= 32, `${counted.most} at once`);
    assert.ok(counted.calls < 100 + 10, `${counted.calls} reads`);
  });

  it('has every stream where one had failed when its page was begun', async () => {
    const world = await aLargeWorld(3);
    const last = paths.stream('my-run', '002');
    await world.edit(last, {status: 'failed'});
    const run = (await world.run('my-run')) ?? assert.fail();
    const begun = await foldPage(world.deps, run, await newFold(world.deps, 'my-run'), 0);
    await world.edit(last, {status: 'completed'});
    await foldToEnd(world, begun.kind === 'later' ? begun.fold : assert.fail(begun.kind));
    assert.equal(resultIn(world)?.streams, 3);
  });

  async function foldToEnd(world: World, fold: Fold): Promise<void> {
    const run = (await world.run('my-run')) ?? assert.fail();
    const ending = await foldPage(world.deps, run, fold, Number.POSITIVE_INFINITY);
    if (ending.kind === 'later') await foldToEnd(world, ending.fold);
  }

  function isWritten(world: World): boolean {
    return world.objects.names(MANIFEST).length > 0;
  }

  /** A run whose streams are complete, each with a metadata.json. */
  async function aLargeWorld(count: number): Promise<World> {
    const world = new World();
    await world.store.transaction(async tx => runRecords.set(tx, aRun({spec: {model: 'tiny'}})));
    for (let first = 0; first < count; first += 500)
      await world.store.transaction(async tx => {
        for (let index = first; index < Math.min(count, first + 500); index++) putStream(world, tx, index);
      });
    return world;
  }

  function putStream(world: World, tx: Transaction, index: number): void {
    const stream = String(index).padStart(3, '0');
    const spec_hash = String(aRun().spec_hash);
    const sample = metadataOf({run: 'my-run', stream, spec_hash}, someLines(2));
    // Each stream has other values, so that the order of the sums shows.
    const stats = {'resid_post.0': aStats({mean: 1 / (index + 3), norm: index / 7, max_abs: index})};
    world.objects.put(metadataObject('my-run', stream), JSON.stringify({...sample, stats}));
    const totals = {total_samples_processed: 2, total_tokens: sample.total_tokens, total_shards: 1};
    const {
      name: object,
      generation,
      size_bytes,
      crc32c,
    } = world.objects.put(streamObject('my-run', stream), someLines(2));
    const content = {object, generation, size_bytes, crc32c};
    const changes = {stream, worker_id: index, status: 'completed', finished: true, ...totals} as const;
    streamRecords.set(tx, aStream({...content, ...changes}));
  }

  function fail(): void {
    throw new NoAnswer('Cloud Storage was not reached');
  }

  /** Counts the reads of metadata.json. Each read takes `take_ms`. `from` does something at each read after the first `count`. */
  function countReads(world: World) {
    let [first, happens] = [Number.POSITIVE_INFINITY, () => {}];
    const from = (count: number, what = happens) => {
      [first, happens] = [count, what];
    };
    const reads = {count: 0, take_ms: 0, from};
    const read = world.deps.objects.read.bind(world.deps.objects);
    world.deps.objects.read = async (name, options) => {
      if (!name.endsWith('metadata.json')) return read(name, options);
      reads.count += 1;
      world.now += reads.take_ms;
      if (reads.count > first) happens();
      return read(name, options);
    };
    return reads;
  }
});
