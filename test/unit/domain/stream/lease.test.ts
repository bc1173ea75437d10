import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  byPreference,
  type Candidate,
  type Claim,
  grantLease,
  hasRunOut,
  holds,
  isClaimable,
  isHeldBy,
  type Outcome,
  releaseLease,
  revokeLease,
} from '../../../../shared/domain/stream/lease.ts';
import {
  MAX_FAILURES,
  type Stream,
  withProgress,
  withRebuilt,
} from '../../../../shared/domain/stream/stream.ts';
import type {Worker} from '../../../../shared/domain/worker/worker.ts';
import {aLeasedStream, aStream, at, aWorker, moment, NOTHING_STORED, T0} from '../../../support/builders.ts';

const OWN: Claim = {worker: 'tpu-us-central1-a-0', incarnation: 2, epoch: 3};
const FINISHED = {...NOTHING_STORED, total_shards: 1, last_processed_sample_idx: 9, finished: true};

/** Everything that can happen to a stream, in any order; `who` is one of three workers, in one of two lives. */
const steps = fc.array(
  fc.record({
    do: fc.constantFrom('grant', 'release', 'revoke', 'finish'),
    who: fc.nat(5),
    claim: fc.nat(20),
    outcome: fc.constantFrom<Outcome>('completed', 'drained', 'preempted', 'failed'),
    fault: fc.constantFrom('stream', 'model', 'infrastructure'),
    seconds: fc.nat(200),
  }),
  {maxLength: 60},
);

