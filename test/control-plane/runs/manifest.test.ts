import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {completeSpec} from '../../../shared/contracts/spec/spec.ts';
import {aConfig} from '../../world/builders.ts';
import {ONE_SLOT} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

type Frozen = {name: string; spec: {seed: number}; spec_hash: string};
const {frozen}: {frozen: Frozen[]} = JSON.parse(
  readFileSync(new URL('../../fixtures/spec-cases.json', import.meta.url), 'utf8'),
);

describe('a manifest', () => {
  const MANIFEST = 'activations/my-run/manifest.json';
  const {placement} = completeSpec({}, aConfig());

  for (const {name, spec, spec_hash} of frozen)
    it(`of a spec ${name} keeps its hash and its text`, async () => {
      const world = new World(ONE_SLOT);
      world.objects.put(
        MANIFEST,
        JSON.stringify({schema: 'gleaner/1', run: 'my-run', spec, spec_hash, placement}, null, 2),
      );
      world.drop('my-run', 0, someLines(5));
      await world.untilAsleep();
      const run = await world.run('my-run');
      assert.deepEqual([run?.status, run?.spec, run?.spec_hash], ['completed', spec, spec_hash]);
      for (const object of await world.objects.list('activations/my-run/tpu_0/shard_'))
        assert.equal(object.metadata.spec_hash, spec_hash);
      const {result, ...rest} = JSON.parse(world.text(MANIFEST));
      assert.deepEqual(rest, {schema: 'gleaner/1', run: 'my-run', spec, spec_hash, placement});
      assert.equal(result.streams, 1);
    });

  it('with fewer keys than this release knows equals a run.json with their defaults', async () => {
    const world = new World(ONE_SLOT);
    const {spec, spec_hash} = frozen[0] ?? assert.fail();
    world.objects.put(
      MANIFEST,
      JSON.stringify({schema: 'gleaner/1', run: 'my-run', spec, spec_hash, placement}),
    );
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
    it(`${name} fails its run with the reason, and is left unchanged`, async () => {
      const world = new World(ONE_SLOT);
      const text = JSON.stringify({schema: 'gleaner/1', run: 'my-run', placement, ...old, ...change});
      world.objects.put(MANIFEST, text);
      world.drop('my-run', 0, someLines(5));
      await world.deliverAll();
      assert.match((await world.run('my-run'))?.reason ?? '', says);
      assert.equal(world.text(MANIFEST), text);
    });
});
