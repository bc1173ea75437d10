import assert from 'node:assert/strict';
import fc from 'fast-check';
import {constraint} from '../../../../shared/domain/records/constraint.ts';
import {
  endedAs,
  isOpen,
  isRunnable,
  type Run,
  type RunStatus,
} from '../../../../shared/domain/records/run.ts';
import type {Stream, StreamStatus} from '../../../../shared/domain/records/stream.ts';
import {summarizeRun, totalsOf} from '../../../../shared/domain/run/summarize.ts';
import {aRun, aStream, at, T0} from '../../../world/builders.ts';

const streamsOf = (...statuses: StreamStatus[]): Stream[] =>
  statuses.map((status, index) =>
    aStream({status, stream: `00${index}`, last_error: status === 'failed' ? 'not UTF-8' : null}),
  );

const cases: {name: string; given: RunStatus; when: StreamStatus[]; then: RunStatus; reason?: string}[] = [
  {name: 'work is left', given: 'active', when: ['completed', 'pending'], then: 'active'},
  {name: 'a lease is out', given: 'active', when: ['completed', 'in_progress'], then: 'active'},
  {name: 'all streams are completed', given: 'active', when: ['completed', 'completed'], then: 'completed'},
  {
    name: 'a failed stream leaves the others at work',
    given: 'active',
    when: ['failed', 'pending'],
    then: 'active',
    reason: 'stream 000: not UTF-8',
  },
  {
    name: 'one stream has failed and the others are completed',
    given: 'active',
    when: ['completed', 'failed'],
    then: 'failed',
    reason: 'stream 001: not UTF-8',
  },
  {name: 'work is left', given: 'paused', when: ['pending'], then: 'paused'},
  {name: 'a lease is out', given: 'paused', when: ['in_progress'], then: 'paused'},
  {name: 'no work is left', given: 'paused', when: ['completed'], then: 'completed'},
  {name: 'a further stream is pending', given: 'completed', when: ['completed', 'pending'], then: 'active'},
  {
    name: 'a further stream is pending',
    given: 'failed',
    when: ['failed', 'pending'],
    then: 'active',
    reason: 'stream 000: not UTF-8',
  },
  {name: 'work is left', given: 'stopped', when: ['pending'], then: 'stopped'},
  {name: 'all streams are completed', given: 'stopped', when: ['completed'], then: 'stopped'},
  {name: 'no stream is known', given: 'active', when: [], then: 'active'},
];

