import assert from 'node:assert/strict';
import {MAX_FAULTS, type Stream, withProgress} from '../../../../shared/domain/records/stream.ts';
import {
  type Claim,
  chargeSuspect,
  type ReleaseOutcome,
  releaseLease,
  suspectOf,
  suspectUntilHeard,
} from '../../../../shared/domain/stream/lease.ts';
import {aLeasedStream, aStream, at, aWorker, moment, NOTHING_STORED, T0} from '../../../world/builders.ts';

const OWN: Claim = {worker: 'tpu-us-central1-a-0', incarnation: 2, epoch: 3};

describe('the release of a lease', () => {
  const releases: {
    name: string;
    outcome?: ReleaseOutcome;
    failure?: {kind: 'stream' | 'model' | 'hub' | 'infrastructure'; reason: string};
    given?: Partial<Stream>;
    then: Partial<Stream>;
  }[] = [
    {
      name: 'a drained worker releases its stream',
      outcome: 'drained',
      then: {status: 'pending', failures: 0, last_error: null},
    },
    {
      name: 'a preemption is no failure',
      outcome: 'preempted',
      then: {status: 'pending', failures: 0, last_error: null},
    },
    {
      name: 'a preemption after two failures is no third failure',
      outcome: 'preempted',
      given: {failures: 2, last_error: 'before'},
      then: {status: 'pending', failures: 2, last_error: 'before'},
    },
    {
      name: 'a fault of the machine is recorded and is no failure',
      failure: {kind: 'infrastructure', reason: 'disk full'},
      given: {failures: 2},
      then: {status: 'pending', failures: 2, last_error: 'disk full'},
    },
    {
      name: 'the fifth machine fault in a row fails the stream with the reason of the last fault',
      failure: {kind: 'infrastructure', reason: 'disk full'},
      given: {faults: 4},
      then: {status: 'failed', faults: 5, failures: 0, last_error: 'disk full'},
    },
    {
      name: 'a bad host is recorded and counts as nothing',
      failure: {kind: 'infrastructure', reason: 'Failed to initialize TPU system: busy'},
      given: {failures: 2, faults: 4},
      then: {status: 'pending', failures: 2, faults: 4, last_error: 'Failed to initialize TPU system: busy'},
    },
    {
      name: 'a failure of the stream that quotes a bad host is a failure',
      failure: {kind: 'stream', reason: 'line 3 says: Failed to initialize TPU system'},
      then: {status: 'pending', failures: 1, last_error: 'line 3 says: Failed to initialize TPU system'},
    },
    {
      name: 'a failure of the stream counts',
      failure: {kind: 'stream', reason: 'not UTF-8'},
      then: {status: 'pending', failures: 1, last_error: 'not UTF-8'},
    },
    {
      name: 'a failure of the model counts',
      failure: {kind: 'model', reason: 'no weights'},
      then: {status: 'pending', failures: 1, last_error: 'no weights'},
    },
    {
      name: 'a model that the hub does not deliver counts as nothing',
      failure: {kind: 'hub', reason: 'no answer'},
      given: {failures: 2, faults: 4},
      then: {status: 'pending', failures: 2, faults: 4, last_error: 'no answer'},
    },
    {
      name: 'the third failure fails the stream',
      failure: {kind: 'stream', reason: 'not UTF-8'},
      given: {failures: 2},
      then: {status: 'failed', failures: 3, last_error: 'not UTF-8'},
    },
    {
      name: 'a failure without a reason has a reason that says so',
      then: {status: 'pending', failures: 1, last_error: 'the worker gave no reason'},
    },
    {
      name: 'a release as completed without the final shard is a failure',
      outcome: 'completed',
      then: {status: 'pending', failures: 1, finished: false},
    },
  ];
  for (const {name, outcome = 'failed', failure, given, then} of releases)
    it(name, () => {
      const released = releaseLease(aLeasedStream(given), OWN, outcome, failure ?? null, T0);
      assert.ok(released);
      const {lease, epoch, ...rest} = released;
      assert.deepEqual({lease, epoch}, {lease: null, epoch: 3});
      for (const [field, value] of Object.entries(then))
        assert.equal(rest[field as keyof typeof rest], value, field);
    });

  it('a release of a completed stream changes nothing, with any claim', () => {
    const finished = {...NOTHING_STORED, total_shards: 1, last_processed_sample_idx: 9, finished: true};
    const completed = withProgress(aLeasedStream(), finished, T0);
    assert.equal(completed.status, 'completed');
    for (const outcome of ['completed', 'drained', 'preempted', 'failed'] as const)
      assert.equal(releaseLease(completed, {...OWN, epoch: 1}, outcome, null, T0), completed);
  });

  it('a worker whose host broke makes its stream no suspect', () => {
    const worker = aWorker({phase: 'working', work: 'my-run/000', epoch: 1, heartbeat_at: at(0)});
    const symptoms = [{symptom: 'MESH_BUILD_FAIL', created_at: at(1), details: ''}];
    assert.ok(suspectUntilHeard(worker, aStream()));
    assert.equal(suspectUntilHeard({...worker, symptoms}, aStream()), null);
  });

  it('a worker that sent something after its last claim makes its stream a suspect when it is silent for the time of a lease', () => {
    const worker = aWorker({phase: 'working', work: 'my-run/007', epoch: 3, claimed_at: at(0)});
    const isSuspect = (heartbeat_s: number, now_s: number) => {
      const {servedTime} = moment(T0 + now_s * 1000);
      return suspectOf({...worker, heartbeat_at: at(heartbeat_s)}, aStream(), 90, servedTime) !== null;
    };
    assert.deepEqual([isSuspect(0, 91), isSuspect(30, 91), isSuspect(30, 121)], [true, false, true]);
  });

  it('a charge leaves a stream with its present worker, and a stream that is over as it is', () => {
    const worker = aWorker({suspect: {work: 'my-run/007', epoch: 2, total_shards: 0}});
    const charge = (stream: Stream) => chargeSuspect(stream, worker, 'died', T0);
    const held = aLeasedStream();
    assert.deepEqual(charge(held), {
      ...held,
      faulted_workers: ['tpu-us-central1-a-0/2'],
      faults: 1,
      last_error: `${worker.name} died`,
    });
    assert.equal(charge(aStream({faults: MAX_FAULTS - 1})).status, 'failed');
    for (const status of ['completed', 'failed'] as const) {
      const over = aStream({status});
      assert.equal(charge(over), over);
    }
  });
});
