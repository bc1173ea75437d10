import assert from 'node:assert/strict';
import {decideRetry} from '../../../../shared/domain/commands/commands.ts';
import {
  type Content,
  type Stream,
  withProgress,
  withRebuilt,
} from '../../../../shared/domain/records/stream.ts';
import {registerAgain} from '../../../../shared/domain/stream/registration.ts';
import {aLeasedStream, aStream, at, NOTHING_STORED, T0} from '../../../world/builders.ts';

const NEWER = {generation: '1001'};
const OTHER = {generation: '1001', crc32c: 'BBBBBB==', size_bytes: 101};

const completed = () => aStream({status: 'completed', finished: true, epoch: 1, total_shards: 2});

const refusedOther = () =>
  aStream({status: 'failed', epoch: 1, last_error: 'was overwritten', refused_generation: '1001'});

const cases: {
  name: string;
  given?: Stream;
  when: Partial<Content>;
  uploaded_at?: string;
  then?: 'unchanged';
  stream?: Partial<Stream> | null;
  /** Text of the refusal. */
  says?: string;
}[] = [
  {name: 'a repeated event', when: {}, then: 'unchanged'},
  {name: 'a late event of an older generation', when: {generation: '999'}, then: 'unchanged'},
  {
    name: 'a generation with more digits',
    given: aStream({generation: '9'}),
    when: {generation: '99999999999999999999'},
    stream: {generation: '99999999999999999999'},
  },
  {
    name: 'the same content under a lease',
    given: aLeasedStream(),
    when: NEWER,
    stream: {status: 'in_progress', generation: '1001'},
  },
  {
    name: 'the same content after completion',
    given: completed(),
    when: NEWER,
    stream: {status: 'completed', generation: '1001'},
  },
  {name: 'new content before the first lease', when: OTHER, stream: {status: 'pending', ...OTHER}},
  {
    name: 'valid content after invalid content without a lease',
    given: aStream({status: 'failed', last_error: 'empty'}),
    when: OTHER,
    stream: {status: 'pending', last_error: null, ...OTHER},
  },
  {
    name: 'new content under a lease',
    given: aLeasedStream(),
    when: OTHER,
    stream: {status: 'failed', lease: null, generation: '1000', epoch: 3},
    says: 'was overwritten',
  },
  {
    name: 'new content of the same size under a lease',
    given: aLeasedStream(),
    when: {...OTHER, size_bytes: 100},
    stream: {status: 'failed'},
    says: 'was overwritten',
  },
  {
    name: 'new content between two leases',
    given: aStream({epoch: 1}),
    when: OTHER,
    stream: {status: 'failed'},
    says: 'generation 1000, now 1001',
  },
  {
    name: 'new content after the stream failed without a shard',
    given: aStream({status: 'failed', epoch: 3, failures: 3, last_error: 'damaged'}),
    when: OTHER,
    stream: {status: 'pending', failures: 0, last_error: null, epoch: 3, ...OTHER},
  },
  {
    name: 'new content that was refused, delivered twice',
    given: refusedOther(),
    when: OTHER,
    stream: null,
    says: 'generation 1000, now 1001',
  },
  {
    name: 'refused content after a retry',
    given: {...refusedOther(), status: 'pending', last_error: null},
    when: OTHER,
    stream: {status: 'failed', generation: '1000'},
    says: 'was overwritten',
  },
  {
    name: 'refused content that is uploaded once more',
    given: refusedOther(),
    when: {...OTHER, generation: '1002'},
    stream: {status: 'failed', generation: '1000', refused_generation: '1002'},
    says: 'the first content again',
  },
  {
    name: 'the first content after other content was refused',
    given: refusedOther(),
    when: {generation: '1002'},
    stream: {status: 'pending', generation: '1002', refused_generation: null, last_error: null},
  },
  {
    name: 'the same content, uploaded before the stream was cancelled',
    given: aStream({status: 'failed', last_error: 'cancelled', message_times: {status_at: at(20)}}),
    when: NEWER,
    uploaded_at: at(10),
    stream: {status: 'failed', last_error: 'cancelled', generation: '1001'},
  },
  {
    name: 'new content, uploaded before the stream was cancelled',
    given: aStream({status: 'failed', last_error: 'cancelled', message_times: {status_at: at(20)}}),
    when: OTHER,
    uploaded_at: at(10),
    stream: {status: 'failed', last_error: 'cancelled', ...OTHER},
  },
  {
    name: 'new content, uploaded after the stream was cancelled',
    given: aStream({status: 'failed', last_error: 'cancelled', message_times: {status_at: at(20)}}),
    when: OTHER,
    uploaded_at: at(30),
    stream: {status: 'pending', ...OTHER},
  },
  {
    name: 'the same content after the stream failed',
    given: aStream({
      ...{status: 'failed', epoch: 3, failures: 3, faults: 5},
      ...{total_shards: 2, last_error: 'no model'},
    }),
    when: NEWER,
    stream: {
      status: 'pending',
      failures: 0,
      faults: 0,
      last_error: null,
      epoch: 3,
      total_shards: 2,
      generation: '1001',
    },
  },
  {
    name: 'new content where an earlier database had shards',
    given: aStream({total_shards: 2}),
    when: OTHER,
    stream: {status: 'failed'},
    says: 'was overwritten',
  },
  {
    name: 'new content after completion',
    given: completed(),
    when: OTHER,
    stream: null,
    says: 'was overwritten',
  },
  {
    name: 'the same index with and without .gz',
    when: {...OTHER, object: 'datasets/my-run/stream_007.jsonl.gz'},
    stream: null,
    says: 'datasets/my-run/stream_007.jsonl.gz has the same index as datasets/my-run/stream_007.jsonl',
  },
  {
    name: 'the same index and content under the other name',
    given: completed(),
    when: {object: 'datasets/my-run/stream_007.jsonl.gz'},
    stream: null,
    says: 'rename it',
  },
];

