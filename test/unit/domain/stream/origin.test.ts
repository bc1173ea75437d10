import assert from 'node:assert/strict';
import {originOfShards} from '../../../../shared/domain/stream/checkpoint.ts';
import {aShard, CRC, SPEC_HASH} from '../../../world/builders.ts';

describe('the origin of a stream from its shards', () => {
  const whole = [aShard(1, {epoch: 4}), aShard(2, {epoch: 2, final: true})];
  const origins = [
    {name: 'no shard', given: 'other', shards: [], crc32c: 'other', epoch: 0},
    {name: 'all shards of its content', given: CRC, shards: whole, crc32c: CRC, epoch: 4},
    {name: 'all shards of an older content', given: 'other', shards: whole, crc32c: CRC, epoch: 4},
    {name: 'some shards of an older content', given: 'other', shards: [aShard(1)], crc32c: 'other', epoch: 1},
    {
      name: 'shards of two contents',
      given: 'other',
      shards: [aShard(1), aShard(2, {final: true, stream_crc32c: 'other'})],
      crc32c: 'other',
      epoch: 1,
    },
  ];
  for (const {name, given, shards, ...expected} of origins)
    it(`a stream with ${name} has content ${expected.crc32c} and epoch ${expected.epoch}`, () => {
      assert.deepEqual(originOfShards(given, SPEC_HASH, shards), expected);
    });
});
