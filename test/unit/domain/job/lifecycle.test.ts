import assert from 'node:assert/strict';
import {
  endAttempt,
  endByDeath,
  endByExpiry,
  endOfDue,
  endProcess,
  grantJob,
  grantProblem,
  type JobEnd,
  MAX_MACHINE_FAILURES,
  processOf,
  scheduleJob,
} from '../../../../shared/domain/job/lifecycle.ts';
import {isWaiting, longestWaiting, queuePlace, rankIn} from '../../../../shared/domain/job/queue.ts';
import type {Cause} from '../../../../shared/domain/records/causes.ts';
import type {Job} from '../../../../shared/domain/records/job.ts';
import type {Death} from '../../../../shared/domain/worker/liveness.ts';
import {at, aWorker, T0} from '../../../world/builders.ts';
import {aJob, aRunningJob, HOLDER} from '../../../world/scenes/jobs.ts';
import {A0, A1} from '../../../world/scenes/places.ts';

const MINUTE = T0 + 60_000;
const failed = (cause: Cause, error = 'it broke'): JobEnd => ({outcome: 'failed', cause, error});

const RAN = {
  ...{bundle: null, worker_bundle: null, repo: null, commit: null},
  jax_version: '0.4.30',
  environment: null,
};

describe('the end of an attempt', () => {
  const cases: {name: string; given?: Partial<Job>; when: JobEnd; then: Partial<Job>}[] = [
    {
      name: 'completed keeps the result and ends the job',
      given: {reason: 'no TPU is free'},
      when: {
        outcome: 'completed',
        cause: null,
        error: null,
        result: '42',
        result_path: 'gs://b/r',
        exit_code: 0,
      },
      then: {
        ...{status: 'completed', result: '42', result_path: 'gs://b/r', exit_code: 0, cause: null},
        ...{error: null, reason: null, completed_at: at(60)},
      },
    },
    ...(['exit', 'timeout', 'memory', 'disk', 'output', 'result'] as const).map(cause => ({
      name: `${cause} without a retry left fails the job`,
      when: failed(cause),
      then: {status: 'failed' as const, cause, error: 'it broke', failures: 1},
    })),
    ...(['exit', 'timeout', 'memory', 'disk', 'output', 'result'] as const).map(cause => ({
      name: `${cause} with a retry left makes the job wait again`,
      given: {max_retries: 1},
      when: failed(cause),
      then: {status: 'scheduled' as const, failures: 1, machine_failures: 0},
    })),
    ...(['source', 'setup', 'isolation', 'invalid'] as const).map(cause => ({
      name: `${cause} fails the job in spite of its retries`,
      given: {max_retries: 9},
      when: failed(cause),
      then: {status: 'failed' as const, cause, failures: 0},
    })),
    ...(['preempted', 'drained'] as const).map(outcome => ({
      name: `${outcome} costs the job nothing, and keeps its time and its deadline`,
      given: {deadline_at: at(999)},
      when: {outcome, cause: outcome, error: null},
      then: {
        ...{status: 'scheduled' as const, failures: 0, machine_failures: 0, cause: null, error: null},
        ...{scheduled_at: at(0), due_at: at(999)},
      },
    })),
    ...(['machine', 'tpu', 'checkpoint', 'peer'] as const).map(cause => ({
      name: `${cause} counts apart from the retries, and leaves no code of an earlier attempt`,
      given: {ran: RAN},
      when: failed(cause),
      then: {status: 'scheduled' as const, failures: 0, machine_failures: 1, ran: null},
    })),
    {
      name: 'machine fails the job that has ended many machines',
      given: {machine_failures: MAX_MACHINE_FAILURES - 1, max_retries: 9},
      when: failed('machine'),
      then: {status: 'failed', cause: 'machine', failures: 0, machine_failures: MAX_MACHINE_FAILURES},
    },
    {
      name: 'cancelled ends the job',
      when: {outcome: 'cancelled', cause: 'cancelled', error: 'cancelled by a message'},
      then: {status: 'cancelled', cause: 'cancelled'},
    },
  ];
  for (const {name, given = {}, when, then} of cases)
    it(name, () => {
      const job = endAttempt(aRunningJob(given), when, 6, MINUTE);
      const found = Object.fromEntries(Object.keys(then).map(key => [key, job[key as keyof Job]]));
      assert.deepEqual(found, then);
      assert.deepEqual([job.lease, job.epoch], [null, 3]);
      assert.equal(job.queue, job.status === 'scheduled' ? queuePlace(job) : null);
      const [attempt] = job.attempts;
      assert.deepEqual(
        [attempt?.epoch, attempt?.worker, attempt?.outcome, attempt?.cost_usd],
        [3, HOLDER.worker, when.outcome, 0.1],
      );
      assert.equal(job.spent_usd, 0.1);
    });

  it('is not before its start if the clock of the process is slow', () => {
    const {attempts, spent_usd} = endAttempt(aRunningJob(), failed('exit'), 6, T0 - 5000);
    assert.deepEqual([attempts[0]?.ended_at, attempts[0]?.cost_usd, spent_usd], [at(0), 0, 0]);
  });

  it('keeps the newest fifty attempts, and their errors short', () => {
    let job = aRunningJob({max_retries: 100});
    for (let attempt = 0; attempt < 60; attempt++) {
      const ended = endAttempt(job, failed('exit', '€'.repeat(20_000)), null, T0);
      job = grantJob(ended, HOLDER, null, T0);
    }
    assert.deepEqual([job.attempts.length, job.attempts[0]?.epoch, job.attempts.at(-1)?.epoch], [50, 13, 62]);
    assert.ok(JSON.stringify(job).length < 100_000);
  });

  it('keeps an ended job for thirty days, or until the later time that a person gave', () => {
    const days = (count: number) => at(60 + count * 86_400);
    const expiry = (expire_at: string | null) =>
      endAttempt(aRunningJob({expire_at}), failed('exit'), null, MINUTE).expire_at;
    assert.deepEqual([null, days(1), days(90)].map(expiry), [days(30), days(30), days(90)]);
  });

  it('without a price has no cost, and changes no money', () => {
    const job = endAttempt(aRunningJob({spent_usd: 1}), failed('exit'), null, MINUTE);
    assert.deepEqual([job.attempts[0]?.cost_usd, job.spent_usd], [null, 1]);
  });
});

