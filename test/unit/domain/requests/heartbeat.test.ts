import assert from 'node:assert/strict';
import {NO_HOST, NO_WORK, type Phase, type Worker} from '../../../../shared/domain/records/worker.ts';
import {heardFrom} from '../../../../shared/domain/requests/heard-from.ts';
import {
  decideHeartbeat,
  decideHostHeartbeat,
  type Heartbeat,
  type HeartbeatState,
  hasRestarted,
} from '../../../../shared/domain/requests/heartbeat.ts';
import type {RequestDecision} from '../../../../shared/domain/requests/requests.ts';
import {aLeasedStream, aRun, aStream, at, aWorker, T0} from '../../../world/builders.ts';
import {aRunningJob, HOLDER as OWN} from '../../../world/scenes/jobs.ts';
import {wellIn} from '../worker/lifecycle-cases.ts';

describe('a worker after a heartbeat', () => {
  const said = (activity: string, work: string | null) => ({...NO_WORK, activity, work});
  const cases: {given: Phase; says: [string, string | null]; then: Phase}[] = [
    {given: 'creating', says: ['setup', null], then: 'booting'},
    {given: 'creating', says: ['idle', null], then: 'idle'},
    {given: 'booting', says: ['setup', null], then: 'booting'},
    {given: 'booting', says: ['idle', null], then: 'idle'},
    {given: 'idle', says: ['loading', 'my-run/007'], then: 'working'},
    {given: 'working', says: ['uploading', 'my-run/007'], then: 'working'},
    {given: 'working', says: ['idle', null], then: 'idle'},
    {given: 'working', says: ['setup', null], then: 'booting'},
    {given: 'draining', says: ['running', 'my-run/007'], then: 'draining'},
    {given: 'draining', says: ['idle', null], then: 'draining'},
    {given: 'draining', says: ['setup', null], then: 'draining'},
  ];
  for (const {given, says, then} of cases)
    it(`a worker in phase ${given} that says "${says[0]}" ${says[1] ? 'at work ' : ''}becomes ${then}`, () => {
      const heard = heardFrom(wellIn(given), said(...says), T0 + 5000);
      assert.equal(heard.phase, then);
      assert.equal(heard.heartbeat_at, at(5));
      assert.equal(
        heard.phase_since_at,
        given === then ? at(0) : at(5),
        'the time in an unchanged phase continues',
      );
      assert.equal(heard.work, says[1]);
    });

  it('keeps the last error of its slot until its agent works', () => {
    const booting = aWorker({phase: 'booting', last_error: 'its boot failed'});
    assert.equal(heardFrom(booting, said('setup', null), T0).last_error, 'its boot failed');
    assert.equal(heardFrom(booting, said('idle', null), T0).last_error, null);
  });

  it('has the time of its last progress, which a repeated heartbeat does not change', () => {
    const working = {activity: 'running', work: 'my-run/007', samples_done: 4};
    const worker = aWorker({phase: 'working', ...working, progress_at: at(1)});
    const progress = (changes: Partial<Worker>) =>
      heardFrom(worker, {...NO_WORK, ...working, ...changes, activity: 'running'}, T0 + 9000).progress_at;
    assert.deepEqual([progress({}), progress({samples_done: 5})], [at(1), at(9)]);
  });

  it('keeps the stream that it lost by its silence only if its machine has failed', () => {
    const suspect = {work: 'my-run/007', epoch: 3, total_shards: 1};
    for (const fault of [null, 'the disk is full'])
      assert.deepEqual(
        heardFrom(aWorker({phase: 'idle', suspect, fault}), said('idle', null), T0).suspect,
        fault === null ? null : suspect,
      );
  });

  for (const [provisioning, ready_s] of [
    ['node', 0],
    ['queued-resource', 9000],
  ] as const)
    it(`an unseen node requested as ${provisioning} is billed from second ${ready_s} after its first heartbeat`, () => {
      const given = aWorker({phase: 'creating', provisioning});
      const said = {...NO_WORK, activity: 'setup'};
      assert.equal(heardFrom(given, said, T0 + 9_000_000).ready_at, at(ready_s));
      assert.equal(heardFrom(given, said, T0 + 200_000).ready_at, at(200));
    });
});

