/** Folds and whole streams for the tests of the checkpoint. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import type {Shard} from '../../../../shared/domain/records/shard.ts';
import {type Fold, foldShards} from '../../../../shared/domain/stream/checkpoint.ts';
import {aShard, NOTHING_STORED, ORIGIN} from '../../../world/builders.ts';

export function fold(shards: Shard[], from = NOTHING_STORED): Fold {
  return foldShards(from, ORIGIN, shards);
}

export function progressOf(folded: Fold) {
  assert.deepEqual(folded.unfit, []);
  return folded.progress;
}

/** Whole streams: shards of 1 to 20 samples, some rejected, the last shard final. */
export const wholeStreams = fc
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