describe('leases', () => {
  it('have epochs that only grow, one holder at a time, and nothing for those that are past', () => {
    fc.assert(
      fc.property(steps, script => {
        let stream: Stream = aStream();
        let now = T0;
        const granted: Claim[] = [];
        for (const step of script) {
          now += step.seconds * 1000;
          const before = stream;
          const holder = {worker: `w${step.who >> 1}`, incarnation: step.who & 1};
          const claim = granted[step.claim % Math.max(granted.length, 1)];
          const isLatest = claim !== undefined && claim === granted.at(-1);
          switch (step.do) {
            case 'grant':
              if (!isClaimable(stream)) break;
              stream = grantLease(stream, holder, now);
              assert.ok(stream.epoch > (granted.at(-1)?.epoch ?? 0));
              granted.push({...holder, epoch: stream.epoch});
              break;
            case 'release': {
              const failure = step.outcome === 'failed' ? {kind: step.fault as 'stream', reason: 'no'} : null;
              const released = claim && releaseLease(stream, claim, step.outcome, failure, now);
              if (released && before.status !== 'completed') assert.ok(isLatest && released.lease === null);
              stream = released ?? stream;
              break;
            }
            case 'revoke':
              stream = revokeLease(stream, now);
              break;
            case 'finish':
              stream = withProgress(stream, FINISHED, now);
          }
          assert.equal(
            granted.filter(past => holds(stream, past)).length,
            stream.status === 'in_progress' ? 1 : 0,
          );
          assert.ok(granted.every(past => !holds(stream, past) || past === granted.at(-1)));
          assert.equal(stream.lease !== null, stream.status === 'in_progress');
          assert.ok(stream.epoch >= before.epoch);
          assert.ok(stream.failures <= MAX_FAILURES);
          assert.equal(stream.status === 'completed', stream.finished, 'completed only through the bucket');
          if (before.status === 'completed') assert.equal(stream.status, 'completed');
        }
      }),
      {numRuns: 500},
    );
  });

  const stale: {name: string; claim: Claim}[] = [
    {name: 'an earlier epoch', claim: {...OWN, epoch: 2}},
    {name: 'an epoch that never was', claim: {...OWN, epoch: 4}},
    {name: 'an earlier life of the worker', claim: {...OWN, incarnation: 1}},
    {name: 'another worker', claim: {...OWN, worker: 'tpu-us-central1-a-1'}},
  ];
  for (const {name, claim} of stale)
    it(`${name} does not release`, () => {
      const stream = aLeasedStream();
      for (const outcome of ['completed', 'drained', 'preempted', 'failed'] as const)
        assert.equal(releaseLease(stream, claim, outcome, null, T0), undefined);
    });

  const holder = aWorker({work: 'my-run/007', epoch: 3, claimed_at: at(0), heartbeat_at: at(170)});
  const others: {name: string; stream?: Partial<Stream>; worker?: Partial<Worker>}[] = [
    {name: 'an earlier epoch', worker: {epoch: 2}},
    {name: 'another stream', worker: {work: 'my-run/008'}},
    {name: 'no work', worker: {work: null, epoch: null}},
    {name: 'another life of the worker', worker: {incarnation: 3}},
    {name: 'a stream that is complete', stream: {status: 'completed', lease: null}},
  ];
  for (const {name, stream, worker} of others)
    it(`are not held by a worker whose document says ${name}`, () => {
      assert.equal(isHeldBy(aLeasedStream(), holder), true);
      assert.equal(isHeldBy(aLeasedStream(stream), {...holder, ...worker}), false);
    });

  it('last for as long as their worker says that it has them, and a while longer', () => {
    assert.equal(hasRunOut(holder, 180, moment(T0 + 180_000).served), false);
    assert.equal(hasRunOut(holder, 180, moment(T0 + 180_001).served), true);
    assert.equal(hasRunOut({...holder, claimed_at: at(100)}, 180, moment(T0 + 180_001).served), false);
    assert.equal(hasRunOut({...holder, work: null}, 180, moment(T0 + 180_001).served), false);
  });

  const claimable: {name: string; given: Stream; then: boolean}[] = [
    {name: 'pending', given: aStream(), then: true},
    {name: 'leased', given: aLeasedStream(), then: false},
    {name: 'completed', given: aStream({status: 'completed', finished: true}), then: false},
    {name: 'failed', given: aStream({status: 'failed'}), then: false},
  ];
  for (const {name, given, then} of claimable)
    it(`a ${name} stream ${then ? 'can' : 'cannot'} be claimed`, () =>
      assert.equal(isClaimable(given), then));

  const releases: {
    name: string;
    outcome: Outcome;
    failure?: {kind: 'stream' | 'model' | 'infrastructure'; reason: string};
    given?: Partial<Stream>;
    then: Partial<Stream>;
  }[] = [
    {
      name: 'drained gives the stream back',
      outcome: 'drained',
      then: {status: 'pending', failures: 0, last_error: null},
    },
    {
      name: 'a preemption is no failure',
      outcome: 'preempted',
      then: {status: 'pending', failures: 0, last_error: null},
    },
    {
      name: 'a preemption after two failures is no third one',
      outcome: 'preempted',
      given: {failures: 2, last_error: 'before'},
      then: {status: 'pending', failures: 2, last_error: 'before'},
    },
    {
      name: 'a fault of the machine is noted and not counted',
      outcome: 'failed',
      failure: {kind: 'infrastructure', reason: 'disk full'},
      given: {failures: 2},
      then: {status: 'pending', failures: 2, last_error: 'disk full'},
    },
    {
      name: 'the fifth fault of a machine in a row parks the stream, and says what the last one was',
      outcome: 'failed',
      failure: {kind: 'infrastructure', reason: 'disk full'},
      given: {faults: 4},
      then: {status: 'failed', faults: 5, failures: 0, last_error: 'disk full'},
    },
    {
      name: 'a host whose chips nobody can open is noted, and counted nowhere',
      outcome: 'failed',
      failure: {kind: 'infrastructure', reason: 'Failed to initialize TPU system: busy'},
      given: {failures: 2, faults: 4},
      then: {status: 'pending', failures: 2, faults: 4, last_error: 'Failed to initialize TPU system: busy'},
    },
    {
      name: 'a stream that only speaks of such a host is at fault itself',
      outcome: 'failed',
      failure: {kind: 'stream', reason: 'line 3 says: Failed to initialize TPU system'},
      then: {status: 'pending', failures: 1, last_error: 'line 3 says: Failed to initialize TPU system'},
    },
    {
      name: 'a fault of the stream is counted',
      outcome: 'failed',
      failure: {kind: 'stream', reason: 'not UTF-8'},
      then: {status: 'pending', failures: 1, last_error: 'not UTF-8'},
    },
    {
      name: 'a fault of the model is counted',
      outcome: 'failed',
      failure: {kind: 'model', reason: 'no weights'},
      then: {status: 'pending', failures: 1, last_error: 'no weights'},
    },
    {
      name: 'the third failure parks the stream',
      outcome: 'failed',
      failure: {kind: 'stream', reason: 'not UTF-8'},
      given: {failures: 2},
      then: {status: 'failed', failures: 3, last_error: 'not UTF-8'},
    },
    {
      name: 'a failure without a reason says so',
      outcome: 'failed',
      then: {status: 'pending', failures: 1, last_error: 'the worker gave no reason'},
    },
    {
      name: 'a worker that says completed without the final shard has failed',
      outcome: 'completed',
      then: {status: 'pending', failures: 1, finished: false},
    },
  ];
  for (const {name, outcome, failure, given, then} of releases)
    it(name, () => {
      const released = releaseLease(aLeasedStream(given), OWN, outcome, failure ?? null, T0);
      assert.ok(released);
      const {lease, epoch, ...rest} = released;
      assert.deepEqual({lease, epoch}, {lease: null, epoch: 3});
      for (const [field, value] of Object.entries(then))
        assert.equal(rest[field as keyof typeof rest], value, field);
    });

  it('a release of a completed stream changes nothing, whoever sends it', () => {
    const completed = withProgress(aLeasedStream(), FINISHED, T0);
    assert.equal(completed.status, 'completed');
    for (const outcome of ['completed', 'drained', 'preempted', 'failed'] as const)
      assert.equal(releaseLease(completed, {...OWN, epoch: 1}, outcome, null, T0), completed);
  });

  it('a parked stream whose last shard turns up after all is completed', () => {
    const parked = aStream({status: 'failed', failures: 3, last_error: 'no'});
    const {status, last_error} = withProgress(parked, FINISHED, T0);
    assert.deepEqual([status, last_error], ['completed', null]);
  });

  it('a stored shard shows that machines can do it: their faults are counted anew', () => {
    const progress = {...NOTHING_STORED, total_shards: 1, last_processed_sample_idx: 9};
    const blamed = aLeasedStream({faults: 4});
    assert.equal(withProgress(blamed, progress, T0).faults, 0);
    assert.equal(withRebuilt(blamed, {progress, epoch: 1}, T0).faults, 0);
    assert.equal(withRebuilt(blamed, {progress: NOTHING_STORED, epoch: 0}, T0).faults, 4);
    assert.equal(withProgress(aLeasedStream({failures: 2}), progress, T0).failures, 2);
  });

  it('a checkpoint that is behind does not take anything back', () => {
    const ahead = aStream({total_shards: 5, last_processed_sample_idx: 49});
    assert.equal(withProgress(ahead, {...NOTHING_STORED, total_shards: 4}, T0), ahead);
  });

  const candidate = (changes: Partial<Candidate>): Candidate => ({
    run: 'r',
    spec_hash: 's',
    model: 'm',
    priority: 0,
    run_created_at: at(0),
    stream: '000',
    own: false,
    ...changes,
  });
  const preferences: {name: string; first: Partial<Candidate>; second: Partial<Candidate>}[] = [
    {
      name: 'what it was on before the host restarted, before what it has loaded',
      first: {own: true, spec_hash: 'other'},
      second: {spec_hash: 'loaded'},
    },
    {name: 'priority before what it has loaded', first: {priority: 1}, second: {spec_hash: 'loaded'}},
    {name: 'priority before age', first: {priority: 1, run_created_at: at(9)}, second: {}},
    {
      name: 'the loaded spec before an older run',
      first: {spec_hash: 'loaded', run_created_at: at(9)},
      second: {},
    },
    {
      name: 'the loaded model before an older run',
      first: {model: 'loaded model', run_created_at: at(9)},
      second: {},
    },
    {
      name: 'the loaded spec before another one of its model',
      first: {spec_hash: 'loaded', model: 'loaded model', run_created_at: at(9)},
      second: {model: 'loaded model'},
    },
    {name: 'a negative priority last', first: {}, second: {priority: -1}},
    {name: 'the older run before the index', first: {stream: '009'}, second: {run_created_at: at(1)}},
    {name: 'the index as a number', first: {stream: '999'}, second: {stream: '1000'}},
    {
      name: 'one of two runs of one moment, always the same',
      first: {run: 'a', stream: '009'},
      second: {run: 'b'},
    },
  ];
  for (const {name, first, second} of preferences)
    it(`a worker gets ${name}`, () => {
      const [a, b] = [candidate(first), candidate(second)];
      assert.deepEqual([b, a].sort(byPreference({model: 'loaded model', spec_hash: 'loaded'})), [a, b]);
    });
});
