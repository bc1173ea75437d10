import assert from 'node:assert/strict';
import {OPEN} from '../../../../shared/domain/records/limiter.ts';
import type {Run} from '../../../../shared/domain/records/run.ts';
import type {Stream} from '../../../../shared/domain/records/stream.ts';
import {type DroppedStream, decideRegistration} from '../../../../shared/domain/stream/registration.ts';
import {aConfig, aLeasedStream, aRun, aStream, at, CRC, T0} from '../../../world/builders.ts';

const NOW = T0 + 60_000;
const POOL = {
  ...aConfig({GLEANER_ZONES: 'us-central1-a', GLEANER_WORKERS_PER_ZONE: '8'}).pool,
  limiter: OPEN,
};

function dropped(content: Partial<DroppedStream['content']> = {}): DroppedStream {
  const object = 'datasets/my-run/stream_007.jsonl';
  return {
    ...{stream: '007', created_at: at(30), bucket: 'bucket', model: 'tiny', origin: {crc32c: CRC, epoch: 4}},
    content: {object, generation: '1000', size_bytes: 100, crc32c: CRC, ...content},
  };
}

type Then = {
  status: string | undefined;
  refusal?: RegExp;
  isClosed?: boolean;
  reopens: boolean;
  event?: RegExp;
};
const cases: {name: string; run?: Partial<Run>; before?: Stream; when?: DroppedStream; then: Then}[] = [
  {
    name: 'accepts a new stream, with the content and the epoch of its shards',
    then: {status: 'pending', reopens: true, event: /^Stream my-run\/007 accepted: 100 bytes$/},
  },
  {
    name: 'fails an empty stream',
    when: dropped({size_bytes: 0}),
    then: {status: 'failed', refusal: /is empty: it holds no record/, reopens: true, event: /is empty/},
  },
  {
    name: 'repeats nothing, and reopens the run of an unfinished stream',
    before: aStream(),
    then: {status: 'pending', reopens: true},
  },
  {
    name: 'repeats nothing, and leaves the run of a complete stream ended',
    before: aStream({status: 'completed', finished: true}),
    then: {status: 'completed', reopens: false},
  },
  {
    name: 'refuses new content of a leased stream, and fails the stream',
    before: aLeasedStream(),
    when: dropped({generation: '1001', crc32c: 'BBBBBB=='}),
    then: {status: 'failed', refusal: /was overwritten/, reopens: true, event: /was overwritten/},
  },
  {
    name: 'fails a stream that an empty object replaces',
    before: aStream({status: 'failed', last_error: 'empty'}),
    when: dropped({generation: '1001', size_bytes: 0}),
    then: {status: 'failed', refusal: /is empty: it holds no record/, reopens: false, event: /is empty/},
  },
  {
    name: 'refuses the second object of an index, and changes nothing',
    before: aStream({status: 'completed', finished: true}),
    when: dropped({object: 'datasets/my-run/stream_007.jsonl.gz'}),
    then: {status: 'completed', refusal: /has the same index/, reopens: false},
  },
  {
    name: 'refuses a stream that is younger than the stop of its run',
    run: {status: 'stopped', stopped_at: at(10)},
    then: {status: undefined, refusal: /a stop is final/, isClosed: true, reopens: false},
  },
  {
    name: 'refuses a known stream of a stopped run',
    run: {status: 'stopped', stopped_at: at(40)},
    before: aStream(),
    then: {status: 'pending', refusal: /a stop is final/, isClosed: true, reopens: false},
  },
  {
    name: 'refuses any stream of a stopped run whose streams have lost their documents',
    run: {status: 'stopped', stopped_at: at(40), expired_at: at(50)},
    then: {status: undefined, refusal: /a stop is final/, isClosed: true, reopens: false},
  },
  {
    name: 'accepts an unknown stream from before the stop of its run: its document was lost',
    run: {status: 'stopped', stopped_at: at(40)},
    then: {status: 'pending', reopens: true, event: /accepted/},
  },
  {
    name: 'names the slot of a bound stream',
    run: {affinity: 'fixed'},
    then: {status: 'pending', reopens: true, event: /; it is for tpu-us-central1-a-7$/},
  },
  {
    name: 'names the missing slot of a bound stream',
    run: {affinity: 'fixed', stream_offset: -1},
    then: {status: 'pending', reopens: true, event: /waits for TPU number 8, which the pool does not have/},
  },
];

describe('decideRegistration', () => {
  for (const {name, run, before, when = dropped(), then} of cases)
    it(name, () => {
      const parent = aRun(run);
      const pool = parent.affinity === 'fixed' ? POOL : undefined;
      const {stream, refusal, isClosed, reopens, events} = decideRegistration(
        parent,
        before,
        when,
        pool,
        NOW,
      );
      assert.deepEqual(
        [stream?.status, isClosed, reopens],
        [then.status, then.isClosed ?? false, then.reopens],
      );
      if (then.refusal) assert.match(refusal ?? '', then.refusal);
      else assert.equal(refusal, undefined);
      assert.equal(events.length, then.event ? 1 : 0);
      if (then.event) assert.match(events[0]?.text ?? '', then.event);
      if (events.length === 0) assert.equal(stream, before, 'an unchanged stream is the same object');
      if (stream && !before)
        assert.deepEqual([stream.epoch, stream.worker_id, stream.model_path], [4, 7, 'tiny']);
    });
});