describe('the end that a worker gives to its job', () => {
  const deaths: {death: Death['kind'] | undefined; then: string}[] = [
    ...(['silent', 'hung', 'crashed', 'broken'] as const).map(death => ({death, then: 'failed machine'})),
    ...(['taken', 'setup', 'unheard', 'asked'] as const).map(death => ({death, then: 'preempted preempted'})),
    {death: undefined, then: 'drained drained'},
  ];
  for (const {death, then} of deaths)
    it(`by its death (${death ?? 'none'}) is ${then}`, () => {
      const {outcome, cause} = endByDeath('tpu', death && {kind: death, cause: 'so'});
      assert.equal(`${outcome} ${cause}`, then);
    });

  it('by an expired lease is a failure of the machine, unless Google repairs the node', () => {
    const worker = aWorker({phase: 'working', provider_state: 'READY', health: 'HEALTHY'});
    const mending = {...worker, provider_state: 'REPAIRING'};
    assert.equal(endByExpiry(worker, 90).cause, 'machine');
    assert.equal(endByExpiry(mending, 90).cause, 'preempted');
  });
});

describe('a grant', () => {
  it('raises the epoch, takes the job out of the queue, and keeps nothing of the attempt and the wait before', () => {
    const ended = {outcome: 'failed', cause: 'peer', error: null, exit_code: null} as const;
    const end = {...ended, result: null, result_path: null, artifacts_path: null, ran: null};
    const before = {artifacts_path: 'gs://b/jobs/my-job/epoch_7/', ends: {0: end}, reason: 'no TPU is free'};
    const waiting = aJob({
      epoch: 7,
      ...before,
      reservation_timeouts: {'us-central1-a': {count: 1, next_at: at(9)}},
    });
    assert.deepEqual(grantJob(waiting, HOLDER, 6, MINUTE), {
      ...aJob({status: 'running', queue: null, epoch: 8, started_at: at(60), updated_at: at(60)}),
      ...{lease: {...HOLDER, epoch: 8, host_count: 1, members: []}, due_at: at(540)},
    });
  });

  const dues: {name: string; given: Partial<Job>; price: number | null; then: number}[] = [
    {name: 'its timeout and the grace', given: {}, price: 6, then: 480},
    {name: 'its deadline', given: {deadline_at: at(100)}, price: 6, then: 100},
    {name: 'the end of its budget', given: {budget_usd: 0.2, spent_usd: 0.1}, price: 6, then: 60},
    {name: 'the end of its budget, for each slice', given: {budget_usd: 0.2, slices: 2}, price: 6, then: 60},
    {name: 'its timeout, at an unknown price', given: {budget_usd: 0.2}, price: null, then: 480},
  ];
  for (const {name, given, price, then} of dues)
    it(`makes the job due at ${name}`, () => {
      assert.equal(grantJob(aJob(given), HOLDER, price, T0).due_at, at(then));
    });

  const refusals: {name: string; given: Partial<Job>; price: number | null; then: Cause | undefined}[] = [
    {name: 'a job without limits', given: {}, price: null, then: undefined},
    {name: 'a job past its deadline', given: {deadline_at: at(0)}, price: 6, then: 'deadline'},
    {name: 'a job that has spent its budget', given: {budget_usd: 1, spent_usd: 1}, price: 6, then: 'budget'},
    {name: 'a job with a budget at no price', given: {budget_usd: 1}, price: null, then: 'budget'},
    {name: 'a job within its budget', given: {budget_usd: 1, spent_usd: 0.5}, price: 6, then: undefined},
  ];
  for (const {name, given, price, then} of refusals)
    it(`of ${name} ${then ? `is refused: ${then}` : 'is made'}`, () => {
      assert.equal(grantProblem(aJob(given), price, T0)?.cause, then);
    });
});

