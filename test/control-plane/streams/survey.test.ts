/** Comparisons of documents with the bucket that change nothing: `gleaner rebuild --dry-run`. */
import assert from 'node:assert/strict';
import {goneStreams, runsAnywhere, surveyRun} from '../../../cli/run/survey.ts';
import {
  addToTally,
  describeTally,
  NOTHING_FOUND,
} from '../../../shared/control-plane/streams/compare-streams.ts';
import {shardObject} from '../../../shared/domain/names.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {aDoneWorld, documentsOf} from '../../world/scenes/finished-runs.ts';
import {ONE_SLOT} from '../../world/scenes/places.ts';
import {putDocuments} from '../../world/scenes/put-documents.ts';
import {World} from '../../world/world.ts';

const STREAM = 'runs/my-run/streams/001';

describe('a survey of the bucket', () => {
  it('names the missing shard and counts the shards behind it', async () => {
    const world = await aDoneWorld();
    await world.objects.delete('activations/my-run/tpu_0/shard_0002.safetensors');
    const survey = await surveyRun(world.deps, 'my-run');
    const [first] = survey;
    assert.deepEqual(
      [first?.finding, first?.stored_shards, first?.why],
      ['different', 9, 'shard 2 is missing; 9 of 10 there'],
    );
    assert.match(
      describeTally('my-run', addToTally(NOTHING_FOUND, survey)),
      /^my-run: 2 streams with 12 shards in the bucket; 1 diff/,
    );
  });

  for (const [missing, says] of [
    [[10], 'shard 10 is missing; 9 of 10 there'],
    [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 'shard 1 is missing; 0 of 10 there'],
  ] as const)
    it(`says "${says}"`, async () => {
      const world = await aDoneWorld();
      for (const shard of missing)
        await world.objects.delete(shardObject('my-run', '000', shard, 'safetensors'));
      const [first] = await surveyRun(world.deps, 'my-run');
      assert.deepEqual([first?.finding, first?.why], ['different', says]);
    });

  for (const [name, forget] of [
    ['its documents', async () => {}],
    ['its manifest and shards', (world: World) => world.wipe()],
  ] as const)
    it(`names each stream whose object is gone, and counts its shards, from ${name}`, async () => {
      const world = await aDoneWorld();
      await world.objects.delete('datasets/my-run/stream_000.jsonl');
      await world.objects.delete('datasets/my-run/stream_001.jsonl');
      await forget(world);
      assert.deepEqual(await runsAnywhere(world.deps), ['my-run', 'other']);
      const gone = await goneStreams(world.deps, 'my-run', []);
      assert.deepEqual(
        gone.map(({finding, why, stored_shards}) => [finding, why, stored_shards]),
        [
          ['gone', 'its stream object datasets/my-run/stream_000.jsonl is gone', 10],
          ['gone', 'its stream object datasets/my-run/stream_001.jsonl is gone', 3],
        ],
      );
    });

  it('says which shard of a stream is missing whose object is gone', async () => {
    const world = await aDoneWorld();
    await world.objects.delete('datasets/my-run/stream_000.jsonl');
    const shards = await world.objects.list('activations/my-run/tpu_0/shard_');
    for (const {name} of shards.slice(1, 2)) await world.objects.delete(name);
    const [gone] = await goneStreams(world.deps, 'my-run', []);
    assert.match(gone?.why ?? '', /is gone; shard 2 is missing, 9 of 10 there$/);
  });

  it('finds the run of every output from one name each', async () => {
    const world = new World(ONE_SLOT);
    for (const name of [
      'tpu_0/shard_0001.safetensors',
      'a/tpu_0/x',
      'a/tpu_1/x',
      'tpua/manifest.json',
      'z/x/y',
    ])
      world.objects.put(`activations/${name}`, 'x');
    world.objects.put('activations/manifest.json', 'x');
    assert.deepEqual(await runsAnywhere(world.deps), ['a', 'default', 'tpua', 'z']);
  });

  const different: {name: string; path: string; changes: Document; says: RegExp}[] = [
    {name: 'an epoch below its shards', path: STREAM, changes: {epoch: 0}, says: /^its epoch is 0, and 1 is/},
    {name: 'other tokens', path: STREAM, changes: {total_tokens: 1}, says: /^total_tokens is 1, and \d+ in/},
    {
      name: 'a shard too many',
      path: `${STREAM}/shards/0099`,
      changes: {},
      says: /^4 shards have a document$/,
    },
  ];
  for (const {name, path, changes, says} of different)
    it(`finds the document of a stream with ${name}`, async () => {
      const world = await aDoneWorld();
      await putDocuments(world.store, {[path]: {...(await world.store.get(path)), ...changes}});
      const [first, second] = await surveyRun(world.deps, 'my-run');
      assert.deepEqual([first?.finding, second?.finding], ['right', 'different']);
      assert.match(second?.why ?? '', says);
    });

  it('writes nothing', async () => {
    const world = await aDoneWorld();
    await world.store.transaction(async tx => tx.delete('runs/my-run/streams/001'));
    const before = await documentsOf(world);
    const survey = await surveyRun(world.deps, 'my-run');
    assert.deepEqual(
      survey.map(({stream, finding, stored_shards, known_shards}) => [
        stream,
        finding,
        stored_shards,
        known_shards,
      ]),
      [
        ['000', 'right', 10, 10],
        ['001', 'missing', 3, 0],
      ],
    );
    assert.deepEqual([await documentsOf(world), world.queue], [before, []]);
  });
});
