import assert from 'node:assert/strict';
import {send} from '../../world/people.ts';
import {aWorldWithAStream, aWorldWithSpec} from '../../world/scenes/one-worker.ts';
import {assertOthersGoOn, rejections} from '../../world/scenes/other-run.ts';
import {ONE_SLOT} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

describe('run.json', () => {
  it('that is bad stops its run by name until it is mended, and no other run', async () => {
    const world = aWorldWithSpec('{"modle": "tiny"}');
    world.drop('my-run', 1, someLines(3, 'b'));
    await world.deliverAll();
    const run = await world.run('my-run');
    assert.equal(run?.status, 'failed');
    assert.match(
      run?.reason ?? '',
      /datasets\/my-run\/run.json is not valid: there is no modle, did you mean `model`\?$/,
    );
    await assertOthersGoOn(world);
    world.objects.put('datasets/my-run/run.json', '{"model": "tiny"}');
    await world.untilStoredOnce('my-run', '000', someLines(3));
    await world.assertStoredOnce('my-run', '001', someLines(3, 'b'));
    const mended = await world.run('my-run');
    assert.deepEqual([mended?.status, mended?.reason, mended?.spec?.model], ['completed', null, 'tiny']);
  });

  it('that is mended changes no budget and no priority that a message has set since', async () => {
    const world = aWorldWithSpec('{"modle": "tiny"}');
    await world.deliverAll();
    await send(world, {action: 'configure', run: 'my-run', budget_usd: 12.5, priority: 7});
    world.objects.put('datasets/my-run/run.json', '{"budget_usd": 500, "priority": 1}');
    await world.deliverAll();
    const {status, budget_usd, priority} = (await world.run('my-run')) ?? {};
    assert.deepEqual([status, budget_usd, priority], ['active', 12.5, 7]);
  });

  it('whose model in the bucket has no such layers fails its run before any lease, until it is mended', async () => {
    const world = new World(ONE_SLOT);
    const spec = {model: 'gs://bucket/models/m', layers: '0-99'};
    world.objects.put('models/m/config.json', '{"model_type": "llama", "num_hidden_layers": 24}');
    for (const name of ['model.safetensors', 'tokenizer.json']) world.objects.put(`models/m/${name}`, '');
    world.objects.put('datasets/my-run/run.json', JSON.stringify(spec));
    world.drop('my-run', 0, someLines(3));
    await world.deliverAll();
    const run = await world.run('my-run');
    assert.equal(run?.status, 'failed');
    assert.match(
      run?.reason ?? '',
      /run.json: gs:\/\/bucket\/models\/m has layers 0 to 23, .* set `layers` within them/,
    );
    world.objects.put('datasets/my-run/run.json', JSON.stringify({...spec, layers: '0-23'}));
    await world.untilStoredOnce('my-run', '000', someLines(3));
  });

  it('whose model is outside of models/, which the control plane cannot read, is left to the first TPU', async () => {
    const world = new World(ONE_SLOT);
    world.objects.put('own/m/config.json', '{"model_type": "llama", "num_hidden_layers": 24}');
    const spec = {model: 'gs://bucket/own/m', layers: '0-99'};
    world.objects.put('datasets/my-run/run.json', JSON.stringify(spec));
    world.drop('my-run', 0, someLines(3));
    await world.deliverAll();
    assert.equal((await world.run('my-run'))?.status, 'active');
  });

  it('that was mended without an event is read when the run is started', async () => {
    const world = aWorldWithSpec('{');
    await world.deliverAll();
    world.objects.put('datasets/my-run/run.json', '{}');
    world.queue.length = 0;
    world.control({action: 'start', run: 'my-run'});
    await world.untilStoredOnce('my-run', '000', someLines(3));
  });

  const bad: {name: string; text: string; says: RegExp}[] = [
    {name: 'no JSON', text: 'model: tiny', says: /is not JSON/},
    {
      name: 'an unknown pool',
      text: '{"pool": "big"}',
      says: /there is no pool "big"; the pools are tpu\. Create one/,
    },
    {name: 'too many bytes', text: ' '.repeat(65 * 1024), says: /the most is 65536/},
    {name: 'half a character', text: '{"model": \u{1F600}}', says: /is not JSON/},
    {
      name: 'a text that is cut within a character',
      text: `{"format": "${'x'.repeat(98)}\u{1F600}"}`,
      says: /format/,
    },
    {name: 'half a character as a key', text: '{"\\ud800": 1}', says: /there is no/},
    {name: 'a key as long as a book', text: `{"${'k'.repeat(60_000)}": 1}`, says: /there is no k.* …$/},
    {
      name: 'a deep nest',
      text: `{"layers": ${'['.repeat(9000)}${']'.repeat(9000)}}`,
      says: /nested deeper than 100/,
    },
  ];
  for (const {name, text, says} of bad)
    it(`with ${name} fails its run with the reason`, async () => {
      const world = aWorldWithSpec(text);
      await world.deliverAll();
      assert.match((await world.run('my-run'))?.reason ?? '', says);
      await assertOthersGoOn(world);
    });

  it('in a pool of slices fails its run with the type that fits', async () => {
    const world = aWorldWithAStream(3, {...ONE_SLOT, GLEANER_ACCELERATOR: 'v6e-16'});
    await world.deliverAll();
    const run = await world.run('my-run');
    assert.equal(run?.status, 'failed');
    assert.match(run?.reason ?? '', /a run uses TPUs of one host, and v6e-16 has 4 hosts .* use 2 × v6e-8/);
  });

  it('is frozen with the first stream: a later one is refused by name', async () => {
    const world = aWorldWithSpec('{"seed": 1}');
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

  it('that changes only priority, budget or affinity is ignored with advice, also after the Store was lost', async () => {
    const world = aWorldWithSpec('{"budget_usd": 5, "priority": 3, "affinity": "fixed"}', 20);
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
      /run.json is ignored: run "my-run" keeps its priority, affinity, budget_usd; the message "configure"/;
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

  it('that says the same in other words is no change', async () => {
    const world = aWorldWithAStream(3);
    await world.deliverAll();
    world.objects.put('datasets/my-run/run.json', '{"seed": 42, "dtype": "bf16"}');
    await world.untilAsleep();
    assert.equal(await rejections(world), '');
  });
});
