import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  type Fold,
  foldShards,
  originOfShards,
  type Shard,
} from '../../../../shared/domain/stream/checkpoint.ts';
import {aShard, CRC, NOTHING_STORED, ORIGIN, SPEC_HASH} from '../../../support/builders.ts';

function fold(shards: Shard[], from = NOTHING_STORED): Fold {
  return foldShards(from, ORIGIN, shards);
}

function progressOf(folded: Fold) {
  assert.ok(folded.kind === 'ok', JSON.stringify(folded));
  return folded.progress;
}

/** A whole stream: shards of 1 to 20 lines each, some rejected, the last one final. */
const wholeStreams = fc
  .array(fc.tuple(fc.integer({min: 1, max: 20}), fc.nat(20), fc.nat(1000)), {minLength: 1, maxLength: 12})
  .map(sizes => {
    let next = 0;
    return sizes.map(([lines, bad, tokens], index) => {
      const rejected = Math.min(bad, lines);
      const first_sample = next;
      next += lines;
      return aShard(index + 1, {
        first_sample,
        last_sample: next - 1,
        samples: lines - rejected,
        rejected,
        tokens,
        final: index === sizes.length - 1,
      });
    });
  });

const shuffledStreams = wholeStreams.chain(shards =>
  fc.tuple(fc.constant(shards), fc.shuffledSubarray(shards, {minLength: shards.length}), fc.subarray(shards)),
);

