import assert from 'node:assert/strict';
import {gzipSync} from 'node:zlib';
import {workerRecords} from '../../shared/control-plane/state/documents.ts';
import type {Document} from '../../shared/ports.ts';
import {someLines} from '../support/agent.ts';
import {aWorker} from '../support/builders.ts';
import {World} from '../support/control-plane-harness.ts';

const A0 = 'tpu-us-central1-a-0';
const A1 = 'tpu-us-central1-a-1';
const ONE_SLOT = {GLEANER_ZONES: 'us-central1-a', GLEANER_WORKERS_PER_ZONE: '1'};
const STREAM = 'datasets/my-run/stream_000.jsonl';

async function rejections(world: World): Promise<string> {
  return (await world.timeline('rejected')).join('\n');
}

/** In the same world, a run of someone else ends well. */
async function assertOthersGoOn(world: World): Promise<void> {
  world.drop('other', 0, someLines(5, 'other'));
  await world.untilAsleep();
  await world.assertStoredOnce('other', '000', someLines(5, 'other'));
  assert.equal((await world.run('other'))?.status, 'completed');
}

describe('objects that are no streams', () => {
  const names: {name: string; says: RegExp}[] = [
    {name: 'datasets/my-run/train.jsonl', says: /"train.jsonl" is no stream: name it stream_007.jsonl/},
    {name: 'datasets/my-run/stream_1.jsonl', says: /"stream_1.jsonl" is no stream/},
    {name: 'datasets/My Run/stream_001.jsonl', says: /"My Run" is no run id/},
    {name: 'datasets/default/stream_001.jsonl', says: /lie directly under datasets/},
    {name: 'datasets/a/b/stream_001.jsonl', says: /streams are named/},
    {name: `datasets/${'x'.repeat(1000)}`, says: /is no stream/},
    {name: 'datasets/\u{1F600}/stream_000.jsonl', says: /is no run id/},
  ];
  for (const {name, says} of names)
    it(`${name.slice(0, 40)} is told of and ignored`, async () => {
      const world = new World(ONE_SLOT);
      world.objects.put(name, someLines(2));
      await world.deliverAll();
      assert.match(await rejections(world), says);
      assert.deepEqual(await world.store.query('runs'), []);
      assert.ok(world.isAsleep());
      await assertOthersGoOn(world);
    });

  it('beside the streams and the shards are nobody’s business', async () => {
    const world = new World(ONE_SLOT);
    for (const name of [
      'notes.txt',
      'logs/x/1.log',
      'datasets/my-run/',
      'activations/my-run/tpu_0/metadata.json',
    ])
      world.objects.put(name, 'x');
    await world.deliverAll();
    assert.deepEqual([await world.timeline(), world.isAsleep()], [[], true]);
  });

  it('of another bucket are not read', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(2));
    const [message] = world.queue.splice(0);
    assert.ok(message);
    await world.handle({...message, data: {...(message.data as object), bucket: 'another'}});
    assert.deepEqual([await world.store.query('runs'), world.isAsleep()], [[], true]);
  });
});

