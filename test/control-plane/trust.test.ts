import assert from 'node:assert/strict';
import {readdirSync, readFileSync} from 'node:fs';
import {
  eventRecords,
  runRecords,
  streamRecords,
  workerRecords,
} from '../../shared/control-plane/documents/documents.ts';
import {tick} from '../../shared/control-plane/tick/tick.ts';
import {MAX_LEASE_EPOCH} from '../../shared/domain/bounds.ts';
import {aRun, aStream, at, aWorker, shardMetadataOf} from '../support/builders.ts';
import {World} from '../support/control-plane-harness.ts';
import {aWorkingWorld, aWorldWithAStream} from '../support/one-worker.ts';
import {A0} from '../support/places.ts';
import {someLines} from '../support/shard-plan.ts';

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
    const folder = new URL('../../shared/control-plane/', import.meta.url);
    const files = readdirSync(folder, {recursive: true, encoding: 'utf8'}).filter(file =>
      file.endsWith('.ts'),
    );
    const writers = files.filter(file =>
      /\btx\.(set|create)\(/.test(readFileSync(new URL(file, folder), 'utf8')),
    );
    assert.deepEqual(writers, ['documents/document-kind.ts', 'documents/watched-store.ts']);
  });
});

describe('a shard that no lease explains', () => {
  it('completes no stream that was never leased', async () => {
    const world = aWorldWithAStream(20);
    await world.deliver();
    const name = await forge(world, 1, {epoch: '1', final: 'true'});
    const {status, total_shards, last_error} = (await world.stream('my-run', '000')) ?? {};
    assert.deepEqual([status, total_shards], ['failed', 0]);
    assert.ok(
      last_error?.includes(`${name} has epoch 1, and 0 is the largest that was granted`),
      String(last_error),
    );
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'failed');
  });

  it('is counted after a rebuild, and the next grant is above its epoch', async () => {
    const world = await aWorkingWorld();
    const plan = {first_sample: '0', last_sample: '1', samples: '2', rejected: '0', final: 'false'};
    await forge(world, 1, {...plan, epoch: '7'});
    assert.match((await world.stream('my-run', '000'))?.last_error ?? '', /epoch 7, and 1 is the largest/);
    world.control({action: 'retry', run: 'my-run', stream: '000'});
    await world.minutes(2);
    assert.equal((await world.stream('my-run', '000'))?.status, 'failed', 'a retry grants nothing');
    world.control({action: 'rebuild', run: 'my-run'});
    await world.deliverAll();
    const {status, epoch, total_shards} = (await world.stream('my-run', '000')) ?? {};
    assert.deepEqual({status, epoch, total_shards}, {status: 'pending', epoch: 7, total_shards: 1});
    await world.until('a grant', async () => (await world.stream('my-run', '000'))?.lease != null, 9, 1);
    assert.equal((await world.stream('my-run', '000'))?.epoch, 8);
  });

  it('fails its stream and leaves the pause of its run, which the rebuild leaves too', async () => {
    const world = await aWorkingWorld();
    world.control({action: 'pause', run: 'my-run'});
    await forge(world, 2, {epoch: '7', final: 'false'});
    await world.untilAsleep();
    const statuses = async () => [
      (await world.run('my-run'))?.status,
      (await world.stream('my-run', '000'))?.status,
    ];
    assert.deepEqual(await statuses(), ['paused', 'failed']);
    await world.objects.delete('activations/my-run/tpu_0/shard_0002.safetensors');
    world.control({action: 'rebuild', run: 'my-run'});
    await world.untilAsleep();
    assert.deepEqual(await statuses(), ['paused', 'pending']);
    await world.resume('my-run');
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
  });

  for (const epoch of ['0', '1000001', '9007199254740991'])
    it(`of epoch ${epoch} fails its stream by name, and the run stays readable`, async () => {
      const world = aWorldWithAStream(20);
      await world.deliver();
      const name = await forge(world, 1, {epoch});
      const {status, last_error} = (await world.stream('my-run', '000')) ?? {};
      assert.equal(status, 'failed');
      assert.ok(
        last_error?.startsWith(`${name} is not valid: epoch: expected a whole number from 1 to 1000000`),
      );
      await world.untilAsleep();
      assert.equal((await world.run('my-run'))?.status, 'failed');
    });
});

describe('half a character in the checksum of a shard', () => {
  it('fails its stream by name, and the run stays readable', async () => {
    const world = await aWorkingWorld();
    const name = await forge(world, 1, {stream_crc32c: '\ud800'});
    const {status, last_error} = (await world.stream('my-run', '000')) ?? {};
    assert.deepEqual([status, last_error?.includes(`${name} is not valid: stream_crc32c`)], ['failed', true]);
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'failed');
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
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(2));
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
