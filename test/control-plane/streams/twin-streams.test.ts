/** Several objects of one stream index, and contents that changed, under a lost database. */
import assert from 'node:assert/strict';
import {aWorldWithAStream, untilShards} from '../../world/scenes/one-worker.ts';
import {ONE_SLOT} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

describe('a stream with several objects under a lost database', () => {
  const words = {
    nothing: undefined,
    start: {action: 'start', run: 'my-run'},
    rebuild: {action: 'rebuild', run: 'my-run'},
  };
  for (const [word, message] of Object.entries(words)) {
    it(`goes on with the object of its shards, not with a refused one (${word})`, async () => {
      const world = new World(ONE_SLOT);
      world.drop('my-run', 0, someLines(12), '.gz');
      await untilShards(world, 2);
      world.drop('my-run', 0, someLines(12, 'other'));
      await world.minute(1);
      // The object is uploaded again unchanged, so it is the later one of the two.
      world.drop('my-run', 0, someLines(12), '.gz');
      await world.minute(1);
      await world.wipe();
      if (message) world.control(message);
      await world.untilAsleep();
      await world.resume('my-run');
      await world.untilStoredOnce('my-run', '000', someLines(12));
      assert.equal((await world.stream('my-run', '000'))?.object, 'datasets/my-run/stream_000.jsonl.gz');
    });

    for (const suffix of ['', '.gz'])
      it(`stays complete when other content was refused since (${word}, "${suffix}")`, async () => {
        const world = new World(ONE_SLOT);
        world.drop('my-run', 0, someLines(6), suffix);
        await world.untilAsleep();
        world.drop('my-run', 0, someLines(6, 'other'));
        await world.minutes(2);
        const made = world.tpus.made.length;
        await world.wipe();
        if (message) world.control(message);
        else await world.tick();
        await world.untilStoredOnce('my-run', '000', someLines(6));
        assert.equal((await world.run('my-run'))?.status, 'completed');
        assert.equal(world.tpus.made.length, made);
      });
  }

  it('is registered anew by a rebuild where its document names the wrong object', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(12), '.gz');
    await untilShards(world, 2);
    world.drop('my-run', 0, someLines(12, 'other'));
    await world.minute(1);
    const other = await world.objects.head('datasets/my-run/stream_000.jsonl');
    assert.ok(other);
    const {name: object, generation, crc32c} = other;
    const wrong = {status: 'failed', lease: null, epoch: 0, total_shards: 0};
    const changes = {object, generation, crc32c, ...wrong, last_error: 'made from other content'};
    await world.edit('runs/my-run/streams/000', changes);
    world.control({action: 'rebuild', run: 'my-run'});
    await world.untilStoredOnce('my-run', '000', someLines(12));
  });

  it('is rebuilt with the content of its shards after a function died before it counted them', async () => {
    const world = aWorldWithAStream(6);
    await world.untilAsleep();
    const whole = await world.stream('my-run', '000');
    world.drop('my-run', 0, someLines(6, 'other'));
    await world.wipe();
    const {objects} = world.deps;
    const list: typeof objects.list = async (prefix, options) => {
      if (prefix.startsWith('activations/') && (await world.stream('my-run', '000')))
        throw new Error('it died');
      return objects.list(prefix, options);
    };
    world.deps.objects = {...objects, list};
    await world.order({action: 'start', run: 'my-run'});
    world.deps.objects = objects;
    world.queue.length = 0;
    assert.equal((await world.stream('my-run', '000'))?.status, 'pending');
    world.control({action: 'rebuild', run: 'my-run'});
    await world.deliverNext('control');
    await world.deliverNext('tasks');
    const {status, crc32c} = (await world.stream('my-run', '000')) ?? {};
    assert.deepEqual({status, crc32c}, {status: 'completed', crc32c: whole?.crc32c});
  });

  it('fails when its shards are of other content', async () => {
    const world = aWorldWithAStream(12);
    await untilShards(world, 2);
    world.drop('my-run', 0, someLines(12, 'other'));
    await world.wipe();
    world.control({action: 'rebuild', run: 'my-run'});
    await world.untilAsleep();
    assert.match(String((await world.stream('my-run', '000'))?.last_error), /was made from other content/);
  });
});