describe('a stream', () => {
  it('that is empty fails by name, alone, and its run says so', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, '');
    world.drop('my-run', 1, someLines(3));
    await world.untilAsleep();
    const stream = await world.stream('my-run', '000');
    assert.deepEqual(
      [stream?.status, stream?.last_error],
      ['failed', `${STREAM} is empty: it holds no record`],
    );
    await world.assertStoredOnce('my-run', '001', someLines(3));
    const run = await world.run('my-run');
    assert.deepEqual(
      [run?.status, run?.reason],
      ['failed', `stream 000: ${STREAM} is empty: it holds no record`],
    );
  });

  it('that is the only one and empty does not leave its run active for ever', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, '');
    await world.untilAsleep();
    const run = await world.run('my-run');
    assert.deepEqual([run?.status, run?.streams_failed], ['failed', 1]);
    assert.deepEqual(world.tpus.made, []);
  });

  it('that is empty gets no TPU by a retry, which revives the others of its run', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, '');
    await world.untilAsleep();
    world.control({action: 'retry', run: 'my-run'});
    world.control({action: 'retry', run: 'my-run', stream: '000'});
    await world.deliverAll();
    await world.untilAsleep();
    assert.deepEqual(world.tpus.made, []);
    assert.equal((await world.run('my-run'))?.status, 'failed');
    assert.match(
      (await world.timeline('control')).join('\n'),
      /rejected: stream my-run\/000 is empty: drop it again/,
    );
    world.drop('my-run', 1, someLines(5));
    world.control({action: 'cancel', run: 'my-run', stream: '001'});
    await world.untilAsleep();
    world.control({action: 'retry', run: 'my-run'});
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '001', someLines(5));
    assert.equal((await world.stream('my-run', '000'))?.status, 'failed');
  });

  it('that was empty is taken when it is dropped again with something in it', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, '');
    await world.untilAsleep();
    world.drop('my-run', 0, someLines(3));
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(3));
    assert.equal((await world.run('my-run'))?.status, 'completed');
  });

  it('that is dropped again with nothing in it fails as well', async () => {
    const world = new World(ONE_SLOT);
    world.tpus.soldOut.add('us-central1-a');
    world.drop('my-run', 0, someLines(3));
    await world.deliverAll();
    world.drop('my-run', 0, '');
    await world.untilAsleep();
    assert.match((await world.stream('my-run', '000'))?.last_error ?? '', /is empty/);
    assert.equal((await world.run('my-run'))?.status, 'failed');
  });

  it('with and without .gz: the second one of an index is refused, the first goes on', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(3));
    await world.deliverAll();
    world.objects.put(`${STREAM}.gz`, gzipSync(someLines(9)));
    await world.deliverAll();
    assert.match(
      await rejections(world),
      /stream_000.jsonl.gz has the same index as .*stream_000.jsonl, which was there first/,
    );
    await world.untilAsleep();
    assert.equal((await rejections(world)).split('has the same index').length, 2, 'it is told once');
    await world.assertStoredOnce('my-run', '000', someLines(3));
    assert.equal((await world.run('my-run'))?.status, 'completed');
  });

  it('that is overwritten before any work is taken as it is now', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(3));
    await world.deliverAll();
    world.drop('my-run', 0, someLines(4, 'new'));
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(4, 'new'));
  });

  it('that is overwritten while it is worked on fails, and no shard mixes two contents', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(20));
    await world.until(
      'a shard',
      async () => ((await world.stream('my-run', '000'))?.total_shards ?? 0) > 0,
      9,
      1,
    );
    const agent = world.agent(A0);
    const {crc32c} = (await world.stream('my-run', '000')) ?? {};
    world.drop('my-run', 0, someLines(20, 'new'));
    await world.deliverAll();
    const stream = await world.stream('my-run', '000');
    assert.deepEqual([stream?.status, stream?.lease, stream?.crc32c], ['failed', null, crc32c]);
    assert.match(stream?.last_error ?? '', /stream_000.jsonl was overwritten after work on it began/);
    await agent.beat();
    assert.ok(agent.told.includes('stop'), agent.told.join());
    await world.untilAsleep();
    for (const object of await world.objects.list('activations/my-run/tpu_0/'))
      assert.equal(object.metadata.stream_crc32c, crc32c);
    assert.match((await world.run('my-run'))?.reason ?? '', /was overwritten/);
    await assertOthersGoOn(world);
  });

  it('that is overwritten while it is worked on is found out also when the event is lost', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(20));
    await world.until(
      'a shard',
      async () => ((await world.stream('my-run', '000'))?.total_shards ?? 0) > 0,
      9,
      1,
    );
    world.drop('my-run', 0, someLines(20, 'new'));
    world.queue.length = 0;
    await world.untilAsleep();
    assert.match((await world.stream('my-run', '000'))?.last_error ?? '', /was overwritten/);
  });

  it('that is overwritten when it is done stays done, and the new content is refused', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(3));
    await world.untilAsleep();
    world.drop('my-run', 0, someLines(4, 'new'));
    await world.untilAsleep();
    assert.match(await rejections(world), /stream_000.jsonl was overwritten/);
    await world.assertStoredOnce('my-run', '000', someLines(3));
    assert.equal((await world.run('my-run'))?.status, 'completed');
  });

  it('that is uploaded again as it was goes on, before, while and after it is worked on', async () => {
    const world = new World(ONE_SLOT);
    const again = () => world.drop('my-run', 0, someLines(20));
    again();
    await world.deliverAll();
    again();
    await world.until(
      'a shard',
      async () => ((await world.stream('my-run', '000'))?.total_shards ?? 0) > 0,
      9,
      1,
    );
    again();
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
    again();
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
    assert.equal((await world.run('my-run'))?.status, 'completed');
    assert.equal(await rejections(world), '');
    const {generation} = (await world.objects.head(STREAM)) ?? {};
    assert.equal((await world.stream('my-run', '000'))?.generation, generation);
  });

  it('that is uploaded again as it was does not fail because the event of that is late', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(20));
    await world.until('work', () => world.agents.get(A0)?.state === 'working', 9, 1);
    world.agent(A0).failure = {kind: 'infrastructure', reason: 'the disk is full'};
    world.drop('my-run', 0, someLines(20));
    const late = world.queue.splice(0);
    await world.until('work again', () => world.agents.get(A0)?.incarnation === 2, 20);
    await world.until('the end', async () => (await world.run('my-run'))?.status === 'completed');
    world.queue.push(...late);
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
    assert.equal((await world.stream('my-run', '000'))?.failures, 0);
  });

  it('that is overwritten between two workers is found out before the second one begins', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(20));
    await world.until(
      'a shard',
      async () => ((await world.stream('my-run', '000'))?.total_shards ?? 0) > 0,
      9,
      1,
    );
    const stored = world.objects.names('activations/my-run/tpu_0/');
    world.drop('my-run', 0, someLines(20, 'new'));
    world.queue.length = 0;
    const agent = world.boot(A0);
    await agent.step();
    await agent.step();
    assert.equal(agent.state, 'asking', 'it got nothing');
    assert.match((await world.stream('my-run', '000'))?.last_error ?? '', /was overwritten/);
    assert.deepEqual(world.objects.names('activations/my-run/tpu_0/'), stored);
  });

  it('that is gone before its event is read is no stream', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(3));
    await world.objects.delete(STREAM);
    await world.deliverAll();
    assert.deepEqual([await world.store.query('runs'), world.isAsleep()], [[], true]);
  });
});

