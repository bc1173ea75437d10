import assert from 'node:assert/strict';
import {aWorkingWorld, aWorldWithAShard, untilAShard} from '../../world/scenes/one-worker.ts';
import {assertOthersGoOn, rejections} from '../../world/scenes/other-run.ts';
import {A0, ONE_SLOT} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

const STREAM = 'datasets/my-run/stream_000.jsonl';

describe('a stream object that is overwritten', () => {
  it('during work fails its stream, and no shard mixes two contents', async () => {
    const world = await aWorldWithAShard();
    const agent = world.agent(A0);
    const {crc32c} = (await world.stream('my-run', '000')) ?? {};
    world.drop('my-run', 0, someLines(20, 'new'));
    await world.deliverNext('object');
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

  it('during work fails its stream also when the event is lost', async () => {
    const world = await aWorldWithAShard();
    world.drop('my-run', 0, someLines(20, 'new'));
    world.queue.length = 0;
    await world.untilAsleep();
    assert.match((await world.stream('my-run', '000'))?.last_error ?? '', /was overwritten/);
  });

  const later: Record<string, (world: World) => unknown> = {
    'delivered twice': world => world.queue.push(...world.published.filter(({topic}) => topic === 'object')),
    'listed by a start': world => world.control({action: 'start', run: 'my-run'}),
    'listed by a rebuild': world => world.control({action: 'rebuild', run: 'my-run'}),
    'when it is tried again': world => world.control({action: 'retry', run: 'my-run', stream: '000'}),
    'uploaded once more': world => world.drop('my-run', 0, someLines(20, 'new')),
  };
  it('takes the new content after a person has cancelled it', async () => {
    const world = await aWorkingWorld();
    world.drop('my-run', 0, someLines(20, 'new'));
    await world.deliverNext('object');
    world.control({action: 'cancel', run: 'my-run', stream: '000'});
    await world.untilAsleep();
    world.drop('my-run', 0, someLines(20, 'new'));
    await world.untilStoredOnce('my-run', '000', someLines(20, 'new'));
  });

  for (const [name, again] of Object.entries(later))
    it(`before its first shard fails its stream for good, also ${name}`, async () => {
      const world = await aWorkingWorld();
      world.drop('my-run', 0, someLines(20, 'new'));
      await world.deliverNext('object');
      assert.equal((await world.stream('my-run', '000'))?.total_shards, 0);
      again(world);
      await world.untilAsleep();
      const {status, last_error, generation} = (await world.stream('my-run', '000')) ?? {};
      assert.deepEqual([status, (await world.run('my-run'))?.status], ['failed', 'failed']);
      assert.equal(world.tpus.made.length, 1, 'no TPU is created in vain');
      assert.match(last_error ?? '', new RegExp(`was overwritten .* \\(generation ${generation}, now`));
      world.drop('my-run', 0, someLines(20));
      await world.untilStoredOnce('my-run', '000', someLines(20));
    });

  it('between two workers fails its stream before the second worker begins', async () => {
    const world = await aWorldWithAShard();
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
});

describe('a stream object that is uploaded again with the same content', () => {
  it('changes nothing before, during and after work', async () => {
    const world = new World(ONE_SLOT);
    const again = () => world.drop('my-run', 0, someLines(20));
    again();
    await world.deliverAll();
    again();
    await untilAShard(world);
    again();
    await world.untilStoredOnce('my-run', '000', someLines(20));
    again();
    await world.untilStoredOnce('my-run', '000', someLines(20));
    assert.equal((await world.run('my-run'))?.status, 'completed');
    assert.equal(await rejections(world), '');
    const {generation} = (await world.objects.head(STREAM)) ?? {};
    assert.equal((await world.stream('my-run', '000'))?.generation, generation);
  });

  it('fails no stream where its event is late', async () => {
    const world = await aWorkingWorld();
    world.agent(A0).failure = {kind: 'infrastructure', reason: 'the disk is full'};
    world.drop('my-run', 0, someLines(20));
    const late = world.queue.splice(0);
    await world.until('work again', () => world.agents.get(A0)?.incarnation === 2, 20);
    await world.until('the end', async () => (await world.run('my-run'))?.status === 'completed');
    world.queue.push(...late);
    await world.untilStoredOnce('my-run', '000', someLines(20));
    assert.equal((await world.stream('my-run', '000'))?.failures, 0);
  });
});