describe('the status of a run', () => {
  for (const {name, given, when, then, reason} of cases)
    it(`a run that is ${given} becomes ${then} where ${name}`, () => {
      const next = summarizeRun(aRun({status: given}), totalsOf(streamsOf(...when)), 0, T0);
      assert.equal(next.status, then);
      assert.equal(next.reason, reason ?? null);
    });

  it('the totals of a run are the sums over its streams', () => {
    const statuses = fc.constantFrom<StreamStatus>('pending', 'in_progress', 'completed', 'failed');
    const numbers = fc.record({
      status: statuses,
      total_samples_processed: fc.nat(1000),
      rejected_samples: fc.nat(1000),
      total_tokens: fc.nat(1000),
      total_shards: fc.nat(1000),
      total_bytes: fc.nat(1000),
    });
    fc.assert(
      fc.property(fc.array(numbers, {maxLength: 20}), facts => {
        const run = summarizeRun(aRun(), totalsOf(facts.map(fact => aStream(fact))), 0, T0);
        const total = (field: keyof (typeof facts)[0]) =>
          facts.reduce((sum, fact) => sum + Number(fact[field]), 0);
        assert.equal(
          run.streams_pending + run.streams_in_progress + run.streams_completed + run.streams_failed,
          facts.length,
        );
        for (const field of [
          'total_samples_processed',
          'rejected_samples',
          'total_tokens',
          'total_shards',
          'total_bytes',
        ] as const)
          assert.equal(run[field], total(field), field);
      }),
    );
  });

  it('a summary without a change returns the same run', () => {
    const streams = totalsOf(streamsOf('completed', 'pending'));
    const first = summarizeRun(aRun(), streams, 0, T0 + 1000);
    assert.equal(first.updated_at, at(1));
    assert.equal(summarizeRun(first, streams, 0, T0 + 2000), first);
  });

  it('a run that a message ends has its end in its history, and later costs change no curve', () => {
    const waits = {...constraint('budget', 'run my-run'), since_at: at(0)};
    const ended = endedAs('stopped', aRun({waits}), null, T0 + 60_000);
    assert.equal(ended.waits, null, 'and waits for nothing');
    const later = summarizeRun(ended, totalsOf(streamsOf('completed')), 99, T0 + 90_000);
    assert.deepEqual([ended.history?.at_s, later.cost_usd, later.history], [[60], 99, ended.history]);
  });

  it('a run that completes has its end in its history, and no further try of its model', () => {
    const young = summarizeRun(aRun(), totalsOf(streamsOf('pending')), 1, T0 + 1000);
    const paused = {...young, status: 'paused' as const, model_next_at: at(600)};
    const done = summarizeRun(paused, totalsOf(streamsOf('completed')), 1, T0 + 2000);
    assert.deepEqual([done.status, done.history?.at_s, done.model_next_at], ['completed', [1, 2], null]);
  });

  it('a run without a valid run.json keeps its reason', () => {
    const waiting = aRun({status: 'failed', spec: null, spec_hash: null, reason: 'run.json is not JSON'});
    const next = summarizeRun(waiting, totalsOf(streamsOf('pending')), 0, T0);
    assert.deepEqual([next.status, next.reason], ['failed', 'run.json is not JSON']);
  });

  it('a run fails when all of its samples are rejected, and says so when more than half are', () => {
    const rejected = aStream({status: 'completed', total_samples_processed: 0, rejected_samples: 3});
    const stored = aStream({status: 'completed', total_samples_processed: 1, rejected_samples: 3});
    const half = aStream({status: 'completed', total_samples_processed: 3, rejected_samples: 3});
    const many = aStream({status: 'in_progress', total_samples_processed: 40, rejected_samples: 61});
    const outcomeOf = (...streams: Stream[]) => {
      const {status, reason} = summarizeRun(aRun(), totalsOf(streams), 0, T0);
      return `${status}: ${reason?.split(':')[0]}`;
    };
    assert.equal(outcomeOf(rejected, rejected), 'failed: all 6 samples were rejected');
    assert.equal(outcomeOf(rejected, stored), 'completed: 6 of 7 samples were rejected');
    assert.equal(outcomeOf(half), 'completed: undefined');
    assert.equal(outcomeOf(many), 'active: 61 of 101 samples were rejected');
    assert.equal(
      outcomeOf({...stored, status: 'in_progress'}),
      'active: undefined',
      'few samples say little',
    );
  });

  it('a run that is paused for its budget keeps its reason when a stream fails', () => {
    const paused = aRun({status: 'paused', reason: 'its budget allows no more'});
    const next = summarizeRun(paused, totalsOf(streamsOf('pending', 'failed')), 0, T0);
    assert.deepEqual([next.status, next.reason], ['paused', 'its budget allows no more']);
  });

  it('a slow tick does not lower the cost that a later tick recorded', () => {
    const run = aRun({cost_usd: 3, spent_usd: 1});
    assert.equal(summarizeRun(run, totalsOf(streamsOf('pending')), 2, T0).cost_usd, 3);
    const ended = aRun({cost_usd: 3, spent_usd: 5});
    assert.equal(summarizeRun(ended, totalsOf(streamsOf('pending')), 2, T0).cost_usd, 5);
    assert.equal(summarizeRun(run, totalsOf(streamsOf('pending')), 4, T0).cost_usd, 4);
  });

  const open: {given: Partial<Run>; runnable: boolean; open: boolean}[] = [
    {given: {status: 'active'}, runnable: true, open: true},
    {given: {status: 'active', spec: null}, runnable: false, open: true},
    {given: {status: 'paused'}, runnable: false, open: true},
    {given: {status: 'completed'}, runnable: false, open: false},
    {given: {status: 'failed'}, runnable: false, open: false},
    {given: {status: 'stopped'}, runnable: false, open: false},
  ];
  for (const {given, ...then} of open)
    it(`a run with ${JSON.stringify(given)} is ${JSON.stringify(then)}`, () =>
      assert.deepEqual({runnable: isRunnable(aRun(given)), open: isOpen(aRun(given))}, then));
});