describe('run.json', () => {
  it('that is bad stops its run by name until it is mended, and nobody else', async () => {
    const world = new World(ONE_SLOT);
    world.objects.put('datasets/my-run/run.json', '{"modle": "tiny"}');
    world.drop('my-run', 0, someLines(3));
    world.drop('my-run', 1, someLines(3, 'b'));
    await world.deliverAll();
    const run = await world.run('my-run');
    assert.equal(run?.status, 'failed');
    assert.match(run?.reason ?? '', /datasets\/my-run\/run.json is not valid: .*modle/);
    await assertOthersGoOn(world);
    world.objects.put('datasets/my-run/run.json', '{"model": "tiny"}');
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(3));
    await world.assertStoredOnce('my-run', '001', someLines(3, 'b'));
    const mended = await world.run('my-run');
    assert.deepEqual([mended?.status, mended?.reason, mended?.spec?.model], ['completed', null, 'tiny']);
  });

  it('that was mended in silence is read when the run is started', async () => {
    const world = new World(ONE_SLOT);
    world.objects.put('datasets/my-run/run.json', '{');
    world.drop('my-run', 0, someLines(3));
    await world.deliverAll();
    world.objects.put('datasets/my-run/run.json', '{}');
    world.queue.length = 0;
    world.control({action: 'start', run: 'my-run'});
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(3));
  });

  const bad: {name: string; text: string; says: RegExp}[] = [
    {name: 'no JSON', text: 'model: tiny', says: /is not JSON/},
    {name: 'an unknown pool', text: '{"pool": "big"}', says: /there is no pool "big", only "tpu"/},
    {name: 'too large', text: ' '.repeat(65 * 1024), says: /the most is 65536/},
    {name: 'half a character', text: '{"model": \u{1F600}}', says: /is not JSON/},
    {
      name: 'a word that is cut within a character',
      text: `{"format": "${'x'.repeat(98)}\u{1F600}"}`,
      says: /format/,
    },
    {name: 'half a character as a key', text: '{"\\ud800": 1}', says: /there is no/},
    {name: 'a key as long as a book', text: `{"${'k'.repeat(60_000)}": 1}`, says: /there is no k.* …$/},
    {
      name: 'a nest',
      text: `{"layers": ${'['.repeat(9000)}${']'.repeat(9000)}}`,
      says: /nested deeper than 100/,
    },
  ];
  for (const {name, text, says} of bad)
    it(`with ${name} says so`, async () => {
      const world = new World(ONE_SLOT);
      world.objects.put('datasets/my-run/run.json', text);
      world.drop('my-run', 0, someLines(3));
      await world.deliverAll();
      assert.match((await world.run('my-run'))?.reason ?? '', says);
      await assertOthersGoOn(world);
    });

  it('is frozen with the first stream: another one later is refused by name', async () => {
    const world = new World(ONE_SLOT);
    world.objects.put('datasets/my-run/run.json', '{"seed": 1}');
    world.drop('my-run', 0, someLines(3));
    await world.deliverAll();
    const frozen = (await world.run('my-run'))?.spec_hash;
    world.objects.put('datasets/my-run/run.json', '{"seed": 2}');
    world.drop('my-run', 1, someLines(3));
    await world.untilAsleep();
    assert.match(await rejections(world), /run.json is ignored: the spec of run "my-run" was frozen/);
    const run = await world.run('my-run');
    assert.deepEqual([run?.spec?.seed, run?.spec_hash, run?.status], [1, frozen, 'completed']);
    const shards = (await world.objects.list('activations/my-run/tpu_')).filter(({name}) =>
      /shard_/.test(name),
    );
    assert.deepEqual(new Set(shards.map(({metadata}) => metadata.spec_hash)), new Set([frozen]));
  });

  it('that changes only how the run is worked on is ignored with advice, also after the Store was lost', async () => {
    const world = new World(ONE_SLOT);
    world.objects.put('datasets/my-run/run.json', '{"budget_usd": 5, "priority": 3, "affinity": "fixed"}');
    world.drop('my-run', 0, someLines(20));
    await world.minutes(3, 1);
    assert.equal(await rejections(world), '');
    const placementOf = async () => {
      const {budget_usd, priority, affinity} = (await world.run('my-run')) ?? {};
      return {budget_usd, priority, affinity};
    };
    const placement = await placementOf();
    world.objects.put('datasets/my-run/run.json', '{"priority": -3}');
    await world.deliverAll();
    const advice =
      /run.json is ignored: run "my-run" keeps its priority, budget_usd, affinity; the message "configure"/;
    assert.match(await rejections(world), advice);
    await world.wipe();
    await world.minutes(2, 1);
    assert.deepEqual(await placementOf(), placement);
    await world.resume('my-run');
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'completed');
    await world.wipe();
    world.control({action: 'start', run: 'my-run'});
    await world.untilAsleep();
    assert.deepEqual(await placementOf(), placement, 'also when the result is in the manifest');
  });

  it('counts as it is where the manifest, of the first release, does not say how the run is worked on', async () => {
    const world = new World(ONE_SLOT);
    world.objects.put('datasets/my-run/run.json', '{"priority": 3}');
    world.drop('my-run', 0, someLines(5));
    await world.deliverAll();
    const name = 'activations/my-run/manifest.json';
    const {placement: _, ...older} = JSON.parse(world.objects.text(name));
    world.objects.put(name, JSON.stringify(older));
    await world.wipe();
    await world.tick();
    assert.equal((await world.run('my-run'))?.priority, 3);
  });

  it('that says the same in other words is no change', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(3));
    await world.deliverAll();
    world.objects.put('datasets/my-run/run.json', '{"seed": 42, "dtype": "bf16"}');
    await world.untilAsleep();
    assert.equal(await rejections(world), '');
  });
});

