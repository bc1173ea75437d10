import assert from 'node:assert/strict';
import {decideAdvance, decideTwin, type StoredShards} from '../../../../shared/domain/stream/advance.ts';
import type {Shard} from '../../../../shared/domain/stream/checkpoint.ts';
import type {Stream} from '../../../../shared/domain/stream/stream.ts';
import {aLeasedStream, aShard, aStream, SPEC_HASH, T0} from '../../../support/builders.ts';

const NOW = T0 + 60_000;
const leased = (changes: Partial<Stream> = {}) => aLeasedStream({epoch: 1, ...changes});
const stored = (...shards: Shard[]): StoredShards => ({kind: 'ok', shards});
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
    name: 'a shard behind a gap waits',
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
    when: {kind: 'error', reason: 'shard 1 names shard 2'},
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
    when: {kind: 'error', reason: 'shard 1 names shard 2'},
    then: {status: 'failed', total_shards: 0, counted: 0, hasMore: false, needsSpecCheck: true},
  },
  {
    name: 'a shard of an epoch that was never granted blocks the stream',
    given: leased({total_shards: 1, last_processed_sample_idx: 9}),
    when: stored(aShard(2, {epoch: 7})),
    then: {status: 'failed', total_shards: 1, counted: 0, hasMore: false, needsSpecCheck: false},
    events: [/^Stream my-run\/007 is blocked: .* has epoch 7/],
  },
  {
    name: 'the shards before an ungranted shard count first',
    given: leased(),
    when: stored(aShard(1), aShard(2, {epoch: 7})),
    then: {status: 'in_progress', total_shards: 1, counted: 1, hasMore: true, needsSpecCheck: false},
    events: [/^Shard 1/],
  },
];

describe('decideAdvance', () => {
  for (const {name, given, when, then, events} of cases)
    it(name, () => {
      const advance = decideAdvance(given, SPEC_HASH, when, NOW);
      const {stream, counted, hasMore, needsSpecCheck} = advance;
      const {status, total_shards} = stream;
      assert.deepEqual({status, total_shards, counted: counted.length, hasMore, needsSpecCheck}, then);
      const isChanged = then.counted > 0 || status !== given.status;
      assert.equal(stream === given, !isChanged, 'an unchanged stream is the same object');
      if (events)
        for (const [index, text] of events.entries()) assert.match(advance.events[index]?.text ?? '', text);
      assert.equal(advance.events.length, events?.length ?? (isChanged ? then.counted : 0));
      if (status === 'failed') assert.equal(stream.lease, null);
    });

  it('counts the rest in further transactions, until the ungranted shard blocks the stream', () => {
    const when = stored(...shards(1, 250), aShard(251, {epoch: 7}));
    const totals: number[] = [];
    let stream = leased();
    for (let hasMore = true; hasMore; ) {
      const advance = decideAdvance(stream, SPEC_HASH, when, NOW);
      ({stream, hasMore} = advance);
      totals.push(stream.total_shards);
    }
    assert.deepEqual([totals, stream.status], [[200, 250, 250], 'failed']);
  });
});

describe('decideTwin', () => {
  it('fails the stream, and names both objects', () => {
    const {stream, events} = decideTwin(leased(), 1, ['shard_0001.pkl.gz', 'shard_0001.safetensors'], NOW);
    const reason = 'shard_0001.pkl.gz and shard_0001.safetensors are both shard 1';
    assert.deepEqual([stream.status, stream.lease, stream.last_error], ['failed', null, reason]);
    assert.deepEqual(
      events.map(({text}) => text),
      [`Stream my-run/007 failed: ${reason}`],
    );
  });
});
