import assert from 'node:assert/strict';
import fc from 'fast-check';
import {MAX_FAILURES, type Stream, withProgress} from '../../../../shared/domain/records/stream.ts';
import type {Worker} from '../../../../shared/domain/records/worker.ts';
import {
  type Claim,
  grantLease,
  hasRunOut,
  holds,
  isClaimable,
  isHeldBy,
  type ReleaseOutcome,
  releaseLease,
  revokeLease,
} from '../../../../shared/domain/stream/lease.ts';
import {aLeasedStream, aStream, at, aWorker, moment, NOTHING_STORED, T0} from '../../../world/builders.ts';

const OWN: Claim = {worker: 'tpu-us-central1-a-0', incarnation: 2, epoch: 3};
const FINISHED = {...NOTHING_STORED, total_shards: 1, last_processed_sample_idx: 9, finished: true};

/** Every event of a stream, in any order. `who`: one of three workers, in one of two incarnations. */
const steps = fc.array(
  fc.record({
    do: fc.constantFrom('grant', 'release', 'revoke', 'finish'),
    who: fc.nat(5),
    claim: fc.nat(20),
    outcome: fc.constantFrom<ReleaseOutcome>('completed', 'drained', 'preempted', 'failed'),
    fault: fc.constantFrom('stream', 'model', 'hub', 'infrastructure'),
    seconds: fc.nat(200),
  }),
  {maxLength: 60},
);

describe('leases', () => {
  it('leases have growing epochs and one holder at a time, and past leases are worthless', () => {
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
              stream = grantLease(stream, holder, () => 'key', now);
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
    {name: 'an epoch that was never granted', claim: {...OWN, epoch: 4}},
    {name: 'an earlier incarnation', claim: {...OWN, incarnation: 1}},
    {name: 'another worker', claim: {...OWN, worker: 'tpu-us-central1-a-1'}},
  ];
  for (const {name, claim} of stale)
    it(`a claim with ${name} releases nothing`, () => {
      const stream = aLeasedStream();
      for (const outcome of ['completed', 'drained', 'preempted', 'failed'] as const)
        assert.equal(releaseLease(stream, claim, outcome, null, T0), undefined);
    });

  const holder = aWorker({work: 'my-run/007', epoch: 3, claimed_at: at(0), heartbeat_at: at(170)});
  const others: {name: string; stream?: Partial<Stream>; worker?: Partial<Worker>}[] = [
    {name: 'an earlier epoch', worker: {epoch: 2}},
    {name: 'another stream', worker: {work: 'my-run/008'}},
    {name: 'no work', worker: {work: null, epoch: null}},
    {name: 'another incarnation', worker: {incarnation: 3}},
    {name: 'a lease of a completed stream', stream: {status: 'completed', lease: null}},
  ];
  for (const {name, stream, worker} of others)
    it(`a worker document with ${name} does not hold the lease`, () => {
      assert.equal(isHeldBy(aLeasedStream(), holder), true);
      assert.equal(isHeldBy(aLeasedStream(stream), {...holder, ...worker}), false);
    });

  it('a lease expires lease_s after its last claim', () => {
    assert.equal(hasRunOut(holder, 180, moment(T0 + 180_000).servedTime), false);
    assert.equal(hasRunOut(holder, 180, moment(T0 + 180_001).servedTime), true);
    assert.equal(hasRunOut({...holder, claimed_at: at(100)}, 180, moment(T0 + 180_001).servedTime), false);
    assert.equal(hasRunOut({...holder, work: null}, 180, moment(T0 + 180_001).servedTime), false);
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
});
