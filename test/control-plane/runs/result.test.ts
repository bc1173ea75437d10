import assert from 'node:assert/strict';
import {hash} from 'node:crypto';
import {specHash} from '../../../shared/contracts/spec/spec.ts';
import {readManifest} from '../../../shared/control-plane/runs/run-manifest.ts';
import {metadataObject, modelLockObject} from '../../../shared/domain/names.ts';
import {aStats} from '../../world/builders.ts';
import {aStoredWorld, MANIFEST, resultIn, TEXTS} from '../../world/scenes/stored-run.ts';
import {metadataOf, someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

describe('the manifest of a run that is complete', () => {
  it('counts what is stored: streams, samples, statistics, model and versions', async () => {
    const world = await aStoredWorld();
    world.objects.put(modelLockObject('my-run'), '{}');
    assert.equal(resultIn(world), undefined, 'not before the end');
    await world.untilAsleep();
    const run = await world.run('my-run');
    assert.equal(run?.status, 'completed');
    const {model, stats, digest, ...result} = resultIn(world) ?? assert.fail('there is no result');
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
      upload: {bytes: 0, seconds: 0, bound_seconds: 0},
    });
    assert.equal(model?.fingerprint, 'f'.repeat(16));
    const digestOf = (sums: [string, string][]) =>
      sums.reduce((before, [sum, name]) => hash('sha256', `${before}${sum}  ${name}\n`), '');
    const shardsOf = (stream: string) =>
      world.objects
        .names(`activations/my-run/${stream}/`)
        .sort((a, b) => Number(a.endsWith('.json')) - Number(b.endsWith('.json')))
        .map((name): [string, string] => [hash('sha256', world.text(name)), name.split('/')[3] ?? '']);
    const streams = ['tpu_0', 'tpu_1'].map((name): [string, string] => [digestOf(shardsOf(name)), name]);
    const {result: stated, ...manifest} = JSON.parse(world.text(MANIFEST));
    const own = specHash({...manifest, result: {...stated, digest: undefined}});
    const models = [hash('sha256', world.text(modelLockObject('my-run'))), 'model.json'] as [string, string];
    assert.equal(digest, digestOf([...streams, models, [own, 'manifest.json']]));
    const [a, b] = TEXTS.map(
      text => metadataOf({run: 'my-run', stream: '000', spec_hash: ''}, text).total_rows,
    );
    const mean = (5 * (a ?? 0) + 3 * (b ?? 0)) / run.total_tokens;
    const max_abs = Math.max(a ?? 0, b ?? 0);
    assert.deepEqual(stats['resid_post.0'], aStats({mean: Number(mean.toPrecision(7)), norm: 2, max_abs}));
  });

  it('keeps the frozen spec, for functions and readers', async () => {
    const world = await aStoredWorld();
    const before = JSON.parse(world.text(MANIFEST));
    await world.untilAsleep();
    const {result, ...after} = JSON.parse(world.text(MANIFEST));
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

  it('is written once, also when every message comes again and the run is started again', async () => {
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

  it('counts a stream that came after the end, once it is complete too', async () => {
    const world = await aStoredWorld();
    await world.untilAsleep();
    world.drop('my-run', 7, someLines(4, 'late'));
    await world.deliverAll();
    assert.equal(resultIn(world)?.streams, 2);
    await world.untilAsleep();
    const {streams, samples} = resultIn(world) ?? {};
    assert.deepEqual([streams, samples], [3, 12]);
  });

  const spoilt: {name: string; content: (of: object) => string | undefined; says: RegExp}[] = [
    {name: 'is not there', content: () => undefined, says: /^it is missing$/},
    {name: 'is no JSON', content: () => '{', says: /^it is not JSON/},
    {
      name: 'holds NaN for a number',
      content: of => JSON.stringify(of).replace('"norm":2', '"norm":NaN'),
      says: /JSON/,
    },
    {name: 'lacks a field', content: of => JSON.stringify({...of, stats: undefined}), says: /stats/},
    {
      name: 'is of another stream',
      content: of => JSON.stringify({...of, worker_id: 9}),
      says: /to another stream/,
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
    it(`names a stream whose metadata.json ${name}, and the run is complete`, async () => {
      const world = await aStoredWorld();
      const object = metadataObject('my-run', '000');
      const text = content(JSON.parse(world.text(object)));
      await world.objects.delete(object);
      if (text !== undefined) world.objects.put(object, text);
      await world.untilAsleep();
      assert.equal((await world.run('my-run'))?.status, 'completed');
      const {streams, samples, unread, stats} = resultIn(world) ?? {};
      assert.deepEqual([streams, samples, Object.keys(unread ?? {})], [2, 8, ['000']]);
      assert.match(unread?.['000'] ?? '', says);
      assert.equal(stats?.['resid_post.0']?.mean, 3, 'the mean of the other stream alone');
    });

  it('includes a stream whose metadata.json is large, because it has very many shards', async () => {
    const world = await aStoredWorld();
    const object = metadataObject('my-run', '000');
    const shards = Array.from({length: 20_000}, (_, n) => ({
      filename: `shard_${n}`,
      stats: {a: 1, b: 2, c: 3},
    }));
    world.objects.put(object, JSON.stringify({...JSON.parse(world.text(object)), shards}));
    assert.ok(world.text(object).length > 1024 * 1024);
    await world.untilAsleep();
    assert.deepEqual(resultIn(world)?.unread, {});
  });

  const lost: {name: string; spoil: (world: World) => Promise<unknown>}[] = [
    {name: 'was deleted', spoil: async world => world.objects.delete(MANIFEST)},
    {name: 'was overwritten', spoil: async world => world.objects.put(MANIFEST, 'my notes')},
    {
      name: 'has become larger than any manifest',
      spoil: async world => world.objects.put(MANIFEST, ' '.repeat(9 * 1024 * 1024)),
    },
  ];
  for (const {name, spoil} of lost)
    it(`is written again from the document of the run when it ${name} before the end`, async () => {
      const world = await aStoredWorld();
      const before = JSON.parse(world.text(MANIFEST));
      await spoil(world);
      await world.untilAsleep();
      const {result, ...after} = JSON.parse(world.text(MANIFEST));
      assert.deepEqual(after, before);
      assert.equal(result.streams, 2);
    });
});

describe('an object beside the shards of a run', () => {
  for (const name of [
    MANIFEST,
    'activations/my-run/model.json',
    metadataObject('my-run', '000'),
    'activations/model.json',
  ])
    it(`changes nothing: ${name}`, async () => {
      const world = new World();
      world.objects.put(name, '{}');
      await world.deliverAll();
      const topics = world.published.map(({topic}) => topic);
      assert.deepEqual([await world.timeline(), world.logs, topics], [[], [], ['object']]);
      assert.ok(await world.isAsleep());
    });
});
