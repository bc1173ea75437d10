import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {someLines} from '../agent.ts';
import {World} from '../world.ts';

type Frozen = {name: string; spec: {seed: number}; spec_hash: string};
const {frozen}: {frozen: Frozen[]} = JSON.parse(
  readFileSync(new URL('../fixtures/spec-cases.json', import.meta.url), 'utf8'),
);

const A0 = 'tpu-us-central1-a-0';
const ONE_SLOT = {GLEANER_ZONES: 'us-central1-a', GLEANER_WORKERS_PER_ZONE: '1'};

/** A world whose database was lost when some of my-run's two streams was stored. */
async function aWipedWorld(): Promise<World> {
  const world = new World(ONE_SLOT);
  world.objects.put('datasets/my-run/run.json', '{"seed": 7, "priority": 3}');
  world.drop('my-run', 0, someLines(20));
  world.drop('my-run', 1, someLines(4, 'b'));
  await world.until(
    'some shards',
    async () => ((await world.stream('my-run', '000'))?.total_shards ?? 0) >= 3,
    20,
    1,
  );
  await world.wipe();
  return world;
}

describe('a database that was lost', () => {
  it('is made again from the bucket by one message, and no stored shard is made again', async () => {
    const world = await aWipedWorld();
    const stored = await world.objects.list('activations/my-run/tpu_0/');
    assert.ok(stored.length >= 3 && stored.length < 10);
    world.control({action: 'start', run: 'my-run'});
    await world.deliverAll();
    const stream = await world.stream('my-run', '000');
    assert.deepEqual([stream?.total_shards, stream?.status], [stored.length, 'pending']);
    const run = await world.run('my-run');
    assert.deepEqual([run?.spec?.seed, run?.priority], [7, 3]);
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
    await world.assertStoredOnce('my-run', '001', someLines(4, 'b'));
    const after = await world.objects.list('activations/my-run/tpu_0/shard_');
    assert.deepEqual(after.slice(0, stored.length), stored);
  });

  it('is made again by the tick alone where one is still ticking', async () => {
    const world = await aWipedWorld();
    assert.ok(world.tickerOn);
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
    await world.assertStoredOnce('my-run', '001', someLines(4, 'b'));
  });

  it('of a run that was complete costs no TPU', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(5));
    await world.untilAsleep();
    const made = world.tpus.made.length;
    await world.wipe();
    world.control({action: 'start', run: 'my-run'});
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(5));
    assert.equal((await world.run('my-run'))?.status, 'completed');
    assert.equal(world.tpus.made.length, made);
  });

  it('of a run that was complete is also made again by dropping its stream again', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(5));
    await world.untilAsleep();
    await world.wipe();
    world.drop('my-run', 0, someLines(5));
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'completed', 'it does not stay active for ever');
    await world.assertStoredOnce('my-run', '000', someLines(5));
  });

  it('does not unfreeze the spec: the manifest counts, whatever run.json says by now', async () => {
    for (const text of ['{"seed": 8}', '{"modle": "x"}', '{']) {
      const world = await aWipedWorld();
      world.objects.put('datasets/my-run/run.json', text);
      world.control({action: 'start', run: 'my-run'});
      await world.untilAsleep();
      assert.equal((await world.run('my-run'))?.spec?.seed, 7);
      await world.assertStoredOnce('my-run', '000', someLines(20));
    }
  });

  it('leaves no TPU behind that nobody knows, and the workers of that time change nothing', async () => {
    const world = await aWipedWorld();
    const old = world.agent(A0);
    const {lease} = old;
    const from = {worker: A0, incarnation: old.incarnation, host: 0};
    assert.equal(
      (await world.api({action: 'heartbeat', ...from, phase: 'running', lease, progress: null})).body.action,
      'exit',
    );
    assert.equal(
      (await world.api({action: 'release', ...from, lease, outcome: 'failed', failure: null})).status,
      409,
    );
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
    assert.equal(new Set(world.tpus.made).size, world.tpus.made.length, 'no number was used twice');
  });

  it('does not mix contents: a stream that was overwritten meanwhile fails by the shards it has', async () => {
    const world = await aWipedWorld();
    world.drop('my-run', 0, someLines(20, 'new'));
    await world.untilAsleep();
    const stream = await world.stream('my-run', '000');
    assert.equal(stream?.status, 'failed');
    assert.match(stream?.last_error ?? '', /shard_0001.safetensors was made from other content/);
  });
});

describe('a manifest', () => {
  const MANIFEST = 'activations/my-run/manifest.json';

  for (const {name, spec, spec_hash} of frozen)
    it(`of a spec frozen ${name} is taken with its own hash, and stays as it is`, async () => {
      const world = new World(ONE_SLOT);
      world.objects.put(
        MANIFEST,
        JSON.stringify({schema: 'gleaner/1', run: 'my-run', spec, spec_hash}, null, 2),
      );
      world.drop('my-run', 0, someLines(5));
      await world.untilAsleep();
      const run = await world.run('my-run');
      assert.deepEqual([run?.status, run?.spec, run?.spec_hash], ['completed', spec, spec_hash]);
      for (const object of await world.objects.list('activations/my-run/tpu_0/shard_'))
        assert.equal(object.metadata.spec_hash, spec_hash);
      const {result, ...rest} = JSON.parse(world.objects.text(MANIFEST));
      assert.deepEqual(rest, {schema: 'gleaner/1', run: 'my-run', spec, spec_hash});
      assert.equal(result.streams, 1);
    });

  it('of an earlier release says the same as a run.json that this release completes', async () => {
    const world = new World(ONE_SLOT);
    const {spec, spec_hash} = frozen[0] ?? assert.fail();
    world.objects.put(MANIFEST, JSON.stringify({schema: 'gleaner/1', run: 'my-run', spec, spec_hash}));
    world.drop('my-run', 0, someLines(5));
    world.objects.put('datasets/my-run/run.json', '{"tokens": "all", "keep": []}');
    await world.deliverAll();
    assert.deepEqual(await world.timeline('rejected'), []);
    world.objects.put('datasets/my-run/run.json', '{"tokens": "last"}');
    await world.deliverAll();
    assert.match((await world.timeline('rejected')).join(), /was frozen/);
  });

  const [old] = frozen;
  const foreign: {name: string; change: object; says: RegExp}[] = [
    {name: 'of another run', change: {run: 'other'}, says: /is not the manifest of run "my-run"/},
    {
      name: 'of a spec that was changed',
      change: {spec: {...old?.spec, seed: 8}},
      says: /is not the manifest/,
    },
    {name: 'of no spec', change: {spec: 'all of it'}, says: /manifest.json is not valid: spec/},
    {
      name: 'with a key of a later release',
      change: {
        spec: {heads: [0]},
        spec_hash: '08d46a9174ae3577cd76264bd21faecf6da0c2c7b725fa4edf3ec9129d9281bc',
      },
      says: /there is no heads/,
    },
  ];
  for (const {name, change, says} of foreign)
    it(`${name} stops its run by name, and is left as it is`, async () => {
      const world = new World(ONE_SLOT);
      const text = JSON.stringify({schema: 'gleaner/1', run: 'my-run', ...old, ...change});
      world.objects.put(MANIFEST, text);
      world.drop('my-run', 0, someLines(5));
      await world.deliverAll();
      assert.match((await world.run('my-run'))?.reason ?? '', says);
      assert.equal(world.objects.text(MANIFEST), text);
    });
});