describe('the decision about a heartbeat of a host other than host 0', () => {
  const says = (worker: Worker, request: Partial<Heartbeat>) =>
    decideHostHeartbeat(
      {worker},
      {...OWN, host: 1, phase: 'idle', lease: null, progress: null, ...request},
      T0 + 60_000,
      {silent_s: 60, region: null},
    );
  const slice = aWorker({phase: 'draining', host_count: 2, work: 'job:my-job', epoch: 3});
  const up = {...slice, hosts: {1: {...NO_HOST, phase: 'running', heartbeat_at: at(0)}}};

  it('keeps a host of a draining slice until the attempt of its slice ends', () => {
    const actionOf = ({answer}: RequestDecision) => (answer.body as {action: string}).action;
    assert.equal(actionOf(says(up, {})), 'continue');
    assert.equal(actionOf(says({...up, ...NO_WORK}, {})), 'exit');
  });

  it('leaves a slice draining whose host boots again, and boots any other', () => {
    const heard = (phase: Phase) => says({...up, phase}, {phase: 'setup'}).writes?.worker;
    for (const [phase, then] of [
      ['draining', 'draining'],
      ['working', 'booting'],
    ] as const)
      assert.deepEqual([heard(phase)?.phase, heard(phase)?.work], [then, null]);
  });

  it('names the code that is ready, and none while it is prepared', () => {
    const report = {version: 2, ran: null, error: null};
    const known = (status: 'ready' | 'preparing') =>
      says(up, {source_report: {...report, status}}).writes?.worker?.hosts[1]?.source_version;
    assert.deepEqual([known('ready'), known('preparing')], [2, null]);
  });
});

