import assert from 'node:assert/strict';
import type {Stream} from '../../../../shared/domain/records/stream.ts';
import type {Worker} from '../../../../shared/domain/records/worker.ts';
import {
  decideRelease,
  type Release,
  type ReleaseState,
} from '../../../../shared/domain/requests/release-stream.ts';
import {aConfig, aLeasedStream, aRun, aStream, aWorker, T0} from '../../../world/builders.ts';
import {HOLDER} from '../../../world/scenes/jobs.ts';

const RETRY = aConfig().model_retry;
const DRAINED: Release = {
  ...HOLDER,
  lease: {run: 'my-run', stream: '007', epoch: 3},
  outcome: 'drained',
  failure: null,
};
const failedBy = (kind: 'stream' | 'infrastructure', reason = 'it broke'): Release => ({
  ...DRAINED,
  outcome: 'failed',
  failure: {kind, reason},
});
const AT_WORK = aWorker({phase: 'working', work: 'my-run/007', epoch: 3});
const HELD: ReleaseState = {stream: aLeasedStream({total_shards: 2}), worker: AT_WORK, run: aRun()};
const COMPLETED = aStream({status: 'completed', epoch: 3, finished: true});

describe('the decision about a release', () => {
  it('leaves an ended run as it is, and the run of a stream that is complete', () => {
    const failing = (kind: 'model' | 'hub') => ({...failedBy('stream'), failure: {kind, reason: 'no'}});
    const breakerOf = (state: Partial<ReleaseState>, kind: 'model' | 'hub') =>
      decideRelease({...HELD, stream: aLeasedStream(), ...state}, failing(kind), RETRY, T0).writes?.breaker;
    assert.equal(breakerOf({}, 'model')?.after.status, 'failed');
    assert.equal(breakerOf({run: aRun({status: 'stopped'})}, 'model'), undefined);
    assert.equal(breakerOf({}, 'hub')?.after.model_misses, 1);
    assert.equal(breakerOf({stream: COMPLETED}, 'hub'), undefined);
  });

  it('leaves a complete stream complete in a run that a certain failure ended', () => {
    const run = aRun({status: 'failed', certain_failure: 'no family'});
    const release = {...DRAINED, outcome: 'completed' as const};
    assert.equal(
      decideRelease({...HELD, run, stream: COMPLETED}, release, RETRY, T0).writes?.stream,
      undefined,
    );
    assert.equal(decideRelease({...HELD, run}, DRAINED, RETRY, T0).writes?.stream?.status, 'failed');
  });

  const served: {
    name: string;
    request?: Release;
    given?: Partial<ReleaseState>;
    stream: Partial<Stream> | undefined;
    worker: Partial<Worker> | undefined;
    text?: RegExp;
  }[] = [
    {
      name: 'by its holder makes the stream pending and the worker idle',
      stream: {status: 'pending', lease: null, failures: 0},
      worker: {phase: 'idle', work: null, fault: null, suspect: null},
      text: /gave my-run\/007 back: drained$/,
    },
    {
      name: 'after a notice of preemption keeps that activity',
      request: {...DRAINED, outcome: 'preempted'},
      stream: {status: 'pending', failures: 0},
      worker: {activity: 'preempted', work: null},
    },
    {
      name: 'without a shard stays an idle lease',
      given: {
        worker: {...AT_WORK, idle_leases: 2},
        stream: aLeasedStream({total_shards: 2, lease_shards: 2}),
      },
      stream: {ended_epoch: 3},
      worker: {idle_leases: 2},
    },
    {
      name: 'with a stored shard ends the row of idle leases',
      given: {
        worker: {...AT_WORK, idle_leases: 2},
        stream: aLeasedStream({total_shards: 2, lease_shards: 1}),
      },
      stream: {ended_epoch: 3},
      worker: {idle_leases: 0},
    },
    {
      name: 'that the control plane asked for is no idle lease',
      given: {worker: {...AT_WORK, idle_leases: 2, drains: true}, stream: aLeasedStream()},
      stream: {ended_epoch: 3},
      worker: {idle_leases: 1},
    },
    {
      name: 'for an object of another writer charges nothing, and keeps the shards after a gap',
      given: {waiting: [4, 5]},
      request: {
        ...failedBy('stream'),
        failure: {kind: 'stream', reason: 'it broke', contradiction: {object: 'o', found: 'f', made: 'm'}},
      },
      stream: {status: 'pending', failures: 0, failed_workers: [], kept_shards: [4, 5]},
      worker: {phase: 'idle', fault: null, suspect: null},
    },
    {
      name: 'for a failure of the stream keeps the node',
      request: failedBy('stream'),
      stream: {status: 'pending', failures: 1},
      worker: {phase: 'idle', fault: null, suspect: null},
      text: /back: failed, it broke$/,
    },
    {
      name: 'for a failure of the machine gives the worker a fault and suspects the stream',
      request: failedBy('infrastructure'),
      stream: {status: 'pending', failures: 0, faults: 1},
      worker: {fault: 'it broke', suspect: {work: 'my-run/007', epoch: 3, total_shards: 2}},
    },
    {
      name: 'of a complete stream frees the worker',
      given: {stream: COMPLETED},
      stream: undefined,
      worker: {work: null},
    },
    {
      name: 'after a restored database leaves the later work of the worker',
      given: {worker: {...AT_WORK, work: 'my-run/008'}},
      stream: {status: 'pending'},
      worker: undefined,
    },
    {
      name: 'by an incarnation whose node is being deleted frees only the stream',
      given: {worker: {...AT_WORK, phase: 'deleting'}},
      stream: {status: 'pending'},
      worker: undefined,
    },
  ];
  for (const {name, request = DRAINED, given, stream, worker, text} of served)
    it(`${name}, and asks for a tick`, () => {
      const {answer, writes, wakes} = decideRelease({...HELD, ...given}, request, RETRY, T0);
      assert.deepEqual([answer.status, wakes], [200, true]);
      for (const [after, expected] of [
        [writes?.stream, stream],
        [writes?.worker, worker],
      ] as const) {
        assert.equal(after === undefined, expected === undefined);
        for (const [field, value] of Object.entries(expected ?? {}))
          assert.deepEqual(after?.[field as keyof typeof after], value, field);
      }
      if (text) assert.match(writes?.events?.[0]?.text ?? '', text);
    });

  const refused: {name: string; given: Partial<ReleaseState>; status: number}[] = [
    {
      name: 'of a lease that ended',
      given: {stream: aStream({epoch: 3}), worker: {...AT_WORK, work: null}},
      status: 409,
    },
    {
      name: 'of the lease of another worker',
      given: {
        stream: aLeasedStream({lease: {worker: 'tpu-us-central1-a-1', incarnation: 1, epoch: 3}}),
        worker: {...AT_WORK, work: 'my-run/008'},
      },
      status: 409,
    },
    {
      name: 'that is repeated after the stream is complete',
      given: {stream: COMPLETED, worker: {...AT_WORK, work: null}},
      status: 200,
    },
  ];
  for (const {name, given, status} of refused)
    for (const outcome of ['completed', 'drained', 'preempted', 'failed'] as const)
      it(`${name} is answered with ${status} and changes nothing, with outcome ${outcome}`, () => {
        const {answer, ...rest} = decideRelease({...HELD, ...given}, {...DRAINED, outcome}, RETRY, T0);
        assert.equal(answer.status, status);
        assert.deepEqual(rest, {});
      });

  it('counts a stream in its run that its fifth machine fails, and no stream that fails by itself', () => {
    const stream = aLeasedStream({faults: 4, failures: 2});
    const counts = [failedBy('infrastructure'), failedBy('stream')].map(request => {
      const {writes} = decideRelease({...HELD, stream}, request, RETRY, T0);
      assert.equal(writes?.stream?.status, 'failed');
      assert.match(writes?.events?.[0]?.text ?? '', /it broke; it has failed$/);
      return writes?.breaker?.after.machine_failed_streams;
    });
    assert.deepEqual(counts, [1, undefined]);
  });

  it('keeps at most 2000 characters of a fault, and no half of a character', () => {
    const {writes} = decideRelease(
      HELD,
      failedBy('infrastructure', `${'x'.repeat(1999)}\u{1F600}`),
      RETRY,
      T0,
    );
    assert.equal(writes?.worker?.fault, `${'x'.repeat(1999)}\ufffd`);
  });
});
