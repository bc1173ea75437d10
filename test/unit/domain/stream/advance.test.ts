import assert from 'node:assert/strict';
import {proofOf} from '../../../../shared/domain/digest.ts';
import type {Shard} from '../../../../shared/domain/records/shard.ts';
import type {Stream} from '../../../../shared/domain/records/stream.ts';
import {decideAdvance, type StoredShards} from '../../../../shared/domain/stream/advance.ts';
import {aLeasedStream, aShard, aStream, FROZEN, T0} from '../../../world/builders.ts';

const NOW = T0 + 60_000;
const KEY = 'key of the lease';
/** The stored shard of this number under the lease with `KEY`. */
const proven = (shard: number, changes: Partial<Shard> = {}) => {
  const made = aShard(shard, changes);
  return {...made, proof: proofOf(KEY, made), ...changes};
};
const damaged = (): StoredShards => ({
  shards: [],
  invalid: [{object: aShard(1).object, by: 'content', reason: 'shard 1 names shard 2'}],
});
const leased = (changes: Partial<Stream> = {}) => aLeasedStream({epoch: 1, ...changes});
const stored = (...shards: Shard[]): StoredShards => ({shards, invalid: []});
const shards = (first: number, last: number) =>
  Array.from({length: last - first + 1}, (_, index) => aShard(first + index));

type Case = {
  name: string;
  given: Stream;
  when: StoredShards;
  then: {status: string; total_shards: number; counted: number; hasMore: boolean; needsSpecCheck: boolean};
  events?: RegExp[];
};

const cases: Case[] = [
  {
    name: 'the next shard counts',
    given: leased(),
    when: stored(aShard(1)),
    then: {status: 'in_progress', total_shards: 1, counted: 1, hasMore: false, needsSpecCheck: false},
    events: [/^Shard 1 of my-run\/007 stored: samples 0-9, 1 rejected$/],
  },
  {
    name: 'a shard after a gap waits',
    given: leased(),
    when: stored(aShard(2)),
    then: {status: 'in_progress', total_shards: 0, counted: 0, hasMore: false, needsSpecCheck: false},
  },
  {
    name: 'a counted shard changes nothing',
    given: leased({total_shards: 1, last_processed_sample_idx: 9}),
    when: stored(aShard(1)),
    then: {status: 'in_progress', total_shards: 1, counted: 0, hasMore: false, needsSpecCheck: false},
  },
  {
    name: 'the final shard completes the stream',
    given: leased(),
    when: stored(aShard(1, {final: true})),
    then: {status: 'completed', total_shards: 1, counted: 1, hasMore: false, needsSpecCheck: false},
    events: [/^Shard 1/, /^Stream my-run\/007 is complete$/],
  },
  {
    name: 'the final shard completes a failed stream',
    given: aStream({status: 'failed', epoch: 1, last_error: 'damaged'}),
    when: stored(aShard(1, {final: true})),
    then: {status: 'completed', total_shards: 1, counted: 1, hasMore: false, needsSpecCheck: true},
    events: [/^Shard 1/, /is complete$/],
  },
  {
    name: 'of 201 shards, 200 count in one transaction',
    given: leased(),
    when: stored(...shards(1, 201)),
    then: {status: 'in_progress', total_shards: 200, counted: 200, hasMore: true, needsSpecCheck: false},
  },
  {
    name: 'a shard from before the first lease counts after a check of the spec',
    given: aStream({epoch: 1}),
    when: stored(aShard(1)),
    then: {status: 'pending', total_shards: 1, counted: 1, hasMore: false, needsSpecCheck: true},
    events: [/^Shard 1/],
  },
  {
    name: 'invalid metadata fails the stream after a check of the spec',
    given: leased(),
    when: damaged(),
    then: {status: 'failed', total_shards: 0, counted: 0, hasMore: false, needsSpecCheck: true},
    events: [/^Stream my-run\/007 failed: shard 1 names shard 2$/],
  },
  {
    name: 'shards of another content fail the stream',
    given: leased(),
    when: stored(aShard(1, {stream_crc32c: 'BBBBBB=='})),
    then: {status: 'failed', total_shards: 0, counted: 0, hasMore: false, needsSpecCheck: true},
    events: [/other content/],
  },
  {
    name: 'invalid metadata changes no failed stream',
    given: aStream({status: 'failed', last_error: 'damaged'}),
    when: damaged(),
    then: {status: 'failed', total_shards: 0, counted: 0, hasMore: false, needsSpecCheck: true},
  },
];

describe('decideAdvance', () => {
  for (const {name, given, when, then, events} of cases)
    it(name, () => {
      const advance = decideAdvance(given, FROZEN, when, NOW);
      const {stream, countedShards, hasMore, needsSpecCheck} = advance;
      const {status, total_shards} = stream;
      assert.deepEqual({status, total_shards, counted: countedShards.length, hasMore, needsSpecCheck}, then);
      const isChanged = then.counted > 0 || status !== given.status;
      assert.equal(stream === given, !isChanged, 'an unchanged stream is the same object');
      if (events)
        for (const [index, text] of events.entries()) assert.match(advance.events[index]?.text ?? '', text);
      assert.equal(advance.events.length, events?.length ?? (isChanged ? then.counted : 0));
      if (status === 'failed') assert.equal(stream.lease, null);
    });

  const granted = {lease_key: KEY, total_shards: 1, last_processed_sample_idx: 9};
  const foreign: {name: string; given?: Partial<Stream>; when: Shard; says: RegExp}[] = [
    {name: 'of an epoch before', when: proven(2, {epoch: 0}), says: /epoch 0, and the lease .* epoch 1/},
    {name: 'of an epoch that was never granted', when: proven(2, {epoch: 7}), says: /has epoch 7/},
    {name: 'without a proof', when: proven(2, {proof: null}), says: /no valid proof/},
    {
      name: 'with the proof of another shard',
      when: proven(2, {proof: proven(3).proof}),
      says: /no valid proof/,
    },
    {name: 'after the release', given: {ended_epoch: 1}, when: proven(2), says: /after the release/},
    {name: 'of other content', when: proven(2, {stream_crc32c: 'BBBBBB=='}), says: /other content/},
    {name: 'with samples that do not follow', when: proven(2, {first_sample: 4}), says: /starts at sample 4/},
  ];
  for (const {name, given, when, says} of foreign)
    it(`a shard ${name} is set aside, and the stream continues`, () => {
      const before = leased({...granted, ...given});
      const {stream, unfit, events} = decideAdvance(before, FROZEN, stored(when), NOW);
      assert.deepEqual([stream === before, events, unfit.length], [true, [], 1]);
      assert.match(unfit[0]?.reason ?? '', says);
    });

  it('shards of a lease that ran out count until a later grant', () => {
    const before = aStream({...granted, epoch: 1});
    assert.equal(decideAdvance(before, FROZEN, stored(proven(2)), NOW).stream.total_shards, 2);
  });

  it('counts the rest in further transactions', () => {
    const when = stored(...shards(1, 250));
    const totals: number[] = [];
    let stream = leased();
    for (let hasMore = true; hasMore; ) {
      const advance = decideAdvance(stream, FROZEN, when, NOW);
      ({stream, hasMore} = advance);
      totals.push(stream.total_shards);
    }
    assert.deepEqual(totals, [200, 250]);
  });
});
