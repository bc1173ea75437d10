import assert from 'node:assert/strict';
import {endAttempt, grantJob, type JobEnd} from '../../../../shared/domain/job/lifecycle.ts';
import type {Job, JobAttempt} from '../../../../shared/domain/records/job.ts';
import type {Worker} from '../../../../shared/domain/records/worker.ts';
import {decideFinish} from '../../../../shared/domain/requests/finish-job.ts';
import {aWorker, T0} from '../../../world/builders.ts';
import {aJob, aRunningJob, HOLDER} from '../../../world/scenes/jobs.ts';
import {A1} from '../../../world/scenes/places.ts';

const REQUEST = {host: 0, ...HOLDER, lease: {job: 'my-job', epoch: 3}};
const COMPLETED: JobEnd = {outcome: 'completed', cause: null, error: null, result: '42'};
const BROKEN: JobEnd = {outcome: 'failed', cause: 'machine', error: 'its chips are gone'};
const AT_WORK = aWorker({phase: 'working', work: 'job:my-job', epoch: 3});
const HOST_END = {
  ...({outcome: 'completed', cause: null, error: null, exit_code: 0} as const),
  ...{result: null, result_path: null, artifacts_path: null, ran: null},
};
const FREE = {...AT_WORK, phase: 'idle' as const, work: null, epoch: null};

