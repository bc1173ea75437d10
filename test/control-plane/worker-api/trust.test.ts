import assert from 'node:assert/strict';
import {readdirSync, readFileSync} from 'node:fs';
import {
  eventRecords,
  runRecords,
  streamRecords,
  workerRecords,
} from '../../../shared/control-plane/documents/documents.ts';
import {tick} from '../../../shared/control-plane/tick/tick.ts';
import {MAX_LEASE_EPOCH} from '../../../shared/domain/bounds.ts';
import {aRun, aStream, at, aWorker, shardMetadataOf} from '../../world/builders.ts';
import {aWorkingWorld, aWorldWithAStream} from '../../world/scenes/one-worker.ts';
import {A0} from '../../world/scenes/places.ts';
import {planShards, shardBytes, shardMetadata, someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

/** Stores a shard of my-run/000 that no worker made; `given` is what its metadata says of itself. */
async function forge(world: World, shard: number, given: Record<string, string>): Promise<string> {
  const {spec_hash} = (await world.run('my-run')) ?? assert.fail();
  const {crc32c} = (await world.stream('my-run', '000')) ?? assert.fail();
  const name = `activations/my-run/tpu_0/shard_000${shard}.safetensors`;
  const own = {stream: '000', shard: String(shard), spec_hash: String(spec_hash), stream_crc32c: crc32c};
  world.objects.put(name, 'rubbish', shardMetadataOf({...own, ...given}));
  await world.deliverAll();
  return name;
}

describe('a document that no reader accepts', () => {
  const writes: {name: string; says: RegExp; write: (tx: Parameters<typeof streamRecords.set>[0]) => void}[] =
    [
      {
        name: 'a stream of too large an epoch',
        says: /Refused to write runs\/my-run\/streams\/007: epoch: expected at most/,
        write: tx => streamRecords.set(tx, aStream({epoch: MAX_LEASE_EPOCH + 1})),
      },
      {
        name: 'a run whose tokens cannot be counted exactly',
        says: /Refused to write runs\/my-run: total_tokens/,
        write: tx => runRecords.set(tx, aRun({total_tokens: Number.MAX_SAFE_INTEGER + 1})),
      },
      {
        name: 'a worker with half an incarnation',
        says: /Refused to write workers\/tpu-us-central1-a-0: incarnation/,
        write: tx => workerRecords.set(tx, aWorker({incarnation: 1.5})),
      },
      {
        name: 'an event without a text',
        says: /Refused to write events\/e: text/,
        write: tx =>
          eventRecords.set(tx, 'events/e', {kind: 'run', text: 7, at: at(0), expire_at: at(0)} as never),
      },
    ];
  for (const {name, says, write} of writes)
    it(`is not written: ${name}, and its transaction changes nothing`, async () => {
      const {store} = new World();
      const both = store.transaction(async tx => {
        runRecords.set(tx, aRun({run: 'other'}));
        write(tx);
      });
      await assert.rejects(both, says);
      assert.equal(await store.get('runs/other'), undefined);
    });

  it('has no way around its schema: document-kind.ts writes documents, and watched-store.ts passes writes on', () => {
    const folder = new URL('../../../shared/control-plane/', import.meta.url);
    const files = readdirSync(folder, {recursive: true, encoding: 'utf8'}).filter(file =>
      file.endsWith('.ts'),
    );
    const writers = files.filter(file =>
      /\btx\.(set|create)\(/.test(readFileSync(new URL(file, folder), 'utf8')),
    );
    assert.deepEqual(writers, ['documents/document-kind.ts', 'documents/watched-store.ts']);
  });
});

describe('an object at the place of a shard that no lease explains', () => {
  const forged: {name: string; given: Record<string, string>; says: RegExp}[] = [
    {
      name: 'of an epoch that was never granted',
      given: {epoch: '7', final: 'false'},
      says: /has epoch 7, and the lease/,
    },
    {
      name: 'of the present epoch, without its proof',
      given: {epoch: '1', final: 'false'},
      says: /no valid proof of the lease/,
    },
    {name: 'that would be the last', given: {epoch: '1', final: 'true'}, says: /no valid proof of the lease/},
    {name: 'with half a character in its checksum', given: {stream_crc32c: '\ud800'}, says: /stream_crc32c/},
    ...['0', '2000001', '9007199254740991'].map(epoch => ({
      name: `of epoch ${epoch}`,
      given: {epoch},
      says: /is not valid: epoch: expected a whole number from 1 to 2000000/,
    })),
  ];
  for (const {name, given, says} of forged)
    it(`is set aside: one ${name}, and its stream goes on`, async () => {
      const world = await aWorkingWorld();
      const shards = (await world.stream('my-run', '000'))?.total_shards ?? 0;
      const object = await forge(world, shards + 1, given);
      assert.equal(world.text(world.objects.names(`set-aside/${object}/`)[0] ?? ''), 'rubbish');
      assert.match((await world.timeline('stream')).join(), says);
      await world.untilStoredOnce('my-run', '000', someLines(20));
    });

  it('is set aside: one of a stream that was never leased, and its stream goes on', async () => {
    const world = aWorldWithAStream(20);
    await world.deliver();
    const object = await forge(world, 1, {epoch: '1', final: 'false'});
    assert.equal(world.objects.names(`set-aside/${object}/`).length, 1);
    await world.untilStoredOnce('my-run', '000', someLines(20));
  });

  it('is set aside: one that came after the release of its lease, with its proof', async () => {
    const world = await aWorkingWorld();
    world.control({action: 'pause', run: 'my-run'});
    await world.until('a release', async () => (await world.stream('my-run', '000'))?.lease === null, 9, 1);
    const stream = (await world.stream('my-run', '000')) ?? assert.fail();
    const {total_shards, lease_key, epoch, crc32c} = stream;
    const {spec_hash} = (await world.run('my-run')) ?? assert.fail();
    const plan = planShards(someLines(20))[total_shards] ?? assert.fail();
    const source = {run: 'my-run', stream: '000', spec_hash: String(spec_hash), dataset: {crc32c}};
    const name = `activations/my-run/tpu_0/shard_000${plan.shard}.safetensors`;
    const metadata = shardMetadata(plan, source, epoch, String(lease_key));
    world.objects.put(name, shardBytes(plan, source), metadata);
    await world.deliverAll();
    assert.match((await world.timeline('stream')).join(), /came after the release of its lease/);
    await world.resume('my-run');
    await world.untilStoredOnce('my-run', '000', someLines(20));
  });
});

describe('numbers that are too large', () => {
  it('as the epoch of a heartbeat are refused, and its stream stays readable', async () => {
    const world = aWorldWithAStream(2);
    await world.until('work', () => world.agents.get(A0)?.state === 'working', 9, 1);
    const from = {worker: A0, incarnation: 1, host: 0};
    const lease = {run: 'my-run', stream: '000', epoch: Number.MAX_SAFE_INTEGER};
    const {status, body} = await world.api({
      action: 'heartbeat',
      ...from,
      phase: 'running',
      lease,
      progress: null,
    });
    assert.equal(status, 400);
    assert.match(String(body.error), /lease.epoch: expected at most 2000000/);
    await world.untilStoredOnce('my-run', '000', someLines(2));
  });

  it('as the sums of many streams leave the totals of their run at the largest exact number', async () => {
    const world = aWorldWithAStream(2);
    await world.deliver();
    await world.store.transaction(async tx => {
      const total_tokens = Number.MAX_SAFE_INTEGER;
      for (const stream of ['001', '002'])
        streamRecords.set(tx, aStream({stream, status: 'failed', total_tokens}));
    });
    await tick(world.deps);
    assert.equal((await world.run('my-run'))?.total_tokens, Number.MAX_SAFE_INTEGER);
  });
});