describe('a shard that is not one', () => {
  const plants: {
    name: string;
    object: string;
    metadata: (of: Record<string, string>) => Record<string, string>;
    says: RegExp;
  }[] = [
    {
      name: 'without metadata',
      object: 'shard_0001.safetensors',
      metadata: () => ({}),
      says: /shard_0001.safetensors is not valid: schema/,
    },
    {
      name: 'of another stream',
      object: 'shard_0001.safetensors',
      metadata: of => ({...of, stream: '009'}),
      says: /says that it is shard 1 of my-run\/009/,
    },
    {
      name: 'of another run',
      object: 'shard_0001.safetensors',
      metadata: of => ({...of, run: 'other'}),
      says: /says that it is shard 1 of other\/000/,
    },
    {
      name: 'with another number',
      object: 'shard_0001.safetensors',
      metadata: of => ({...of, shard: '2'}),
      says: /says that it is shard 2/,
    },
    {
      name: 'of another spec',
      object: 'shard_0001.safetensors',
      metadata: of => ({...of, spec_hash: 'f'.repeat(64)}),
      says: /was made with spec ffffffffffff/,
    },
    {
      name: 'of other content',
      object: 'shard_0001.safetensors',
      metadata: of => ({...of, stream_crc32c: 'other'}),
      says: /made from other content/,
    },
    {name: 'in another format', object: 'shard_0001.pkl.gz', metadata: of => of, says: /are both shard 1/},
    {
      name: 'with a number that no document holds',
      object: 'shard_0001.safetensors',
      metadata: of => ({...of, tokens: '9'.repeat(19)}),
      says: /tokens/,
    },
  ];
  for (const {name, object, metadata, says} of plants)
    it(`${name} fails its stream by name, and nobody else`, async () => {
      const world = new World(ONE_SLOT);
      world.tpus.soldOut.add('us-central1-a');
      world.drop('my-run', 0, someLines(4));
      await world.deliverAll();
      const {spec_hash} = (await world.run('my-run')) ?? {};
      const {crc32c} = (await world.stream('my-run', '000')) ?? {};
      await world.store.transaction(async tx => {
        const path = 'runs/my-run/streams/000';
        tx.set(path, {...(await tx.get(path)), epoch: 1});
      });
      const of = {
        schema: 'gleaner/1',
        run: 'my-run',
        stream: '000',
        shard: '1',
        epoch: '1',
        first_sample: '0',
        last_sample: '1',
        samples: '2',
        rejected: '0',
        tokens: '5',
        spec_hash: String(spec_hash),
        stream_crc32c: String(crc32c),
        final: 'false',
      };
      const folder = 'activations/my-run/tpu_0/';
      if (object.endsWith('.pkl.gz')) world.objects.put(`${folder}shard_0001.safetensors`, 'x', of);
      world.objects.put(folder + object, 'x', metadata(of));
      await world.deliverAll();
      world.tpus.soldOut.clear();
      await world.untilAsleep();
      const stream = await world.stream('my-run', '000');
      assert.equal(stream?.status, 'failed');
      assert.match(stream?.last_error ?? '', says);
      assert.equal((await world.run('my-run'))?.status, 'failed');
      await assertOthersGoOn(world);
    });

  it('in a folder that belongs to no stream is ignored', async () => {
    const world = new World(ONE_SLOT);
    world.objects.put('activations/my-run/tpu_5/shard_0001.safetensors', 'x');
    await world.deliverAll();
    assert.ok(world.isAsleep());
    await assertOthersGoOn(world);
  });
});

