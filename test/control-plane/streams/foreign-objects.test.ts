/** Objects that are not what their names say, or whose names say nothing. */
import assert from 'node:assert/strict';
import {iso} from '../../../shared/domain/time.ts';
import {notificationData} from '../../world/bus.ts';
import {aWorldWithAStream} from '../../world/scenes/one-worker.ts';
import {assertOthersGoOn, rejections} from '../../world/scenes/other-run.ts';
import {ONE_SLOT} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

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
    it(`${name.slice(0, 40)} is recorded and ignored`, async () => {
      const world = new World(ONE_SLOT);
      world.objects.put(name, someLines(2));
      await world.deliverAll();
      assert.match(await rejections(world), says);
      assert.deepEqual(await world.store.query('runs'), []);
      assert.ok(await world.isAsleep());
      await assertOthersGoOn(world);
    });

  it('beside streams and shards are ignored without a record', async () => {
    const world = new World(ONE_SLOT);
    for (const name of [
      'notes.txt',
      'logs/x/1.log',
      'datasets/my-run/',
      'activations/my-run/tpu_0/metadata.json',
    ])
      world.objects.put(name, 'x');
    await world.deliverAll();
    assert.deepEqual([await world.timeline(), await world.isAsleep()], [[], true]);
  });

  it('of another bucket are not read', async () => {
    const world = aWorldWithAStream(2);
    const [message] = world.queue.splice(0);
    assert.ok(message);
    const object = {bucket: 'another', name: 'datasets/my-run/stream_000.jsonl', generation: '1'};
    await world.handle({...message, data: notificationData(message.id, object, iso(world.now))});
    assert.deepEqual([await world.store.query('runs'), await world.isAsleep()], [[], true]);
  });
});

describe('an object in the place of a shard', () => {
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
      name: 'with another number',
      object: 'shard_0001.safetensors',
      metadata: of => ({...of, shard: '2'}),
      says: /says that it is shard 2/,
    },
    {
      name: 'in another format',
      object: 'shard_0001.pkl.gz',
      metadata: of => of,
      says: /another format than safetensors/,
    },
    {
      name: 'with a number that no document holds',
      object: 'shard_0001.safetensors',
      metadata: of => ({...of, tokens: '9'.repeat(19)}),
      says: /tokens/,
    },
  ];
  for (const {name, object, metadata, says} of plants)
    it(`${name}, from before the first lease, fails its stream by name, and no other run`, async () => {
      const world = new World(ONE_SLOT);
      world.tpus.zone('us-central1-a').soldOut = true;
      world.drop('my-run', 0, someLines(4));
      await world.deliverAll();
      const {spec_hash} = (await world.run('my-run')) ?? {};
      const {crc32c} = (await world.stream('my-run', '000')) ?? {};
      await world.edit('runs/my-run/streams/000', {epoch: 1});
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
        sha256: 'b'.repeat(64),
        final: 'false',
      };
      const folder = 'activations/my-run/tpu_0/';
      world.objects.put(folder + object, 'x', metadata(of));
      await world.deliverAll();
      world.tpus.openZones();
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
    assert.ok(await world.isAsleep());
    await assertOthersGoOn(world);
  });
});
