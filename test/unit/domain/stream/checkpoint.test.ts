import assert from 'node:assert/strict';
import fc from 'fast-check';
import {foldShards} from '../../../../shared/domain/stream/checkpoint.ts';
import {aShard, NOTHING_STORED, ORIGIN} from '../../../support/builders.ts';
import {fold, progressOf, wholeStreams} from './checkpoint-cases.ts';

const shuffledStreams = wholeStreams.chain(shards =>
  fc.tuple(fc.constant(shards), fc.shuffledSubarray(shards, {minLength: shards.length}), fc.subarray(shards)),
);

describe('the checkpoint of a stream', () => {
  it('a checkpoint does not depend on the order of shards', () => {
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

  it('a checkpoint counts the shards before the first gap, and the others wait', () => {
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

  it('a fold from any earlier checkpoint reaches the same end, with repeated shards too', () => {
    fc.assert(
      fc.property(shuffledStreams, ([shards, shuffled, some]) => {
        const whole = progressOf(fold(shards));
        const earlier = progressOf(fold(some));
        assert.deepEqual(progressOf(fold(shuffled, earlier)), whole);
        const rest = shards.filter(shard => shard.shard > earlier.total_shards);
        assert.deepEqual(progressOf(fold(rest, earlier)), whole);
        assert.deepEqual(progressOf(fold(some, whole)), whole, 'late shards change nothing');
      }),
    );
  });

  it('a checkpoint never shrinks', () => {
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

  it('a fold does not change its input', () => {
    const shards = [aShard(2), aShard(1)];
    const before = structuredClone(shards);
    fold(shards);
    assert.deepEqual(shards, before);
  });

  it('a shard with only rejected samples counts', () => {
    const progress = progressOf(fold([aShard(1, {samples: 0, rejected: 10, final: true})]));
    assert.deepEqual(
      [progress.total_samples_processed, progress.rejected_samples, progress.finished],
      [0, 10, true],
    );
  });

  const epochs: {
    name: string;
    granted: number;
    given: number[];
    counts: number;
    ungranted: number | undefined;
  }[] = [
    {name: 'of granted epochs', granted: 3, given: [1, 3, 2], counts: 3, ungranted: undefined},
    {name: 'of a stream that was never leased', granted: 0, given: [1, 1], counts: 0, ungranted: 1},
    {
      name: 'before a shard of an ungranted epoch',
      granted: 4,
      given: [4, 7, 4],
      counts: 1,
      ungranted: 2,
    },
  ];
  for (const {name, granted, given, counts, ungranted} of epochs)
    it(`a checkpoint counts ${counts} shards ${name}`, () => {
      const shards = given.map((epoch, index) => aShard(index + 1, {epoch}));
      const folded = foldShards(NOTHING_STORED, {...ORIGIN, epoch: granted}, shards);
      assert.ok(folded.kind === 'ok');
      assert.deepEqual([folded.counted.length, folded.ungranted?.shard], [counts, ungranted]);
    });

  it('the epoch of a counted shard is not checked again', () => {
    const folded = fold([aShard(1, {epoch: 9})], progressOf(fold([aShard(1)])));
    assert.ok(folded.kind === 'ok' && folded.ungranted === undefined);
  });
});
