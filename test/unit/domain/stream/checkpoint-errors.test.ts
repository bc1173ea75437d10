import assert from 'node:assert/strict';
import fc from 'fast-check';
import type {Shard} from '../../../../shared/domain/records/shard.ts';
import {aShard, CRC, SPEC_HASH} from '../../../world/builders.ts';
import {fold, progressOf, wholeStreams} from './checkpoint-cases.ts';

describe('errors of a checkpoint', () => {
  const other = 'b'.repeat(64);
  const errors: {name: string; given: Shard[]; says: string[]}[] = [
    {
      name: 'a sample in two shards',
      given: [aShard(1), aShard(2, {first_sample: 9, last_sample: 18})],
      says: ['tpu_7/shard_0001.safetensors', 'tpu_7/shard_0002.safetensors', 'sample 9'],
    },
    {
      name: 'a sample between two shards',
      given: [aShard(1), aShard(2, {first_sample: 11, last_sample: 20})],
      says: ['tpu_7/shard_0001.safetensors', 'tpu_7/shard_0002.safetensors', 'sample 11'],
    },
    {
      name: 'a first shard that does not start at sample 0',
      given: [aShard(1, {first_sample: 5, last_sample: 14})],
      says: ['tpu_7/shard_0001.safetensors', 'starts at sample 5'],
    },
    {
      name: 'one number in two formats',
      given: [aShard(1), aShard(1, {object: 'activations/my-run/tpu_7/shard_0001.pkl.gz'})],
      says: ['shard_0001.pkl.gz', 'another format than safetensors'],
    },
    {
      name: 'one number in two formats after a gap',
      given: [aShard(5), aShard(5, {object: 'activations/my-run/tpu_7/shard_0005.pkl.gz'})],
      says: ['shard_0005.pkl.gz', 'another format than safetensors'],
    },
    {
      name: 'another spec',
      given: [aShard(1), aShard(2, {spec_hash: other})],
      says: ['shard_0002.safetensors', other.slice(0, 12), SPEC_HASH.slice(0, 12)],
    },
    {
      name: 'another spec after a gap',
      given: [aShard(3, {spec_hash: other})],
      says: ['shard_0003.safetensors', other.slice(0, 12)],
    },
    {
      name: 'another content of the stream',
      given: [aShard(1, {stream_crc32c: 'BBBBBB=='})],
      says: ['shard_0001.safetensors', 'BBBBBB==', CRC],
    },
    {
      name: 'a shard that counts more samples than it covers',
      given: [aShard(1, {samples: 10, rejected: 1})],
      says: ['shard_0001.safetensors', 'covers 10 samples', '10 stored', '1 rejected'],
    },
    {
      name: 'a shard without samples',
      given: [aShard(1, {first_sample: 0, last_sample: -1, samples: 0, rejected: 0})],
      says: ['shard_0001.safetensors', 'covers 0 samples'],
    },
    {
      name: 'a shard that ends before it begins',
      given: [aShard(1), aShard(2, {last_sample: 3, samples: 0, rejected: 0})],
      says: ['shard_0002.safetensors'],
    },
    {
      name: 'a shard right after the final shard',
      given: [aShard(1), aShard(2, {final: true}), aShard(3)],
      says: ['shard_0003.safetensors', 'shard_0002.safetensors', 'the last'],
    },
    {
      name: 'a second final shard',
      given: [aShard(1, {final: true}), aShard(2, {final: true})],
      says: ['shard_0002.safetensors', 'shard_0001.safetensors', 'the last'],
    },
    {
      name: 'a shard long after the final shard',
      given: [aShard(1, {final: true}), aShard(9)],
      says: ['shard_0009.safetensors', 'shard_0001.safetensors', 'the last'],
    },
  ];
  for (const {name, given, says} of errors) {
    it(`${name} is an error that names the shards`, () => {
      const {reason} = fold(given).unfit[0] ?? assert.fail();
      for (const word of says) assert.ok(reason.includes(word), `"${word}" in: ${reason}`);
    });
  }

  it('leaves the place of a shard that does not fit to the one that does', () => {
    const foreign = aShard(2, {spec_hash: other});
    const {counted, unfit} = fold([aShard(1), foreign, aShard(2, {final: true})]);
    assert.deepEqual([counted.length, unfit.length], [2, 1]);
  });

  it('a shard after a counted final shard is an error', () => {
    const finished = progressOf(fold([aShard(1, {final: true})]));
    for (const shard of [aShard(2), aShard(2, {final: true}), aShard(3)])
      assert.equal(fold([shard], finished).unfit[0]?.object, shard.object);
  });

  it('one wrong number in one shard is always an error', () => {
    const broken = wholeStreams.chain(shards =>
      fc.tuple(
        fc.constant(shards),
        fc.nat(shards.length - 1),
        fc.constantFrom('first_sample', 'last_sample', 'samples', 'rejected'),
        fc.constantFrom(-1, 1),
      ),
    );
    fc.assert(
      fc.property(broken, ([shards, index, field, by]) => {
        const changed = shards.map((shard, at) =>
          at === index ? {...shard, [field]: shard[field] + by} : shard,
        );
        assert.equal(fold(changed).unfit[0]?.object, shards[index]?.object);
      }),
    );
  });

  const LARGEST = Number.MAX_SAFE_INTEGER;
  it('an inexact sum is an error that names the shard and the field', () => {
    for (const field of ['total_tokens', 'total_samples_processed', 'total_bytes'] as const) {
      const folded = fold([aShard(2)], {...progressOf(fold([aShard(1)])), [field]: LARGEST});
      assert.match(
        folded.unfit[0]?.reason ?? '',
        new RegExp(`shard_0002.safetensors brings ${field} of its stream above`),
      );
    }
  });
});
