import assert from 'node:assert/strict';
import {seeded} from '../../world/clock.ts';
import {A0, A1} from '../../world/scenes/places.ts';
import {BAD_LINE, someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

describe('a run from its streams to its end', () => {
  it('stores every sample of the dropped streams once, and leaves no TPU and no message', async () => {
    const world = new World();
    const texts = [
      someLines(7, 'a'),
      `${someLines(3, 'b')}${BAD_LINE}\n${someLines(1, 'c')}`,
      '{"text":"one"}',
    ];
    for (const [index, text] of texts.entries()) world.drop('my-run', index, text);
    await world.deliverAll();
    assert.deepEqual(world.asked(), [`create ${A0}#1`, `create ${A1}#1`, 'create tpu-europe-west4-b-0#1']);
    await world.untilAsleep();
    for (const [index, text] of texts.entries()) await world.assertStoredOnce('my-run', `00${index}`, text);
    const run = await world.run('my-run');
    assert.equal(run?.status, 'completed');
    assert.deepEqual(
      [run?.streams_completed, run?.total_samples_processed, run?.rejected_samples, run?.total_shards],
      [3, 12, 1, 8],
    );
    assert.equal(world.tpus.made.length, 3, 'each slot was created once');
    const manifest = JSON.parse(world.text('activations/my-run/manifest.json'));
    assert.deepEqual([manifest.run, manifest.spec_hash], ['my-run', run?.spec_hash]);
  });

  it('is called default, with the paths of the seeds, for streams without a run', async () => {
    const world = new World();
    world.drop('default', 7, someLines(3));
    await world.untilStoredOnce('default', '007', someLines(3));
    assert.deepEqual(world.objects.names('activations/tpu_7/'), [
      'activations/tpu_7/metadata.json',
      'activations/tpu_7/shard_0001.safetensors',
      'activations/tpu_7/shard_0002.safetensors',
    ]);
    assert.partialDeepStrictEqual(await world.stream('default', '007'), {
      worker_id: 7,
      last_processed_sample_idx: 2,
      total_samples_processed: 3,
      total_shards: 2,
      dataset_path: 'gs://bucket/datasets/stream_007.jsonl',
      model_path: 'Qwen/Qwen2.5-0.5B',
      status: 'completed',
    });
  });

  it('goes on for a further stream after its end, with the next incarnation of the slot', async () => {
    const world = new World();
    world.drop('my-run', 0, someLines(2));
    await world.untilAsleep();
    world.drop('my-run', 1, someLines(3, 'later'));
    await world.deliverAll();
    assert.equal((await world.run('my-run'))?.status, 'active');
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'completed');
    await world.assertStoredOnce('my-run', '001', someLines(3, 'later'));
    assert.deepEqual(world.tpus.made, [`${A0}#1`, `${A0}#2`]);
  });

  it('shares its slots with another run, and both have more streams than slots', async () => {
    const world = new World();
    for (let index = 0; index < 7; index++) world.drop('one', index, someLines(4, `one ${index}`));
    for (let index = 0; index < 3; index++) world.drop('two', index, someLines(4, `two ${index}`));
    await world.untilAsleep(120);
    for (let index = 0; index < 7; index++)
      await world.assertStoredOnce('one', `00${index}`, someLines(4, `one ${index}`));
    for (let index = 0; index < 3; index++)
      await world.assertStoredOnce('two', `00${index}`, someLines(4, `two ${index}`));
    assert.equal(world.tpus.made.length, 4, 'no more TPUs than the pool has slots');
  });

  it('needs fewer TPUs as its streams become fewer, and keeps those at work', async () => {
    const world = new World();
    world.drop('my-run', 0, someLines(40));
    world.drop('my-run', 1, someLines(2));
    await world.until('one TPU less', () => world.tpus.made.length === 2 && world.tpus.nodes.size === 1);
    assert.equal((await world.stream('my-run', '000'))?.status, 'in_progress');
    await world.untilStoredOnce('my-run', '000', someLines(40));
    assert.deepEqual(world.zombies, []);
    assert.equal(world.tpus.made.length, 2);
  });

  it('leaves an attempt for every TPU, with its cause of death and its log', async () => {
    const world = new World();
    world.drop('my-run', 0, someLines(2));
    await world.untilAsleep();
    const [attempt] = await world.store.query(`workers/${A0}/attempts`);
    assert.deepEqual(
      [attempt?.id, attempt?.data.cause, attempt?.data.log],
      ['000001', 'not needed any more', `gs://bucket/logs/${A0}/1.log`],
    );
  });

  it('wakes a tick with its last shard, and with no heartbeat and no other shard', async () => {
    const world = new World();
    world.drop('my-run', 0, someLines(4));
    await world.until('work', () => world.agents.get(A0)?.state === 'working', 9, 1);
    const wakes = () => world.published.filter(({topic}) => topic === 'tick').length;
    const before = wakes();
    for (const [shards, isWoken] of [
      [1, false],
      [2, true],
    ] as const) {
      await world.agent(A0).beat();
      await world.agent(A0).step();
      await world.deliverNext('object');
      const counted = (await world.stream('my-run', '000'))?.total_shards;
      assert.deepEqual([counted, wakes() > before], [shards, isWoken]);
    }
  });

  it('is not changed by events that come twice, late or in another order', async () => {
    const world = new World();
    const name = world.drop('my-run', 0, someLines(5));
    await world.until('work', async () => (await world.stream('my-run', '000'))?.status === 'in_progress');
    const before = await world.describe();
    const dropped = world.published.filter(({data}) => JSON.stringify(data).includes(name));
    world.queue.push(...dropped, ...dropped.toReversed());
    await world.deliverAll();
    assert.equal(await world.describe(), before);
    await world.untilAsleep();
    const done = await world.describe();
    world.queue.push(...world.published);
    await world.untilAsleep();
    assert.equal(await world.describe(), done, 'every message came again after the end');
    assert.deepEqual(world.tpus.made, [`${A0}#1`]);
  });

  it('completes without object events and with one of three messages: ticks make up for the others', async () => {
    const world = new World();
    world.drop('my-run', 0, someLines(5));
    world.drop('my-run', 1, someLines(5));
    const random = seeded(7);
    const deliver = world.deliver.bind(world);
    let lost = 0;
    world.deliver = async (index = 0) => {
      const isLost = world.queue[index]?.topic === 'object' || random() < 2 / 3;
      if (!isLost) return deliver(index);
      lost += world.queue.splice(index, 1).length;
      return true;
    };
    const isDone = async () => (await world.run('my-run'))?.status === 'completed';
    await world.until('the end of the run', isDone, 90);
    assert.ok(lost > 20, `${lost} messages are lost`);
    await world.untilAsleep();
    for (const stream of ['000', '001']) await world.assertStoredOnce('my-run', stream, someLines(5));
    assert.equal((await world.run('my-run'))?.status, 'completed');
  });
});
