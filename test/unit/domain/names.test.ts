import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  DEFAULT_RUN,
  datasetPrefix,
  isRunId,
  isZone,
  logObject,
  manifestObject,
  outputPrefix,
  parseDatasetObject,
  parseOutputObject,
  parseWorkerName,
  paths,
  regionOf,
  shardListingStart,
  shardObject,
  specObject,
  streamId,
  streamIndexOf,
  streamObject,
  workerName,
} from '../../../shared/domain/names.ts';

const runs = fc.oneof(fc.constant(DEFAULT_RUN), fc.stringMatching(/^[a-z][a-z0-9-]{0,38}$/));
const indices = fc.oneof(fc.nat(1100), fc.nat(999_999_999));
const shardNumbers = fc.oneof(fc.integer({min: 1, max: 12_000}), fc.integer({min: 1, max: 999_999_999}));
const formats = fc.constantFrom('safetensors' as const, 'pkl.gz' as const);
const zones = fc.stringMatching(/^[a-z]{1,12}-[a-z]{1,9}\d{1,2}-(ai\d{1,2})?[a-z]$/);

/** Names that nearly fit, and hostile names. */
const hostile = fc.oneof(
  fc.string(),
  fc.string({unit: 'binary'}),
  fc.stringMatching(/^(datasets|activations)(\/[a-z0-9_.-]{0,12}){0,4}$/),
  fc
    .tuple(runs, fc.string({maxLength: 4}), fc.string({maxLength: 4}))
    .map(([run, a, b]) => `datasets/${run}/${a}stream_007.jsonl${b}`),
  fc
    .tuple(runs, fc.string({maxLength: 4}), fc.string({maxLength: 4}))
    .map(([run, a, b]) => `activations/${run}/tpu_7${a}/shard_0001${b}.safetensors`),
);