describe('the decision about a heartbeat', () => {
  const lease = {run: 'my-run', stream: '007', epoch: 3};
  const job = {job: 'my-job', epoch: 3};
  const ON_STREAM = {
    phase: 'working',
    work: 'my-run/007',
    epoch: 3,
    claimed_at: at(0),
    drains: false,
    yields_to: null,
  } as const;
  const ON_JOB = {...ON_STREAM, work: 'job:my-job'} as const;
  const FREE = {work: null, epoch: null, drains: false};
  const cases: {
    name: string;
    worker: Partial<Worker>;
    documents?: Partial<HeartbeatState>;
    says?: Partial<Heartbeat>;
    action: string;
    then: Partial<Worker>;
  }[] = [
    {
      name: 'a heartbeat without a lease keeps the lease that the worker has not received yet',
      worker: ON_STREAM,
      says: {lease: null},
      action: 'continue',
      then: ON_STREAM,
    },
    {
      name: 'a claim that the document proves renews the lease',
      worker: ON_STREAM,
      action: 'continue',
      then: {...ON_STREAM, claimed_at: at(60)},
    },
    {
      name: 'a claim of an earlier epoch stops the work, and releases no later lease',
      worker: {...ON_STREAM, epoch: 4},
      action: 'stop',
      then: {...ON_STREAM, epoch: 4},
    },
    {
      name: 'a claim that only the stream proves gives the worker its lease back',
      worker: {phase: 'idle'},
      documents: {stream: aLeasedStream(), run: aRun()},
      action: 'continue',
      then: {...ON_STREAM, claimed_at: at(60)},
    },
    {
      name: 'a claim of a stream that a paused run has drains the worker',
      worker: {phase: 'idle'},
      documents: {stream: aLeasedStream(), run: aRun({status: 'paused'})},
      action: 'drain',
      then: {drains: true, work: 'my-run/007'},
    },
    {
      name: 'a claim of a stream of a stopped run stops the work',
      worker: {phase: 'idle'},
      documents: {stream: aLeasedStream(), run: aRun({status: 'stopped'})},
      action: 'stop',
      then: FREE,
    },
    {
      name: 'a claim of a stream that another worker holds stops the work',
      worker: {phase: 'idle'},
      documents: {
        stream: aLeasedStream({lease: {worker: 'tpu-us-central1-a-1', incarnation: 2, epoch: 3}}),
        run: aRun(),
      },
      action: 'stop',
      then: FREE,
    },
    {
      name: 'a worker that drains for its run finishes its shard',
      worker: {...ON_STREAM, drains: true},
      action: 'drain',
      then: {...ON_STREAM, drains: true, claimed_at: at(60)},
    },
    {
      name: 'a worker that gives its stream back for a job finishes its shard, however often it claims the stream',
      worker: {...ON_STREAM, yields_to: 'my-job'},
      action: 'drain',
      then: {...ON_STREAM, yields_to: 'my-job', claimed_at: at(60)},
    },
    {
      name: 'a late claim about a paused run leaves the next stream at work',
      worker: {...ON_STREAM, work: 'other/000'},
      documents: {stream: aLeasedStream({status: 'pending', lease: null}), run: aRun({status: 'paused'})},
      action: 'stop',
      then: {...ON_STREAM, work: 'other/000'},
    },
    {
      name: 'a worker that is not wanted drains with work',
      worker: {...ON_STREAM, phase: 'draining'},
      action: 'drain',
      then: {phase: 'draining', work: 'my-run/007'},
    },
    {
      name: 'a worker that is not wanted exits without work',
      worker: {phase: 'draining'},
      says: {lease: null},
      action: 'exit',
      then: FREE,
    },
    {
      name: 'a claim of a running job renews its lease',
      worker: ON_JOB,
      documents: {job: aRunningJob()},
      says: {lease: job},
      action: 'continue',
      then: {...ON_JOB, claimed_at: at(60)},
    },
    {
      name: 'a claim of a deleted job stops the work, and the worker is free',
      worker: ON_JOB,
      says: {lease: job},
      action: 'stop',
      then: {...FREE, phase: 'idle'},
    },
    {
      name: 'a restart of the host ends the claim of its lease',
      worker: ON_STREAM,
      says: {phase: 'setup', lease: null},
      action: 'continue',
      then: {work: 'my-run/007', claimed_at: null, phase: 'booting'},
    },
  ];
  for (const {name, worker: changes, documents, says, action, then} of cases)
    it(name, () => {
      const worker = aWorker({ready_at: at(0), ...changes});
      const request = {...OWN, host: 0, phase: 'running', lease, progress: null, ...says};
      const {answer, writes} = decideHeartbeat({worker, ...documents}, request, T0 + 60_000, {
        lease_s: 180,
        region: null,
      });
      const body = answer.body as {action: string; lease_expires_at: string | null};
      assert.equal(body.action, action);
      for (const [field, value] of Object.entries(then))
        assert.deepEqual(writes?.worker?.[field as keyof Worker], value, field);
      const isRenewed = writes?.worker?.claimed_at === at(60);
      assert.equal(body.lease_expires_at, isRenewed ? at(240) : null);
    });

  const suspect = {work: 'my-run/007', epoch: 3, total_shards: 0};
  const restarts: {name: string; worker?: Partial<Worker>; faults: number; then: number | undefined}[] = [
    {name: 'charges the stream that the worker lost by silence', faults: 0, then: 1},
    {name: 'fails the stream at its fifth fault', faults: 4, then: 5},
    {
      name: 'charges no stream after a repair by Google',
      worker: {health: 'UNHEALTHY_MAINTENANCE', provider_state: 'READY'},
      faults: 0,
      then: undefined,
    },
    {name: 'charges no stream while the host boots', worker: {phase: 'booting'}, faults: 0, then: undefined},
  ];
  for (const {name, worker: changes, faults, then} of restarts)
    it(`a restart ${name}`, () => {
      const worker = aWorker({phase: 'idle', ready_at: at(0), suspect, ...changes});
      const request = {...OWN, host: 0, phase: 'setup', lease: null, progress: null};
      const suspected = hasRestarted(worker, request) ? aStream({epoch: 3, faults}) : undefined;
      const state = {worker, suspected, suspectedRun: aRun()};
      const {writes} = decideHeartbeat(state, request, T0, {lease_s: 180, region: null});
      assert.equal(writes?.stream?.faults, then);
      assert.equal(writes?.stream?.status, then === 5 ? 'failed' : then && 'pending');
      assert.equal(writes?.breaker?.after.machine_failed_streams, then === 5 ? 1 : undefined);
      assert.equal(/failed after 5 machines/.test(writes?.events?.[0]?.text ?? ''), then === 5);
    });
});
