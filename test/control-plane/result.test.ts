import assert from 'node:assert/strict';
import {setImmediate} from 'node:timers/promises';
import {readManifest} from '../../shared/control-plane/runs/run-manifest.ts';
import {foldRun} from '../../shared/control-plane/runs/run-result.ts';
import {runRecords, streamRecords, workerRecords} from '../../shared/control-plane/state/documents.ts';
import {manifestObject, metadataObject, paths, streamObject} from '../../shared/domain/names.ts';
import type {RunResult} from '../../shared/domain/run/result.ts';
import {iso} from '../../shared/domain/time.ts';
import type {Transaction} from '../../shared/ports.ts';
import {BAD_LINE, metadataOf, someLines} from '../support/agent.ts';
import {aRun, aStream} from '../support/builders.ts';
import {World} from '../support/control-plane-harness.ts';
import {NoAnswer, seeded} from '../support/interleaver.ts';

const MANIFEST = manifestObject('my-run');
const ONE_SLOT = {GLEANER_ZONES: 'us-central1-a', GLEANER_WORKERS_PER_ZONE: '1'};
const TEXTS = [someLines(5, 'a'), `${someLines(3, 'b')}${BAD_LINE}\n`];

function resultIn(world: World): RunResult | undefined {
  return JSON.parse(world.objects.text(MANIFEST)).result;
}

/** A world in which every stream is stored and no tick has said so yet. */
async function aStoredWorld(texts = TEXTS): Promise<World> {
  const world = new World(ONE_SLOT);
  for (const [index, text] of texts.entries()) world.drop('my-run', index, text);
  const stored = async () => {
    const streams = await world.store.query('runs/my-run/streams', {
      where: [{field: 'status', op: '==', value: 'completed'}],
    });
    return streams.length === texts.length;
  };
  for (let minute = 0; minute < 30 && !(await stored()); minute++) {
    world.now += 60_000;
    await world.deliverAll();
    world.settle();
    for (let step = 0; step < 3; step++) for (const agent of world.agents.values()) await agent.step();
    await world.deliverAll();
    if (!(await stored())) await world.tick();
  }
  assert.ok(await stored());
  assert.equal((await world.run('my-run'))?.status, 'active');
  return world;
}