describe('names', () => {
  it('the name of a stream object parses back', () => {
    fc.assert(
      fc.property(runs, indices, fc.boolean(), (run, index, gzip) => {
        const name = streamObject(run, streamId(index), gzip);
        assert.deepEqual(parseDatasetObject(name), {kind: 'stream', run, stream: streamId(index), gzip});
        assert.equal(streamIndexOf(streamId(index)), index);
        assert.ok(name.startsWith(datasetPrefix(run)));
      }),
    );
  });

  it('the name of a run.json parses back', () => {
    fc.assert(
      fc.property(runs, run => {
        assert.deepEqual(parseDatasetObject(specObject(run)), {kind: 'spec', run});
        assert.ok(specObject(run).startsWith(datasetPrefix(run)));
      }),
    );
  });

  it('the name of a shard object parses back', () => {
    fc.assert(
      fc.property(runs, indices, shardNumbers, formats, (run, index, shard, format) => {
        const stream = streamId(index);
        const name = shardObject(run, stream, shard, format);
        assert.deepEqual(parseOutputObject(name), {kind: 'shard', run, stream, shard, format});
        assert.ok(name.startsWith(outputPrefix(run, stream)));
      }),
    );
  });

  it('a worker name parses back to its slot', () => {
    const zoneLike = fc.stringMatching(/^[a-z]{2}-[a-z]{1,4}\d-(ai\d)?[a-z](-\d)?$/);
    const pools = fc.oneof(fc.stringMatching(/^[a-z][a-z0-9-]{0,20}$/), zoneLike);
    fc.assert(
      fc.property(pools, zones, fc.nat(99_999), (pool, zone, slot) => {
        assert.deepEqual(parseWorkerName(workerName({pool, zone, slot})), {pool, zone, slot});
      }),
    );
  });

  it('a zone is its region and a letter', () => {
    fc.assert(
      fc.property(zones, zone => {
        assert.ok(isZone(zone) && zone.startsWith(`${regionOf(zone)}-`));
        assert.match(regionOf(zone), /^[a-z]+-[a-z]+\d+$/);
      }),
    );
    assert.equal(regionOf('us-central1-ai1a'), 'us-central1');
  });

  for (const text of 'us-central1 us-central1-ai us-central1-ai1 us-central1-a1 us-central1-xi1a'.split(' '))
    it(`"${text}" is no zone`, () => assert.equal(isZone(text), false));

  it('a hostile name parses to nothing or exactly to itself', () => {
    fc.assert(
      fc.property(hostile, name => {
        const dataset = parseDatasetObject(name);
        if (dataset.kind === 'stream')
          assert.equal(streamObject(dataset.run, dataset.stream, dataset.gzip), name);
        if (dataset.kind === 'spec') assert.equal(specObject(dataset.run), name);
        if (dataset.kind === 'unknown') assert.ok(dataset.reason.length > 20);
        const shard = parseOutputObject(name);
        if (shard) assert.equal(shardObject(shard.run, shard.stream, shard.shard, shard.format), name);
        const slot = parseWorkerName(name);
        if (slot) assert.equal(workerName(slot), name);
      }),
      {numRuns: 2000},
    );
  });

  it('two streams share no folder, and no manifest lies in the folder of a stream', () => {
    const stream = fc.tuple(runs, indices);
    fc.assert(
      fc.property(stream, stream, ([a, i], [b, j]) => {
        const [one, other] = [outputPrefix(a, streamId(i)), outputPrefix(b, streamId(j))];
        if (a === b && i === j) return;
        assert.ok(!one.startsWith(other) && !other.startsWith(one));
        assert.ok(!manifestObject(a).startsWith(other));
      }),
    );
  });

  it('a listing from a shard on contains every later shard', () => {
    fc.assert(
      fc.property(runs, indices, shardNumbers, fc.nat(12_000), formats, (run, index, from, more, format) => {
        const stream = streamId(index);
        const start = shardListingStart(run, stream, from);
        assert.ok(start <= shardObject(run, stream, from + more, format));
      }),
      {
        examples: [
          ['default', 7, 999, 1, 'pkl.gz'],
          ['default', 7, 2, 9998, 'pkl.gz'],
          ['default', 7, 1000, 9000, 'safetensors'],
          ['default', 7, 9999, 1, 'safetensors'],
          ['default', 7, 10_000, 90_000, 'safetensors'],
        ],
      },
    );
  });

  it('a listing from a shard on omits earlier shards', () => {
    assert.ok(shardListingStart('my-run', '007', 42) > shardObject('my-run', '007', 41, 'safetensors'));
    assert.ok(shardListingStart('my-run', '007', 5000) > shardObject('my-run', '007', 999, 'safetensors'));
  });

  const datasets = [
    {name: 'stream_007.jsonl', says: 'streams are named'},
    {name: 'datasets', says: 'streams are named'},
    {name: 'datasets/', says: 'is no stream'},
    {name: 'datasets/my-run/', says: 'is no stream'},
    {name: 'datasets//stream_007.jsonl', says: 'is no run id'},
    {name: 'datasets/my-run/deep/stream_007.jsonl', says: 'streams are named'},
    {name: 'datasets/default/stream_007.jsonl', says: 'lie directly under datasets/'},
    {name: 'datasets/My-Run/stream_007.jsonl', says: '"My-Run" is no run id'},
    {name: 'datasets/my_run/stream_007.jsonl', says: '"my_run" is no run id'},
    {name: 'datasets/7run/stream_007.jsonl', says: '"7run" is no run id'},
    {name: `datasets/${'r'.repeat(40)}/stream_007.jsonl`, says: 'is no run id'},
    {name: 'datasets/../stream_007.jsonl', says: 'is no run id'},
    {name: 'datasets/my-run/stream_7.jsonl', says: '"stream_7.jsonl" is no stream'},
    {name: 'datasets/my-run/stream_0007.jsonl', says: 'no further zeros'},
    {name: 'datasets/my-run/stream_0123456789.jsonl', says: 'is no stream'},
    {name: 'datasets/my-run/stream_1234567890.jsonl', says: 'is no stream'},
    {name: 'datasets/my-run/stream_007.json', says: 'is no stream'},
    {name: 'datasets/my-run/stream_007.jsonl.zst', says: 'is no stream'},
    {name: 'datasets/my-run/Stream_007.jsonl', says: 'is no stream'},
    {name: 'datasets/my-run/stream_007.jsonl\n', says: 'is no stream'},
    {name: 'datasets/my-run/stream_٠٠٧.jsonl', says: 'is no stream'},
    {name: 'datasets/my-run/run.json.bak', says: 'is no stream'},
  ];
  for (const {name, says} of datasets)
    it(`${JSON.stringify(name)} is no stream, and has a reason`, () => {
      const parsed = parseDatasetObject(name);
      assert.ok(parsed.kind === 'unknown' && parsed.reason.includes(says), JSON.stringify(parsed));
    });

  const outputs = [
    'activations/my-run/tpu_7/metadata.json',
    'activations/my-run/tpu_7/rejects.jsonl',
    'activations/my-run/manifest.json',
    'activations/manifest.json',
    'activations/my-run/tpu_7/shard_0000.safetensors',
    'activations/my-run/tpu_7/shard_01.safetensors',
    'activations/my-run/tpu_7/shard_00001.safetensors',
    'activations/my-run/tpu_07/shard_0001.safetensors',
    'activations/my-run/tpu_7/shard_0001.bin',
    'activations/my-run/tpu_7/shard_0001.safetensors.tmp',
    'activations/my-run/tpu_7/old/shard_0001.safetensors',
    'activations/default/tpu_7/shard_0001.safetensors',
    'activations/my_run/tpu_7/shard_0001.safetensors',
    'datasets/my-run/tpu_7/shard_0001.safetensors',
    'activations/tpu_7/',
    '',
  ];
  for (const name of outputs)
    it(`"${name}" is no shard`, () => assert.equal(parseOutputObject(name), undefined));

  const workers = [
    'tpu-us-central1-a',
    'tpu-us-central1-a-',
    'tpu-us-central1-a-01',
    'tpu-us-central1-a-x',
    'us-central1-a-0',
    '-us-central1-a-0',
    'Tpu-us-central1-a-0',
    'tpu/us-central1-a-0',
    'tpu-us-central-a-0',
    'tpu-us-central1-a-100000',
    'tpu-us-central1-ai1-0',
    `tpu-${'z'.repeat(60)}-central1-a-0`,
  ];
  for (const name of workers)
    it(`"${name}" is no worker`, () => assert.equal(parseWorkerName(name), undefined));

  it('names are those of the seeds', () => {
    assert.equal(workerName({pool: 'tpu', zone: 'us-central1-a', slot: 0}), 'tpu-us-central1-a-0');
    assert.equal(workerName({pool: 'tpu', zone: 'europe-west4-a', slot: 1}), 'tpu-europe-west4-a-1');
    assert.equal(streamObject('default', '007'), 'datasets/stream_007.jsonl');
    assert.equal(shardObject('default', '007', 1, 'pkl.gz'), 'activations/tpu_7/shard_0001.pkl.gz');
    assert.equal(logObject('tpu-us-central1-a-0', 3), 'logs/tpu-us-central1-a-0/3.log');
  });

  it('a run id has 1 to 39 characters', () => {
    assert.ok(isRunId('r') && isRunId('r'.repeat(39)) && !isRunId('') && !isRunId('r'.repeat(40)));
  });

  it('document paths have an even number of segments, and collection paths an odd number', () => {
    const documents = [
      paths.run('r'),
      paths.stream('r', '007'),
      paths.shard('r', '007', 1),
      paths.pool('tpu'),
      paths.worker('w'),
      paths.attempt('w', 1),
      paths.control('1'),
      paths.event('1'),
    ];
    for (const path of documents) assert.equal(path.split('/').length % 2, 0, path);
    for (const path of [paths.streams('r'), paths.shards('r', '007')])
      assert.equal(path.split('/').length % 2, 1, path);
  });
});
