import assert from 'node:assert/strict';
import {MAX_MACHINE_FAILURES} from '../../../../shared/domain/job/lifecycle.ts';
import {NO_ENVIRONMENT} from '../../../../shared/domain/records/source.ts';
import type {Worker} from '../../../../shared/domain/records/worker.ts';
import {
  decideJobGrant,
  decideJoin,
  type JobGrantState,
} from '../../../../shared/domain/requests/grant-job.ts';
import {aConfig, at, aWorker, T0} from '../../../world/builders.ts';
import {aJob, aRunningJob, HOLDER} from '../../../world/scenes/jobs.ts';
import {A1} from '../../../world/scenes/places.ts';

const POOL = {
  ...{...aConfig().pool, source: {bundle: 'b'.repeat(64)}, source_version: 4},
  environment: {...NO_ENVIRONMENT, jax_version: 'newest', ramfs_dir: '/mnt/ramfs'},
};
const IDLE = aWorker({phase: 'idle', usd_per_hour: 1});
const AT_WORK = aWorker({phase: 'working', work: 'job:my-job', epoch: 3, claimed_at: at(0), usd_per_hour: 1});
const WAITING: JobGrantState = {job: aJob({epoch: 2}), worker: IDLE, hasOtherWork: false};

const SETTINGS = {pool: POOL, bucket: 'bucket', checkpoints_bucket: 'checkpoints', fence_s: 100};
const OTHER = {worker: 'other', incarnation: 1};

const decide = (state: Partial<JobGrantState>) =>
  decideJobGrant({...WAITING, ...state}, 'my-job', HOLDER, SETTINGS, T0);
const orderOf = (state: Partial<JobGrantState>) =>
  decide(state).order as {lease: object; job: Record<string, unknown>};

describe('the grant of a job', () => {
  it('orders the addresses of the own folder of the job and of its inputs', () => {
    const {own_url, inputs} = orderOf({
      job: aJob({inputs: ['run:default', 'gs://bucket/models/m', 'gs://x/models/m']}),
    }).job;
    assert.equal(own_url, 'gs://checkpoints/checkpoints/my-job/own');
    assert.deepEqual(inputs, ['gs://bucket/activations/', 'gs://bucket/models/m/']);
  });

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
    assert.deepEqual([job.source, job.source_version, job.environment], [POOL.source, 4, POOL.environment]);
    const source = {bundle: 'c'.repeat(64)};
    const own = orderOf({job: aJob({source, environment: {ramfs_dir: '/mnt'}})}).job;
    assert.deepEqual(
      [own.source, own.source_version, own.environment],
      [source, null, {...NO_ENVIRONMENT, jax_version: 'newest', ramfs_dir: '/mnt'}],
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
    {
      name: 'a job at work whose pool was edited',
      given: {job: aRunningJob({pool: 'other'}), worker: AT_WORK},
    },
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
      name: 'whose deadline passed while its worker waits for another host',
      given: {job: aJob({deadline_at: at(0)}), worker: {...IDLE, host_count: 2}},
      then: ['failed', 'deadline'],
    },
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
      assert.equal(writes?.worker?.work, given.worker?.work ? null : undefined);
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

describe('the grant of a job of two slices', () => {
  const second = aWorker({name: A1, phase: 'idle', activity: 'idle', usd_per_hour: 1});
  const job = aJob({epoch: 2, slices: 2});
  const members = [HOLDER, {...HOLDER, worker: A1}];
  const lease = {...HOLDER, epoch: 3, host_count: 1, members};

  it('takes as many free slices as the job needs', () => {
    const third = {...second, name: 'tpu-us-central1-a-2'};
    const {writes} = decide({job, others: [IDLE, second, third]});
    assert.deepEqual(writes?.job?.lease?.members, members);
    assert.deepEqual(
      writes?.members?.map(({name, work, epoch}) => [name, work, epoch]),
      [[A1, 'job:my-job', 3]],
    );
  });

  const busy: Partial<Worker>[] = [
    {pool: 'other'},
    {zone: 'us-east1-c'},
    {host_count: 2},
    {phase: 'working'},
    {work: 'my-run/000'},
    {activity: 'running'},
    {recreate: true},
    {fault: 'its chips are gone'},
  ];
  for (const changes of busy)
    it(`waits beside a slice with ${JSON.stringify(changes)}`, () => {
      const {order, writes, waits} = decide({job, others: [{...second, ...changes}]});
      assert.deepEqual([order, writes], [undefined, undefined]);
      assert.match(waits ?? '', /needs 2 slices of one zone, and 1 are ready/);
    });

  it('a job of two slices that has spent its budget ends, and frees both slices', () => {
    const own = aRunningJob({slices: 2, lease, budget_usd: 1, spent_usd: 1});
    const {writes} = decide({
      job: own,
      worker: {...AT_WORK, claimed_at: null},
      others: [{...AT_WORK, name: A1}],
    });
    assert.equal(writes?.endedJob?.after.cause, 'budget');
    assert.deepEqual([writes?.worker?.work, writes?.members?.map(({work}) => work)], [null, [null]]);
  });

  it('gives the other slice its order, unless an end or a loss has come first', () => {
    const running = aRunningJob({slices: 2, lease});
    const [first, other] = [AT_WORK, {...AT_WORK, name: A1}];
    const join = (state: Partial<Parameters<typeof decideJoin>[0]>, host = 0) =>
      decideJoin(
        {job: running, worker: other, others: [first], ...state},
        {...HOLDER, worker: A1, host},
        SETTINGS,
        T0,
      );
    assert.ok(join({})?.order);
    assert.equal(join({worker: {...other, claimed_at: null}}), undefined, 'host 0 has restarted');
    assert.equal(join({worker: {...other, phase: 'deleting'}}), undefined);
    assert.match(join({others: []})?.waits ?? '', /has lost a slice/);
    const end = {outcome: 'completed', cause: null, error: null, exit_code: 0} as const;
    const ends = {1: {...end, result: null, result_path: null, artifacts_path: null, ran: null}};
    assert.match(join({job: {...running, ends}})?.waits ?? '', /1 of 2 hosts have ended/);
  });
});