describe('the manifest of a run that is complete', () => {
  it('says what is stored: streams, samples, statistics, model and versions', async () => {
    const world = await aStoredWorld();
    assert.equal(resultIn(world), undefined, 'not before the end');
    await world.untilAsleep();
    const run = await world.run('my-run');
    assert.equal(run?.status, 'completed');
    const {model, stats, ...result} = resultIn(world) ?? assert.fail('there is no result');
    assert.deepEqual(result, {
      streams: 2,
      samples: 8,
      rejected: 1,
      truncated: 0,
      tokens: run.total_tokens,
      rows: run.total_tokens,
      shards: 5,
      bytes: run.total_bytes,
      versions: {jax: ['0.10.2']},
      code: [],
      unread: {},
      unread_streams: 0,
    });
    assert.equal(model?.fingerprint, 'f'.repeat(16));
    const [a, b] = TEXTS.map(
      text => metadataOf({run: 'my-run', stream: '000', spec_hash: ''}, text).total_rows,
    );
    const mean = (5 * (a ?? 0) + 3 * (b ?? 0)) / run.total_tokens;
    assert.deepEqual(stats['resid_post.0'], {
      mean: Number(mean.toPrecision(7)),
      norm: 2,
      max_abs: Math.max(a ?? 0, b ?? 0),
      non_finite: 0,
    });
  });

  it('still is the frozen spec, to the functions and to whoever reads it', async () => {
    const world = await aStoredWorld();
    const before = JSON.parse(world.objects.text(MANIFEST));
    await world.untilAsleep();
    const {result, ...after} = JSON.parse(world.objects.text(MANIFEST));
    assert.deepEqual(after, before);
    assert.ok(result);
    assert.equal((await readManifest(world.deps, 'my-run'))?.spec_hash, before.spec_hash);
    await world.wipe();
    world.drop('my-run', 2, someLines(3, 'c'));
    await world.untilAsleep();
    await world.resume('my-run');
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.spec_hash, before.spec_hash);
    assert.equal(resultIn(world)?.streams, 3);
  });

  it('is written once, whatever is delivered, ticked or started again', async () => {
    const world = await aStoredWorld();
    await world.untilAsleep();
    const before = await world.objects.head(MANIFEST);
    world.queue.push(...world.published);
    await world.untilAsleep();
    await world.tick();
    await world.wipe();
    world.control({action: 'start', run: 'my-run'});
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'completed');
    assert.deepEqual(await world.objects.head(MANIFEST), before);
  });

  it('counts a stream that came after the end, once that is complete too', async () => {
    const world = await aStoredWorld();
    await world.untilAsleep();
    world.drop('my-run', 7, someLines(4, 'late'));
    await world.deliverAll();
    assert.equal(resultIn(world)?.streams, 2);
    await world.untilAsleep();
    const {streams, samples} = resultIn(world) ?? {};
    assert.deepEqual([streams, samples], [3, 12]);
  });

  it('is written by the next look when one died anywhere on the way @full', async () => {
    const calls = await callsOfATick(await aStoredWorld());
    assert.ok(calls > 10);
    for (let dies = 0; dies < calls; dies++) {
      const world = await aStoredWorld();
      let call = 0;
      // Half of them die before the call does anything, the others after it did.
      world.weather.turnBad(1, () => (call++ < dies ? 1 : dies % 2 === 0 ? 0.2 : 0.7));
      await assert.rejects(world.tick(), NoAnswer);
      world.weather.clear();
      assert.ok((await world.run('my-run'))?.status !== 'completed' || resultIn(world), `call ${dies}`);
      await world.untilAsleep();
      assert.equal((await world.run('my-run'))?.status, 'completed', `call ${dies}`);
      assert.equal(resultIn(world)?.streams, 2, `call ${dies}`);
    }
  }).timeout(60_000);

  const spoilt: {name: string; content: (of: object) => string | undefined; says: RegExp}[] = [
    {name: 'is not there', content: () => undefined, says: /^it is not there$/},
    {name: 'is no JSON', content: () => '{', says: /^it is not JSON/},
    {
      name: 'holds a number that is none',
      content: of => JSON.stringify(of).replace('"norm":2', '"norm":NaN'),
      says: /JSON/,
    },
    {
      name: 'is of an earlier release',
      content: of => JSON.stringify({...of, stats: undefined}),
      says: /stats/,
    },
    {
      name: 'is of another stream',
      content: of => JSON.stringify({...of, worker_id: 9}),
      says: /of another stream/,
    },
    {
      name: 'is of another spec',
      content: of => JSON.stringify({...of, spec_hash: 'e'.repeat(64)}),
      says: /spec/,
    },
    {
      name: 'contradicts its shards',
      content: of => JSON.stringify({...of, total_samples: 4}),
      says: /says .* 4, /,
    },
    {name: 'is binary', content: () => '\u0000\ud800\uffff'.repeat(1000), says: /^it is not JSON/},
    {
      name: 'is too large',
      content: of => JSON.stringify(of).padEnd(64 * 1024 * 1024 + 1),
      says: /more than 67108864/,
    },
  ];
  for (const {name, content, says} of spoilt)
    it(`names a stream whose metadata.json ${name}, and the run is complete all the same`, async () => {
      const world = await aStoredWorld();
      const object = metadataObject('my-run', '000');
      const text = content(JSON.parse(world.objects.text(object)));
      await world.objects.delete(object);
      if (text !== undefined) world.objects.put(object, text);
      await world.untilAsleep();
      assert.equal((await world.run('my-run'))?.status, 'completed');
      const {streams, samples, unread, stats} = resultIn(world) ?? {};
      assert.deepEqual([streams, samples, Object.keys(unread ?? {})], [2, 8, ['000']]);
      assert.match(unread?.['000'] ?? '', says);
      assert.equal(stats?.['resid_post.0']?.mean, 3, 'of the other stream alone');
    });

  it('reads a metadata.json that is large, because its stream has very many shards', async () => {
    const world = await aStoredWorld();
    const object = metadataObject('my-run', '000');
    const shards = Array.from({length: 20_000}, (_, n) => ({
      filename: `shard_${n}`,
      stats: {a: 1, b: 2, c: 3},
    }));
    world.objects.put(object, JSON.stringify({...JSON.parse(world.objects.text(object)), shards}));
    assert.ok(world.objects.text(object).length > 1024 * 1024);
    await world.untilAsleep();
    assert.deepEqual(resultIn(world)?.unread, {});
  });

  const lost: {name: string; spoil: (world: World) => Promise<unknown>}[] = [
    {name: 'was moved away', spoil: world => world.objects.delete(MANIFEST)},
    {name: 'was overwritten', spoil: async world => world.objects.put(MANIFEST, 'my notes')},
    {
      name: 'is larger than any',
      spoil: async world => world.objects.put(MANIFEST, ' '.repeat(9 * 1024 * 1024)),
    },
  ];
  for (const {name, spoil} of lost)
    it(`is made again from the run's document when it ${name} meanwhile`, async () => {
      const world = await aStoredWorld();
      const before = JSON.parse(world.objects.text(MANIFEST));
      await spoil(world);
      await world.untilAsleep();
      const {result, ...after} = JSON.parse(world.objects.text(MANIFEST));
      assert.deepEqual(after, before);
      assert.equal(result.streams, 2);
    });

  it('is not what keeps a TPU: one that cannot be written holds nothing but its own run', async () => {
    const world = await aStoredWorld();
    world.drop('other', 0, someLines(3, 'other'));
    const replace = world.objects.replace.bind(world.objects);
    world.objects.replace = async (name, ...rest) => {
      if (name !== MANIFEST) return replace(name, ...rest);
      throw new Error('Failed to replace the manifest: permission denied');
    };
    let refused = 0;
    for (let minute = 0; minute < 20; minute++)
      await world.minute().catch((error: Error) => {
        assert.match(error.message, /permission denied/);
        refused += 1;
      });
    assert.ok(refused > 0);
    assert.deepEqual(
      [
        (await world.run('my-run'))?.status,
        (await world.run('other'))?.streams_completed,
        world.tpus.nodes.size,
      ],
      ['active', 1, 0],
    );
    assert.ok(world.tickerOn, 'it is tried again');
    world.objects.replace = replace;
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'completed');
    assert.equal(resultIn(world)?.streams, 2);
  });

  /** Runs `meanwhile` once, when a look comes to this verb with this object. */
  function once(
    world: World,
    verb: 'read' | 'replace',
    object: string,
    meanwhile: () => Promise<unknown>,
  ): void {
    const port = world.objects as unknown as Record<string, (...args: unknown[]) => Promise<unknown>>;
    const call = port[verb]?.bind(world.objects);
    port[verb] = async (...args) => {
      if (call && args[0] === object) {
        port[verb] = call;
        await meanwhile();
      }
      return call?.(...args);
    };
  }

  /** A further stream comes, is stored, and another look calls the run complete. */
  async function aStreamComesAndGoes(world: World): Promise<void> {
    world.drop('my-run', 2, someLines(2, 'late'));
    await world.until('the result of three streams', () => resultIn(world)?.streams === 3);
    const run = await world.run('my-run');
    assert.deepEqual([run?.status, run?.streams_completed, resultIn(world)?.streams], ['completed', 3, 3]);
  }

  it('is not put back by a look that read the streams before another came, and died when it had written', async () => {
    const world = await aStoredWorld();
    let hasCome = false;
    once(world, 'replace', MANIFEST, async () => {
      await aStreamComesAndGoes(world);
      hasCome = true;
    });
    const replace = world.objects.replace.bind(world.objects);
    world.objects.replace = async (name, ...rest) => {
      const outcome = await replace(name, ...rest);
      if (hasCome) throw new NoAnswer('it died');
      return outcome;
    };
    await assert.rejects(world.tick(), NoAnswer);
    world.objects.replace = replace;
    await world.untilAsleep();
    assert.equal(resultIn(world)?.streams, 3);
  });

  it('and the totals of the run are right when a stream came and went between its result and its end', async () => {
    const world = await aStoredWorld();
    once(world, 'replace', MANIFEST, () => aStreamComesAndGoes(world));
    await world.tick();
    await world.untilAsleep();
    const run = await world.run('my-run');
    assert.deepEqual([run?.status, run?.streams_completed, resultIn(world)?.streams], ['completed', 3, 3]);
  });

  for (const read_ms of [0, 15_000])
    it(`is right whatever ticks and streams run into each other, where a read takes ${read_ms} ms @full`, async () => {
      for (let seed = 0; seed < 60; seed++) {
        const random = seeded(seed);
        const world = await aStoredWorld([someLines(2, 'a'), someLines(3, 'b')]);
        const read = world.objects.read.bind(world.objects);
        world.objects.read = (name, options) => {
          if (name.endsWith('metadata.json')) world.now += read_ms;
          return read(name, options);
        };
        world.drop('my-run', 2, someLines(2, 'late'));
        await world.interleaver.run(random, [
          () => world.tick(),
          () => world.tick(),
          () => world.deliver(),
          async () => {
            for (let step = 0; step < 4; step++)
              for (const agent of world.agents.values()) await agent.step();
          },
        ]);
        await world.untilAsleep();
        const run = await world.run('my-run');
        assert.deepEqual([run?.status, run?.streams_completed], ['completed', 3], `seed ${seed}`);
        assert.deepEqual([resultIn(world)?.streams, resultIn(world)?.samples], [3, 7], `seed ${seed}`);
      }
    }).timeout(120_000);
});