describe('a stream object that is uploaded again', () => {
  for (const {name, given = aStream(), when, uploaded_at = at(0), stream, says, ...row} of cases) {
    const then = says === undefined ? (row.then ?? 'changed') : 'refused';
    it(`a stream object with ${name} is ${then}`, () => {
      const {object, generation, size_bytes, crc32c} = given;
      const content = {object, generation, size_bytes, crc32c, ...when};
      const again = registerAgain(given, {content, created_at: uploaded_at}, T0 + 1000);
      const isSame = again.next === given;
      assert.equal(again.refusal === undefined ? (isSame ? 'unchanged' : 'changed') : 'refused', then);
      if (stream === null) assert.ok(isSame);
      for (const [field, value] of Object.entries(stream ?? {}))
        assert.deepEqual(again.next[field as keyof Stream], value, field);
      if (again.refusal !== undefined) assert.ok(says && again.refusal.includes(says), again.refusal);
    });
  }
});

it('a stream that refused new content is not tried again, because the bucket has no other content', () => {
  assert.match(
    JSON.stringify(decideRetry(refusedOther(), at(0), T0)),
    /rejected.*drop its first content again/,
  );
});

it('a retry of a stream that refused new content says how to continue', () => {
  const retry = (stream: Stream) => JSON.stringify(decideRetry(stream, at(0), T0));
  assert.match(retry(refusedOther()), /rejected.*first content again, or cancel the stream and then drop/);
  assert.doesNotMatch(retry({...refusedOther(), total_shards: 1}), /cancel/);
});

describe('a rebuild of a stream', () => {
  const recount = (epoch: number) => ({progress: NOTHING_STORED, epoch, kept_shards: []});

  it('a stream that a message cancelled stays cancelled after a rebuild', () => {
    const cancelled = aStream({status: 'failed', last_error: 'cancelled'});
    const after = withRebuilt(cancelled, recount(7), T0);
    assert.deepEqual([after.status, after.epoch, after.last_error], ['failed', 7, 'cancelled']);
  });

  it('a rebuild keeps an epoch above those of all shards', () => {
    assert.equal(withRebuilt(aStream({epoch: 9}), recount(7), T0).epoch, 9);
  });
});

describe('the progress of a stream', () => {
  it('a late final shard completes a failed stream', () => {
    const failed = aStream({status: 'failed', failures: 3, last_error: 'no'});
    const {status, last_error} = withProgress(
      failed,
      {...NOTHING_STORED, total_shards: 1, finished: true},
      T0,
    );
    assert.deepEqual([status, last_error], ['completed', null]);
  });

  it('a stored shard resets the machine faults of a stream, and not its failures', () => {
    const progress = {...NOTHING_STORED, total_shards: 1, last_processed_sample_idx: 9};
    const blamed = aLeasedStream({faults: 4});
    assert.equal(withProgress(blamed, progress, T0).faults, 0);
    assert.equal(withRebuilt(blamed, {progress, epoch: 1, kept_shards: []}, T0).faults, 0);
    assert.equal(withRebuilt(blamed, {progress: NOTHING_STORED, epoch: 0, kept_shards: []}, T0).faults, 4);
    assert.equal(withProgress(aLeasedStream({failures: 2}), progress, T0).failures, 2);
  });

  it('an older checkpoint changes nothing', () => {
    const ahead = aStream({total_shards: 5, last_processed_sample_idx: 49});
    assert.equal(withProgress(ahead, {...NOTHING_STORED, total_shards: 4}, T0), ahead);
  });
});
