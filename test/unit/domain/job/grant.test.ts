import assert from 'node:assert/strict';
import {decideJobGrant, type JobGrantState} from '../../../../shared/domain/job/grant.ts';
import {MAX_MACHINE_FAILURES} from '../../../../shared/domain/job/lifecycle.ts';
import {NO_ENVIRONMENT} from '../../../../shared/domain/source/source.ts';
import {aConfig, at, aWorker, T0} from '../../../support/builders.ts';
import {aJob, aRunningJob, HOLDER} from '../../../support/jobs.ts';

const POOL = {...aConfig().pool, source: {bundle: 'b'.repeat(64)}, source_version: 4};
const IDLE = aWorker({phase: 'idle', usd_per_hour: 1});
const AT_WORK = aWorker({phase: 'working', work: 'job:my-job', epoch: 3, claimed_at: at(0), usd_per_hour: 1});
const WAITING: JobGrantState = {job: aJob({epoch: 2}), worker: IDLE, hasOtherWork: false};

const OTHER = {worker: 'other', incarnation: 1};

const decide = (state: Partial<JobGrantState>) =>
  decideJobGrant({...WAITING, ...state}, 'my-job', HOLDER, {pool: POOL, bucket: 'bucket'}, T0);
const orderOf = (state: Partial<JobGrantState>) =>
  decide(state).order as {lease: object; job: Record<string, unknown>};

describe('the grant of a job', () => {
  it('leases the job in both documents, under the next epoch', () => {
    const {job, worker, events} = decide({}).writes ?? {};
    assert.deepEqual(
      [job?.status, job?.lease],
      ['running', {...HOLDER, epoch: 3, host_count: 1, members: []}],
    );
    assert.equal(job?.log_path, 'gs://bucket/jobs/my-job/epoch_3/output/');
    assert.deepEqual([worker?.phase, worker?.work, worker?.epoch], ['working', 'job:my-job', 3]);
    assert.equal(events?.[0]?.text, `${HOLDER.worker} runs job my-job, attempt 3`);
  });

  it('orders the source and the environment of the pool, unless the job has its own', () => {
    const {lease, job} = orderOf({});
    assert.deepEqual(lease, {job: 'my-job', epoch: 3});
    assert.deepEqual([job.source, job.source_version, job.environment], [POOL.source, 4, NO_ENVIRONMENT]);
    const source = {bundle: 'c'.repeat(64)};
    const own = orderOf({job: aJob({source, environment: {ramfs_dir: '/mnt'}})}).job;
    assert.deepEqual(
      [own.source, own.source_version, own.environment],
      [source, null, {...NO_ENVIRONMENT, ramfs_dir: '/mnt'}],
    );
  });

  const refusals: {name: string; given: Partial<JobGrantState>; frees?: boolean}[] = [
    {
      name: 'a job that another worker took',
      given: {job: aRunningJob({lease: {...HOLDER, incarnation: 9, epoch: 3, host_count: 1, members: []}})},
    },
    {
      name: 'an attempt that another slice began after the search',
      given: {
        job: aRunningJob({slices: 2, lease: {...OTHER, epoch: 3, host_count: 1, members: [OTHER, HOLDER]}}),
        worker: AT_WORK,
      },
    },
    {name: 'a job of another pool', given: {job: aJob({pool: 'other'})}},
    {name: 'a job that is not checked yet', given: {job: aJob({status: 'pending'})}},
    {name: 'to a worker that holds other work', given: {hasOtherWork: true}},
    {name: 'to a worker of another incarnation', given: {worker: {...IDLE, incarnation: 3}}},
    {name: 'to a worker that goes', given: {worker: {...IDLE, phase: 'deleting'}}},
    {name: 'a deleted job, and frees its worker', given: {job: undefined, worker: AT_WORK}, frees: true},
    {
      name: 'a job that left its worker, and frees the worker',
      given: {
        job: aRunningJob({lease: {...HOLDER, incarnation: 9, epoch: 4, host_count: 1, members: []}}),
        worker: AT_WORK,
      },
      frees: true,
    },
  ];
  for (const {name, given, frees = false} of refusals)
    it(`leases nothing: ${name}`, () => {
      const {order, writes} = decide(given);
      assert.equal(order, undefined);
      assert.deepEqual(Object.keys(writes ?? {}), frees ? ['worker'] : []);
      if (frees) assert.deepEqual([writes?.worker?.work, writes?.worker?.epoch], [null, null]);
    });

  const ends: {name: string; given: Partial<JobGrantState>; then: [string, string | null]}[] = [
    {name: 'whose deadline passed', given: {job: aJob({deadline_at: at(0)})}, then: ['failed', 'deadline']},
    {
      name: 'whose last machine restarted',
      given: {
        job: aRunningJob({machine_failures: MAX_MACHINE_FAILURES - 1}),
        worker: {...AT_WORK, claimed_at: null},
      },
      then: ['failed', 'machine'],
    },
    {
      name: 'whose budget was spent by the attempt before',
      given: {job: aRunningJob({budget_usd: 1, spent_usd: 1}), worker: AT_WORK},
      then: ['failed', 'budget'],
    },
  ];
  for (const {name, given, then} of ends)
    it(`ends a job ${name}, and frees its worker`, () => {
      const {order, writes} = decide(given);
      const {status, cause} = writes?.endedJob?.after ?? {};
      assert.deepEqual([order, status, cause], [undefined, ...then]);
      assert.equal(writes?.worker?.work, given.worker ? null : undefined);
    });

  const again: {name: string; claimed_at: string | null; then: [string, number]}[] = [
    {name: 'after a lost answer, and charges no machine', claimed_at: at(0), then: ['preempted', 0]},
    {name: 'after a restart, and charges the machine', claimed_at: null, then: ['failed', 1]},
  ];
  for (const {name, claimed_at, then} of again)
    it(`leases the worker its own job again ${name}`, () => {
      const {order, writes} = decide({job: aRunningJob(), worker: {...AT_WORK, claimed_at}});
      assert.ok(order);
      const {job} = writes ?? {};
      assert.deepEqual([job?.attempts[0]?.outcome, job?.machine_failures], then);
      assert.deepEqual([job?.status, job?.epoch], ['running', 4]);
    });
});