describe('the result of a large run', () => {
  const COUNT = 1200;

  it('goes on after a crash with the page that was under way, and has the same bytes @full', async () => {
    const whole = await aLargeWorld(COUNT);
    await whole.tick();
    assert.equal((await whole.run('my-run'))?.status, 'completed');
    const world = await aLargeWorld(COUNT);
    const reads = countReads(world);
    reads.from(700, () => world.weather.turnBad(1, () => 0));
    await assert.rejects(world.tick(), NoAnswer);
    world.weather.clear();
    assert.deepEqual([(await world.run('my-run'))?.status, isWritten(world)], ['active', false]);
    reads.from(Number.POSITIVE_INFINITY);
    await world.tick();
    assert.equal((await world.run('my-run'))?.status, 'completed');
    assert.equal(world.objects.text(MANIFEST), whole.objects.text(MANIFEST));
    assert.ok(reads.count < 700 + COUNT - 400, `${reads.count} reads: the first page is not read again`);
    assert.equal(await world.store.get(paths.fold('my-run')), undefined, 'its place is kept no longer');
  });

  it('is made in one tick where one of a hundred reads fails', async () => {
    const world = await aLargeWorld(COUNT);
    const reads = countReads(world);
    reads.from(0, () => {
      if (reads.count % 100 === 0) throw new NoAnswer('Cloud Storage was not reached');
    });
    await world.tick();
    assert.deepEqual([resultIn(world)?.streams, resultIn(world)?.unread], [COUNT, {}]);
  });

  it('goes on behind the streams that were read before a read failed', async () => {
    const world = await aLargeWorld(COUNT);
    const reads = countReads(world);
    reads.from(COUNT - 100, fail);
    await assert.rejects(world.tick(), NoAnswer);
    const before = reads.count;
    reads.from(Number.POSITIVE_INFINITY);
    await world.tick();
    assert.equal((await world.run('my-run'))?.status, 'completed');
    assert.ok(reads.count - before < 200, `${reads.count - before} further reads`);
  });

  it('takes several ticks of bounded length, in which the run is open, says so and wants no TPU @full', async () => {
    const world = await aLargeWorld(5000);
    const reads = countReads(world);
    reads.take_ms = 10;
    const reasons: string[] = [];
    for (let tick = 0; (await world.run('my-run'))?.status === 'active'; tick++) {
      assert.ok(tick < 5, 'it does not end');
      const began = world.now;
      await world.tick();
      assert.ok(world.now - began < 30_000, `a tick took ${world.now - began} ms`);
      const {status, reason} = (await world.run('my-run')) ?? assert.fail();
      if (status === 'active') reasons.push(String(reason));
      // The beat goes on after the end until the whole bucket was listed.
      if (status === 'active') assert.ok(world.tickerOn);
    }
    assert.ok(reasons.length > 1);
    for (const reason of reasons) assert.match(reason, /^writing its result: \d+ of 5000 streams are read$/);
    const run = await world.run('my-run');
    assert.deepEqual([run?.status, run?.reason, world.asked()], ['completed', null, []]);
    const {streams, samples, unread} = resultIn(world) ?? {};
    assert.deepEqual([streams, samples, unread], [5000, 10_000, {}]);
    assert.ok(reads.count < 5000 + 500, `${reads.count} reads`);
  }).timeout(60_000);

  it('has a stream that came among those that were read already', async () => {
    const world = await aLargeWorld(COUNT);
    const reads = countReads(world);
    reads.from(700, fail);
    await assert.rejects(world.tick(), NoAnswer);
    reads.from(Number.POSITIVE_INFINITY);
    // The streams are 000 to 999 and 1000 to 1199: 10000 comes before 1001.
    await world.store.transaction(async tx => putStream(world, tx, 10_000));
    await world.tick();
    assert.equal((await world.run('my-run'))?.status, 'completed');
    assert.equal(resultIn(world)?.streams, COUNT + 1);
  });

  it('registers the streams that have no document first, and counts them', async () => {
    const world = await aLargeWorld(COUNT);
    for (const index of [3, 700, 1300]) world.drop('my-run', index, someLines(2, String(index)));
    world.queue.length = 0;
    await world.store.transaction(async tx => {
      for (const stream of ['003', '700']) tx.delete(paths.stream('my-run', stream));
    });
    await world.tick();
    const run = await world.run('my-run');
    assert.deepEqual([run?.status, isWritten(world)], ['active', false]);
    const pending = await world.store.query('runs/my-run/streams', {
      where: [{field: 'status', op: '==', value: 'pending'}],
    });
    assert.deepEqual(
      pending.map(({id}) => id),
      ['003', '1300', '700'],
    );
  });

  it('is not begun while a worker holds a stream of the run', async () => {
    const world = await aStoredWorld();
    const A0 = 'tpu-us-central1-a-0';
    const {work: _, ...worker} = (await world.worker(A0)) ?? assert.fail();
    await world.store.transaction(async tx =>
      workerRecords.set(tx, {...worker, phase: 'working', work: 'my-run/001', claimed_at: iso(world.now)}),
    );
    const reads = countReads(world);
    await world.tick();
    const run = await world.run('my-run');
    assert.deepEqual(
      [run?.status, run?.reason, reads.count],
      ['active', 'its last workers still hold its streams', 0],
    );
    await world.untilAsleep();
    assert.equal(resultIn(world)?.streams, 2);
  });

  it('is made with some reads at once, and never with very many', async () => {
    const world = await aLargeWorld(COUNT);
    const counted = {under_way: 0, most: 0, calls: 0};
    const read = world.objects.read.bind(world.objects);
    world.objects.read = async (name, options) => {
      counted.calls += 1;
      counted.under_way += 1;
      counted.most = Math.max(counted.most, counted.under_way);
      await setImmediate();
      counted.under_way -= 1;
      return read(name, options);
    };
    const run = (await world.run('my-run')) ?? assert.fail();
    assert.equal((await foldRun(world.deps, run, Number.POSITIVE_INFINITY)).kind, 'ended');
    const {streams, samples, unread} = resultIn(world) ?? {};
    assert.deepEqual([streams, samples, unread], [COUNT, 2 * COUNT, {}]);
    assert.ok(counted.most > 10 && counted.most <= 32, `${counted.most} at once`);
    assert.ok(counted.calls < COUNT + 10, `${counted.calls} reads`);
  }).timeout(60_000);

  function isWritten(world: World): boolean {
    return world.objects.names(MANIFEST).length > 0;
  }

  /** A run whose streams are complete, each with a metadata.json. */
  async function aLargeWorld(count: number): Promise<World> {
    const world = new World();
    world.tickerOn = true;
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
    // Of other values in each stream, so that the order of the sums shows.
    const stats = {'resid_post.0': {mean: 1 / (index + 3), norm: index / 7, max_abs: index, non_finite: 0}};
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
    const read = world.objects.read.bind(world.objects);
    world.objects.read = async (name, options) => {
      if (!name.endsWith('metadata.json')) return read(name, options);
      reads.count += 1;
      world.now += reads.take_ms;
      if (reads.count > first) happens();
      return read(name, options);
    };
    return reads;
  }
});