describe('a document that somebody broke', () => {
  const spoil = (world: World, path: string, change: Document) =>
    world.store.transaction(async tx => {
      const before = (await tx.get(path)) ?? {};
      tx.set(path, {...before, ...change});
    });

  it('of a run stops that run and no other', async () => {
    const world = new World();
    world.drop('broken', 0, someLines(9));
    world.drop('my-run', 0, someLines(9));
    await world.until('work', () => world.agents.size === 2, 9, 1);
    await spoil(world, 'runs/broken', {priority: 'high'});
    await world.until('the other is done', async () => (await world.run('my-run'))?.status === 'completed');
    await world.assertStoredOnce('my-run', '000', someLines(9));
    assert.ok(world.logs.some(({message}) => /Failed to read runs\/broken: priority/.test(message)));
    await spoil(world, 'runs/broken', {priority: 0});
    world.control({action: 'start', run: 'broken'});
    await world.untilAsleep();
    await world.assertStoredOnce('broken', '000', someLines(9));
  });

  it('of a stream stops that stream and no other, and its run is not called complete', async () => {
    const world = new World();
    world.drop('my-run', 0, someLines(9));
    world.drop('my-run', 1, someLines(9, 'b'));
    await world.deliverAll();
    await spoil(world, 'runs/my-run/streams/000', {epoch: -1});
    await world.until(
      'the other is done',
      async () => (await world.stream('my-run', '001'))?.status === 'completed',
    );
    await world.untilAsleep();
    const run = await world.run('my-run');
    assert.equal(run?.status, 'failed');
    assert.match(run?.reason ?? '', /stream 000: Failed to read runs\/my-run\/streams\/000: epoch/);
    await spoil(world, 'runs/my-run/streams/000', {epoch: 0});
    world.control({action: 'start', run: 'my-run'});
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(9));
    assert.equal((await world.run('my-run'))?.status, 'completed');
  });

  it('of a stream does not keep its run from being started, nor a further stream from being taken', async () => {
    const world = new World();
    world.drop('my-run', 0, someLines(3));
    await world.deliverAll();
    await spoil(world, 'runs/my-run/streams/000', {epoch: -1});
    world.drop('my-run', 1, someLines(3, 'b'));
    world.queue.length = 0;
    const id = world.control({action: 'start', run: 'my-run'});
    await world.deliverAll();
    assert.equal((await world.store.get(`control/${id}`))?.outcome, 'applied');
    await world.until(
      'the other is done',
      async () => (await world.stream('my-run', '001'))?.status === 'completed',
    );
  });

  it('of a stream does not keep the TPU of its worker from being given up', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(40));
    await world.until('work', () => world.agents.get(A0)?.state === 'working', 9, 1);
    await spoil(world, 'runs/my-run/streams/000', {epoch: -1});
    await world.untilAsleep();
    assert.deepEqual(world.tpus.made, [`${A0}#1`]);
  });

  it('of a run is why a control message about it is rejected', async () => {
    const world = new World();
    world.drop('my-run', 0, someLines(3));
    await world.deliverAll();
    await spoil(world, 'runs/my-run', {priority: 'high'});
    const id = world.control({action: 'pause', run: 'my-run'});
    await world.deliverAll();
    const record = await world.store.get(`control/${id}`);
    assert.equal(record?.outcome, 'rejected');
    assert.match(String(record?.reason), /Failed to read runs\/my-run: priority/);
  });

  it('of a worker whose node lives is dropped, and its slot gets a node of a later life', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(40));
    await world.until('work', () => world.agents.get(A0)?.state === 'working', 9, 1);
    await spoil(world, `workers/${A0}`, {phase: 'asleep'});
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(40));
    assert.deepEqual([(await world.worker(A0))?.phase, world.tpus.made], ['gone', [`${A0}#1`, `${A0}#2`]]);
  });

  it('of a zone says nothing of it, and holds up no slot', async () => {
    const world = new World(ONE_SLOT);
    await spoil(world, 'zones/us-central1-a', {losses: 'many'});
    world.drop('my-run', 0, someLines(9));
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(9));
  });

  it('of the pool is made again: what messages had said holds, and what was spent', async () => {
    const world = new World({GLEANER_WORKERS_PER_ZONE: '1', GLEANER_ZONES: 'us-central1-a'});
    world.control({action: 'scale', budget_usd: 50, workers_per_zone: 2});
    await world.deliverAll();
    await spoil(world, 'pools/tpu', {workers_per_zone: '8', spent_usd: 3});
    world.drop('my-run', 0, someLines(9));
    world.drop('my-run', 1, someLines(9, 'b'));
    await world.until('both slots work', () => world.agents.size === 2, 9, 1);
    const pool = await world.store.get('pools/tpu');
    assert.deepEqual([pool?.workers_per_zone, pool?.budget_usd, pool?.spent_usd], [2, 50, 3]);
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '001', someLines(9, 'b'));
  });

  it('of a worker stops that slot and no other: the work goes to the next', async () => {
    const world = new World({GLEANER_ZONES: 'us-central1-a'});
    await world.store.transaction(async tx => workerRecords.set(tx, aWorker({phase: 'gone'})));
    await spoil(world, `workers/${A0}`, {phase: 'asleep'});
    world.drop('my-run', 0, someLines(9));
    await world.until('the other slot works', () => world.agents.get(A1)?.state === 'working', 9, 1);
    await world.until('the work is done', async () => (await world.run('my-run'))?.status === 'completed');
    assert.deepEqual(world.tpus.made, [`${A1}#1`]);
    assert.ok(world.logs.some(({message}) => message.includes(`Failed to read workers/${A0}: phase`)));
    assert.ok(world.logs.some(({message}) => /mend the field or delete the document/.test(message)));
  });

  it('with an instant that is none is known for broken', () => {
    const worker = {...aWorker(), heartbeat_at: 'yesterday'};
    assert.throws(() => workerRecords.parse('workers/w', worker as unknown as Document), /heartbeat_at/);
  });
});
