import assert from 'node:assert/strict';
import fc from 'fast-check';
import {aShard, NOTHING_STORED} from '../../../world/builders.ts';
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
        assert.deepEqual(folded.unfit, []);
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
});