describe('the decision about the end of an attempt', () => {
  const cases: {
    name: string;
    job?: Job | undefined;
    worker?: Worker;
    end?: JobEnd;
    then: {status: number; job?: Job['status']; worker?: Partial<Worker>};
  }[] = [
    {
      name: 'from its holder ends the job and frees the worker',
      job: aRunningJob(),
      then: {status: 200, job: 'completed', worker: {phase: 'idle', work: null, fault: null}},
    },
    {
      name: 'by a broken machine gives the worker a fault',
      job: aRunningJob(),
      end: BROKEN,
      then: {status: 200, job: 'scheduled', worker: {work: null, fault: 'its chips are gone'}},
    },
    {
      name: 'by a notice of preemption keeps that activity',
      job: aRunningJob(),
      end: {outcome: 'preempted', cause: 'preempted', error: null},
      then: {status: 200, job: 'scheduled', worker: {activity: 'preempted'}},
    },
    {
      name: 'from a worker whose node is being deleted ends only the job',
      job: aRunningJob(),
      worker: {...AT_WORK, phase: 'deleting'},
      then: {status: 200, job: 'completed'},
    },
    {
      name: 'from an earlier incarnation of its worker ends only the job',
      job: aRunningJob(),
      worker: {...AT_WORK, incarnation: 3},
      then: {status: 200, job: 'completed'},
    },
    {
      name: 'by the job itself gives the worker no fault',
      job: aRunningJob(),
      end: {...BROKEN, cause: 'exit'},
      then: {status: 200, job: 'failed', worker: {work: null, fault: null}},
    },
    {
      name: 'that is repeated leaves the next attempt to the worker',
      job: grantJob(endAttempt(aRunningJob(), BROKEN, null, T0), HOLDER, null, T0),
      worker: {...AT_WORK, epoch: 4},
      end: BROKEN,
      then: {status: 200},
    },
    {
      name: 'that differs in its cause from the end by a tick is refused',
      job: endAttempt(aRunningJob(), {...BROKEN, cause: 'timeout'}, null, T0),
      worker: FREE,
      end: BROKEN,
      then: {status: 409},
    },
    {name: 'of a deleted job frees the worker', then: {status: 200, worker: {work: null}}},
    {
      name: 'that is repeated changes nothing',
      job: endAttempt(aRunningJob(), COMPLETED, null, T0),
      worker: FREE,
      then: {status: 200},
    },
    {
      name: 'that a tick has ended otherwise is refused',
      job: endAttempt(aRunningJob(), {...BROKEN, cause: 'timeout'}, null, T0),
      worker: FREE,
      then: {status: 409},
    },
    {name: 'of a job that waits again is refused', job: aJob({epoch: 3}), worker: FREE, then: {status: 409}},
    {
      name: 'of a job under a later epoch is refused',
      job: aRunningJob({epoch: 4, lease: {...HOLDER, epoch: 4, host_count: 1, members: []}}),
      worker: {...AT_WORK, epoch: 4},
      then: {status: 409},
    },
    {name: 'of a deleted job that the worker does not hold is refused', worker: FREE, then: {status: 409}},
  ];
  for (const {name, job, worker = AT_WORK, end = COMPLETED, then} of cases)
    it(name, () => {
      const {answer, writes, wakes} = decideFinish({job, worker, others: []}, REQUEST, end, T0);
      assert.equal(answer.status, then.status);
      assert.equal(wakes ?? false, then.status === 200, 'a repeated report asks for a tick too');
      assert.equal(writes?.endedJob?.after.status, then.job);
      assert.equal(writes?.worker === undefined, then.worker === undefined);
      for (const [field, value] of Object.entries(then.worker ?? {}))
        assert.deepEqual(writes?.worker?.[field as keyof Worker], value, field);
    });

  it('knows a report by its worker, its incarnation and its epoch', () => {
    const job = endAttempt(aRunningJob(), COMPLETED, null, T0);
    const others: Partial<JobAttempt>[] = [{epoch: 2}, {incarnation: 1}, {worker: 'tpu-us-central1-a-1'}];
    const statuses = [{}, ...others].map(change => {
      const attempts = job.attempts.map(attempt => ({...attempt, ...change}));
      return decideFinish({job: {...job, attempts}, worker: FREE, others: []}, REQUEST, COMPLETED, T0).answer
        .status;
    });
    assert.deepEqual(statuses, [200, 409, 409, 409]);
  });

  const TWO_HOSTS = {...AT_WORK, host_count: 2};
  const lease = {...HOLDER, epoch: 3, host_count: 2, members: []};

  it('of host 1 by its own failure ends the attempt of all, and proves no life of host 0', () => {
    const {writes} = decideFinish(
      {job: aRunningJob({lease}), worker: TWO_HOSTS, others: []},
      {...REQUEST, host: 1},
      {...COMPLETED, outcome: 'failed', cause: 'exit', error: 'so'},
      T0,
    );
    assert.equal(writes?.endedJob?.after.error, 'host 1 of 2: so');
    assert.deepEqual([writes?.worker?.work, writes?.worker?.heartbeat_at], [null, TWO_HOSTS.heartbeat_at]);
  });

  it('of a job of two slices frees the other slice, and records a contradiction', () => {
    const other = {...AT_WORK, name: A1};
    const members = [HOLDER, {...HOLDER, worker: A1}];
    const job = aRunningJob({slices: 2, lease: {...lease, host_count: 1, members}, ends: {1: HOST_END}});
    const contradiction = {object: 'jobs/my-job/epoch_3/result', found: 'a', made: 'b'};
    const request = {...REQUEST, contradiction};
    const {writes} = decideFinish({job, worker: AT_WORK, others: [other]}, request, COMPLETED, T0);
    assert.deepEqual([writes?.endedJob?.after.status, writes?.endedJob?.after.result], ['completed', '42']);
    assert.deepEqual(
      writes?.members?.map(({name, work}) => [name, work]),
      [[A1, null]],
    );
    assert.deepEqual(
      writes?.events?.map(({kind, epoch}) => [kind, epoch]),
      [['contradiction', 3]],
    );
    const first = decideFinish(
      {job: {...job, ends: {}}, worker: AT_WORK, others: [other]},
      request,
      COMPLETED,
      T0,
    );
    assert.deepEqual([first.writes?.job?.status, first.writes?.events?.length], ['running', 1]);
  });

  it('of one host counts once, and asks for a tick when it is repeated', () => {
    const first = decideFinish(
      {job: aRunningJob({lease}), worker: TWO_HOSTS, others: []},
      REQUEST,
      COMPLETED,
      T0,
    );
    const job = first.writes?.job ?? assert.fail();
    assert.deepEqual([job.status, Object.keys(job.ends)], ['running', ['0']]);
    const again = decideFinish({job, worker: TWO_HOSTS, others: []}, REQUEST, COMPLETED, T0 + 1);
    assert.deepEqual([again.answer.status, again.writes, again.wakes], [200, undefined, true]);
  });
});