describe('checkpoint', () => {
  it('is the same whatever the order in which the shards are seen', () => {
    fc.assert(
      fc.property(shuffledStreams, ([shards, shuffled]) => {
        assert.deepEqual(fold(shuffled), fold(shards));
        const lines = shards.reduce((sum, shard) => sum + shard.samples + shard.rejected, 0);
        const progress = progressOf(fold(shuffled));
        assert.equal(progress.last_processed_sample_idx, lines - 1);
        assert.equal(progress.total_samples_processed + progress.rejected_samples, lines);
        assert.equal(progress.total_shards, shards.length);
        assert.equal(progress.finished, true);
      }),
    );
  });

  it('counts only the shards before the first gap, and the others wait', () => {
    fc.assert(
      fc.property(shuffledStreams, ([shards, , some]) => {
        const folded = fold(some);
        const missing = shards.find(shard => !some.includes(shard));
        const prefix = missing ? shards.slice(0, missing.shard - 1) : shards;
        assert.ok(folded.kind === 'ok');
        assert.deepEqual(folded.counted, prefix);
        assert.equal(folded.progress.last_processed_sample_idx, prefix.at(-1)?.last_sample ?? -1);
        assert.deepEqual(
          folded.waiting,
          some.filter(shard => !prefix.includes(shard)).map(shard => shard.shard),
        );
        assert.equal(folded.progress.finished, missing === undefined);
      }),
    );
  });

  it('goes on from any earlier checkpoint to the same end, however often a shard is seen again', () => {
    fc.assert(
      fc.property(shuffledStreams, ([shards, shuffled, some]) => {
        const whole = progressOf(fold(shards));
        const earlier = progressOf(fold(some));
        assert.deepEqual(progressOf(fold(shuffled, earlier)), whole);
        const rest = shards.filter(shard => shard.shard > earlier.total_shards);
        assert.deepEqual(progressOf(fold(rest, earlier)), whole);
        assert.deepEqual(progressOf(fold(some, whole)), whole, 'what is seen late changes nothing');
      }),
    );
  });

  it('never loses ground', () => {
    fc.assert(
      fc.property(shuffledStreams, ([, shuffled]) => {
        let progress = NOTHING_STORED;
        for (const [index] of shuffled.entries()) {
          const next = progressOf(fold(shuffled.slice(0, index + 1), progress));
          assert.ok(next.total_shards >= progress.total_shards);
          progress = next;
        }
      }),
    );
  });

  it('changes nothing that it was given', () => {
    const shards = [aShard(2), aShard(1)];
    const before = structuredClone(shards);
    fold(shards);
    assert.deepEqual(shards, before);
  });

  const other = 'b'.repeat(64);
  const errors: {name: string; given: Shard[]; says: string[]}[] = [
    {
      name: 'an overlap',
      given: [aShard(1), aShard(2, {first_sample: 9, last_sample: 18})],
      says: ['tpu_7/shard_0001.safetensors', 'tpu_7/shard_0002.safetensors', 'sample 9'],
    },
    {
      name: 'a hole between two shards',
      given: [aShard(1), aShard(2, {first_sample: 11, last_sample: 20})],
      says: ['tpu_7/shard_0001.safetensors', 'tpu_7/shard_0002.safetensors', 'sample 11'],
    },
    {
      name: 'a first shard that does not begin at the beginning',
      given: [aShard(1, {first_sample: 5, last_sample: 14})],
      says: ['tpu_7/shard_0001.safetensors', 'starts at sample 5'],
    },
    {
      name: 'one number in two formats',
      given: [aShard(1), aShard(1, {object: 'activations/my-run/tpu_7/shard_0001.pkl.gz'})],
      says: ['shard_0001.safetensors', 'shard_0001.pkl.gz', 'both shard 1'],
    },
    {
      name: 'one number in two formats behind a gap',
      given: [aShard(5), aShard(5, {object: 'activations/my-run/tpu_7/shard_0005.pkl.gz'})],
      says: ['shard_0005.safetensors', 'shard_0005.pkl.gz'],
    },
    {
      name: 'another spec',
      given: [aShard(1), aShard(2, {spec_hash: other})],
      says: ['shard_0002.safetensors', other.slice(0, 12), SPEC_HASH.slice(0, 12)],
    },
    {
      name: 'another spec behind a gap',
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
      name: 'a shard that covers nothing',
      given: [aShard(1, {first_sample: 0, last_sample: -1, samples: 0, rejected: 0})],
      says: ['shard_0001.safetensors', 'covers 0 samples'],
    },
    {
      name: 'a shard that ends before it begins',
      given: [aShard(1), aShard(2, {last_sample: 3, samples: 0, rejected: 0})],
      says: ['shard_0002.safetensors'],
    },
    {
      name: 'a shard right behind the last one',
      given: [aShard(1), aShard(2, {final: true}), aShard(3)],
      says: ['shard_0003.safetensors', 'shard 2', 'the last'],
    },
    {
      name: 'a second last shard',
      given: [aShard(1, {final: true}), aShard(2, {final: true})],
      says: ['shard_0002.safetensors', 'shard 1', 'the last'],
    },
    {
      name: 'a shard far behind the last one',
      given: [aShard(1, {final: true}), aShard(9)],
      says: ['shard_0009.safetensors', 'shard 1', 'the last'],
    },
  ];
  for (const {name, given, says} of errors) {
    it(`${name} is an error that says which`, () => {
      const folded = fold(given);
      assert.ok(folded.kind === 'error', JSON.stringify(folded));
      for (const word of says) assert.ok(folded.reason.includes(word), `"${word}" in: ${folded.reason}`);
    });
  }

  it('a shard behind the last one is an error also for a checkpoint that has counted the last one', () => {
    const finished = progressOf(fold([aShard(1, {final: true})]));
    for (const shard of [aShard(2), aShard(2, {final: true}), aShard(3)])
      assert.equal(fold([shard], finished).kind, 'error', shard.object);
  });

  it('a shard of rejected samples alone counts', () => {
    const progress = progressOf(fold([aShard(1, {samples: 0, rejected: 10, final: true})]));
    assert.deepEqual(
      [progress.total_samples_processed, progress.rejected_samples, progress.finished],
      [0, 10, true],
    );
  });

  it('breaking any one number of any one shard is never taken for a good stream', () => {
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
        assert.equal(fold(changed).kind, 'error');
      }),
    );
  });

  const LARGEST = Number.MAX_SAFE_INTEGER;
  it('a sum that cannot be counted exactly is an error that names the shard and the field', () => {
    for (const field of ['total_tokens', 'total_samples_processed', 'total_bytes'] as const) {
      const folded = fold([aShard(2)], {...progressOf(fold([aShard(1)])), [field]: LARGEST});
      assert.ok(folded.kind === 'error', field);
      assert.match(folded.reason, new RegExp(`shard_0002.safetensors brings ${field} of its stream above`));
    }
  });

  const epochs: {
    name: string;
    granted: number;
    given: number[];
    counts: number;
    ungranted: number | undefined;
  }[] = [
    {name: 'of the granted epochs', granted: 3, given: [1, 3, 2], counts: 3, ungranted: undefined},
    {name: 'of a stream that was never leased', granted: 0, given: [1, 1], counts: 0, ungranted: 1},
    {
      name: 'behind a shard of an epoch that was never granted',
      granted: 4,
      given: [4, 7, 4],
      counts: 1,
      ungranted: 2,
    },
  ];
  for (const {name, granted, given, counts, ungranted} of epochs)
    it(`counts ${counts} shards ${name}`, () => {
      const shards = given.map((epoch, index) => aShard(index + 1, {epoch}));
      const folded = foldShards(NOTHING_STORED, {...ORIGIN, epoch: granted}, shards);
      assert.ok(folded.kind === 'ok');
      assert.deepEqual([folded.counted.length, folded.ungranted?.shard], [counts, ungranted]);
    });

  it('a shard that was counted before is not asked for its epoch again', () => {
    const folded = fold([aShard(1, {epoch: 9})], progressOf(fold([aShard(1)])));
    assert.ok(folded.kind === 'ok' && folded.ungranted === undefined);
  });

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
    it(`a new stream with ${name} has content ${expected.crc32c} and epoch ${expected.epoch}`, () => {
      assert.deepEqual(originOfShards(given, SPEC_HASH, shards), expected);
    });
});