describe('what lies beside the shards of a run', () => {
  for (const name of [
    MANIFEST,
    'activations/my-run/model.json',
    metadataObject('my-run', '000'),
    'activations/model.json',
  ])
    it(`such as ${name} is no event`, async () => {
      const world = new World();
      world.objects.put(name, '{}');
      await world.deliverAll();
      assert.deepEqual([await world.timeline(), world.logs, world.isAsleep()], [[], [], true]);
    });
});

/** How many calls of ports the tick makes that completes the run of this world. */
async function callsOfATick(world: World): Promise<number> {
  let calls = 0;
  world.weather.turnBad(1, () => {
    calls += 1;
    return 1;
  });
  await world.tick();
  world.weather.clear();
  assert.ok(resultIn(world));
  return calls;
}

describe('a stream object that is deleted', () => {
  it('while a worker is on it is recorded once, in its stream and in the events; the run ends and says so', async () => {
    const world = new World(ONE_SLOT);
    const object = world.drop('my-run', 0, someLines(24));
    await world.until(
      'work',
      async () => ((await world.stream('my-run', '000'))?.total_shards ?? 0) > 1,
      20,
      1,
    );
    await world.objects.delete(object);
    const text = `${object} is gone: verify cannot compare`;
    await world.minutes(2, 1);
    assert.equal((await world.stream('my-run', '000'))?.last_error, text);
    await world.minutes(2, 1);
    assert.equal((await world.timeline('stream')).filter(each => each === text).length, 1);
    await world.untilAsleep();
    const {status, reason} = (await world.run('my-run')) ?? {};
    assert.deepEqual([status, reason], ['completed', text]);
  });

  it('after its stream is complete and before the run is shows in the reason of the run', async () => {
    const world = new World(ONE_SLOT);
    const objects = [0, 1].map(index => world.drop('my-run', index, someLines(20)));
    const isAnyDone = async () => (await world.run('my-run'))?.streams_completed === 1;
    await world.until('one is done', isAnyDone, 30, 1);
    const done = (await world.stream('my-run', '000'))?.status === 'completed' ? 0 : 1;
    await world.objects.delete(objects[done] ?? '');
    await world.untilAsleep();
    const {status, reason} = (await world.run('my-run')) ?? {};
    assert.equal(status, 'completed');
    assert.equal(reason, `${objects[done]} is gone: verify cannot compare`);
  });
});