describe('a due job', () => {
  const HEARD = aWorker({phase: 'working', provider_state: 'READY', claimed_at: at(59), usd_per_hour: 6});
  const cases: {name: string; given: Job; then: Cause | undefined}[] = [
    {name: 'before its time continues', given: aRunningJob({due_at: at(61)}), then: undefined},
    {name: 'past its timeout has timed out', given: aRunningJob({due_at: at(60)}), then: 'timeout'},
    {
      name: 'past its deadline has missed it',
      given: aRunningJob({due_at: at(60), deadline_at: at(60)}),
      then: 'deadline',
    },
    {
      name: 'that has spent its budget is over it',
      given: aRunningJob({due_at: at(60), budget_usd: 0.1}),
      then: 'budget',
    },
    {
      name: 'that has spent its budget in two attempts is over it',
      given: aRunningJob({due_at: at(60), budget_usd: 0.2, spent_usd: 0.1}),
      then: 'budget',
    },
    {
      name: 'that has spent its budget on two slices is over it',
      given: aRunningJob({due_at: at(60), budget_usd: 0.2, slices: 2}),
      then: 'budget',
    },
    {
      name: 'that waits past its deadline has missed it',
      given: aJob({deadline_at: at(60), due_at: at(60)}),
      then: 'deadline',
    },
    {name: 'that waits with an edited time keeps waiting', given: aJob({due_at: at(1)}), then: undefined},
    {
      name: 'that has ended stays as it is',
      given: aJob({status: 'completed', queue: null, due_at: at(1)}),
      then: undefined,
    },
  ];
  for (const {name, given, then} of cases)
    it(name, () => {
      assert.equal(endOfDue(given, HEARD, 30, MINUTE)?.cause, then);
    });

  const holders: {name: string; claimed_at: string | null; deadline_at: string | null; then: Cause}[] = [
    {name: 'sends heartbeats has timed out', claimed_at: at(59), deadline_at: null, then: 'timeout'},
    {name: 'is silent has lost its machine', claimed_at: at(20), deadline_at: null, then: 'machine'},
    {name: 'has restarted has lost its machine', claimed_at: null, deadline_at: null, then: 'machine'},
    {name: 'has restarted misses its deadline', claimed_at: null, deadline_at: at(60), then: 'deadline'},
  ];
  for (const {name, claimed_at, deadline_at, then} of holders)
    it(`past its timeout whose worker ${name}`, () => {
      const holder = aWorker({phase: 'working', provider_state: 'READY', claimed_at});
      const end = endOfDue(aRunningJob({due_at: at(60), deadline_at}), holder, 30, MINUTE);
      assert.equal(end?.cause, then);
    });
});

describe('an attempt on two slices of two hosts', () => {
  const members = [HOLDER, {...HOLDER, worker: A1}];
  const lease = {...HOLDER, epoch: 3, host_count: 2, members};
  const running = (changes: Partial<Job> = {}) => ({...aRunningJob({slices: 2, ...changes}), lease});
  const completed = (result: string): JobEnd => ({outcome: 'completed', cause: null, error: null, result});
  const peer = failed('peer', 'it lost a peer');
  /** Ends the processes one after the other. */
  const endedBy = (ends: readonly [number, JobEnd][]) => {
    let job: Job = running();
    for (const [index, end] of ends) job = endProcess({...job, lease}, index, end, 6, MINUTE);
    return job;
  };

  it('counts its processes slice by slice', () => {
    const numbers = [A0, A1].flatMap(worker =>
      [0, 1].map(host => processOf(lease, {...HOLDER, worker}, host)),
    );
    assert.deepEqual(numbers, [0, 1, 2, 3]);
  });

  it('ends with its last process, costs both slices, and has only the result of the first', () => {
    const job = endedBy([3, 2, 0, 1].map(index => [index, completed(`${index}`)]));
    assert.deepEqual([job.status, job.result, job.spent_usd], ['completed', '0', 0.2]);
    assert.deepEqual(job.attempts[0]?.members, members);
    const results = Object.values(job.ends).map(({result}) => result);
    assert.deepEqual(results, [null, null, null, null]);
  });

  it('waits half a minute for the cause after a process has lost a peer, but no longer than it may run', () => {
    const dues = [420, 70].map(due => endProcess(running({due_at: at(due)}), 1, peer, 6, MINUTE));
    assert.deepEqual(
      dues.map(({status, due_at}) => [status, due_at]),
      [
        ['running', at(90)],
        ['running', at(70)],
      ],
    );
  });

  it('has lost a machine where every process ends and one has lost a peer', () => {
    const job = endedBy([
      [0, completed('0')],
      [1, peer],
      [2, completed('2')],
      [3, completed('3')],
    ]);
    assert.deepEqual(
      [job.status, job.cause, job.error],
      ['scheduled', 'machine', 'host 1 of 4: it lost a peer'],
    );
  });

  it('has lost the machine of the process that gives no end in time, and is preempted without a holder', () => {
    const job = {...endedBy([[0, completed('0')]]), due_at: at(60)};
    const holder = aWorker({phase: 'working', claimed_at: at(59)});
    assert.equal(endOfDue(job, holder, 30, MINUTE)?.error, 'host 1 of 4: it did not report its end');
    assert.equal(endOfDue(running({due_at: at(60)}), undefined, 30, MINUTE)?.cause, 'preempted');
  });
});

describe('the place of a job', () => {
  it('is before those of lower priority, and of younger jobs', () => {
    const jobs = [
      aJob({job: 'low', priority: -1000}),
      aJob({job: 'young', created_at: at(9)}),
      aJob({job: 'old'}),
      aJob({job: 'high', priority: 1000, created_at: at(99)}),
    ].map(job => scheduleJob(job, T0));
    const sorted = jobs.toSorted((a, b) => (String(a.queue) < String(b.queue) ? -1 : 1));
    assert.deepEqual(
      sorted.map(({job}) => job),
      ['high', 'old', 'young', 'low'],
    );
  });

  it('is its own until an edit of its pool or its priority', () => {
    const edits: Partial<Job>[] = [{}, {priority: 1}, {pool: 'other'}];
    assert.deepEqual(
      edits.map(edit => isWaiting(aJob(edit))),
      [true, false, false],
    );
  });

  it('has a rank of pool and priority', () => {
    const jobs = [aJob(), aJob({created_at: at(9)}), aJob({priority: 1}), aJob({pool: 'other'})];
    const [rank, ...ranks] = jobs.map(job => rankIn(queuePlace(job)));
    assert.deepEqual(
      ranks.map(other => other === rank),
      [true, false, false],
    );
  });
});

describe('the job that waits longest', () => {
  it('has one slice, and waits since its last attempt', () => {
    const again = {
      ...endAttempt(aRunningJob(), {outcome: 'drained', cause: 'drained', error: null}, 6, MINUTE),
      job: 'again',
    };
    const jobs = [aJob({job: 'large', slices: 2}), again, aJob({job: 'new', scheduled_at: at(30)})];
    assert.deepEqual(longestWaiting(jobs), {job: 'new', since_at: at(30)});
  });
});
