import assert from 'node:assert/strict';
import type {Decision} from '../../../../shared/domain/commands/commands.ts';
import {decideCancelJob, decideRetryJob} from '../../../../shared/domain/job/commands.ts';
import {endAttempt} from '../../../../shared/domain/job/lifecycle.ts';
import type {Job} from '../../../../shared/domain/records/job.ts';
import {at, T0} from '../../../world/builders.ts';
import {aJob, aRunningJob} from '../../../world/scenes/jobs.ts';

const NOW = T0 + 60_000;
const nextOf = (decision: Decision<Job>) =>
  decision.kind === 'applied' ? decision.next : assert.fail(decision.reason);
const anEnded = (status: Job['status'], changes: Partial<Job> = {}) =>
  aJob({status, queue: null, ...changes});

const HOLDING = {usd_per_hour: 6};

describe('a cancel', () => {
  const cases: {name: string; given: Job; then: RegExp}[] = [
    {name: 'ends a job that waits', given: aJob(), then: /^applied: job my-job is cancelled/},
    {name: 'ends a job that runs', given: aRunningJob(), then: /^applied: job my-job is cancelled/},
    {name: 'of a cancelled job changes nothing', given: anEnded('cancelled'), then: /^applied: .* already$/},
    {name: 'of a completed job is rejected', given: anEnded('completed'), then: /^rejected: .*completed/},
    {name: 'of a failed job is rejected', given: anEnded('failed'), then: /^rejected: .*failed/},
    {
      name: 'applies however late',
      given: aJob({message_times: {status_at: at(99)}}),
      then: /^applied: job my-job is cancelled/,
    },
  ];
  for (const {name, given, then} of cases)
    it(name, () => {
      const decision = decideCancelJob(given, given.lease ? HOLDING : undefined, at(60), NOW);
      assert.match(
        `${decision.kind}: ${decision.kind === 'applied' ? decision.what : decision.reason}`,
        then,
      );
      if (decision.kind !== 'applied') return;
      const {status, cancelled_at} = decision.next;
      assert.ok(status === 'cancelled' || cancelled_at === at(60));
    });

  it('of a running job lets its worker store what it has, and ends with any end but success', () => {
    const told = nextOf(decideCancelJob(aRunningJob(), HOLDING, at(60), NOW));
    assert.deepEqual([told.status, told.cancelled_at, told.due_at], ['running', at(60), at(240)]);
    for (const outcome of ['preempted', 'failed'] as const) {
      const next = endAttempt(told, {outcome, cause: 'machine', error: null}, 6, NOW);
      assert.deepEqual(
        [next.status, next.attempts[0]?.outcome, next.cancelled_at],
        ['cancelled', 'cancelled', null],
      );
      assert.deepEqual([next.spent_usd, next.lease, next.due_at], [0.1, null, null]);
    }
    assert.equal(
      endAttempt(told, {outcome: 'completed', cause: null, error: null}, 6, NOW).status,
      'completed',
    );
  });
});

describe('a retry', () => {
  const cases: {name: string; given: Job; then: RegExp}[] = [
    {name: 'of a failed job runs it again', given: anEnded('failed'), then: /^applied: .*runs again$/},
    {name: 'of a cancelled job runs it again', given: anEnded('cancelled'), then: /^applied: .*runs again$/},
    {name: 'of a completed job is rejected', given: anEnded('completed'), then: /^rejected: .*is completed/},
    {name: 'of a running job is rejected', given: aRunningJob(), then: /^rejected: .*is running/},
    {
      name: 'of an invalid job is rejected',
      given: anEnded('failed', {cause: 'invalid'}),
      then: /^rejected: .*is invalid/,
    },
  ];
  for (const {name, given, then} of cases)
    it(name, () => {
      const decision = decideRetryJob(given, at(60), NOW);
      assert.match(
        `${decision.kind}: ${decision.kind === 'applied' ? decision.what : decision.reason}`,
        then,
      );
    });

  const later: [string, (job: Job, published_at: string) => Decision<Job>, Job][] = [
    ['a cancel', (job, published_at) => decideCancelJob(job, undefined, published_at, NOW), aJob()],
    [
      'a cancel of a cancelled job',
      (job, published_at) => decideCancelJob(job, undefined, published_at, NOW),
      anEnded('cancelled'),
    ],
    ['a retry', (job, published_at) => decideRetryJob(job, published_at, NOW), anEnded('failed')],
  ];
  for (const [name, decide, job] of later)
    it(`that is delivered after ${name} of a later message is rejected`, () => {
      const decision = decideRetryJob(nextOf(decide(job, at(60))), at(59), NOW);
      assert.match(JSON.stringify(decision), /"reason":"outdated/);
    });

  it('keeps the time until which a person keeps the job', () => {
    const expire_at = at(90 * 86_400);
    const decision = decideRetryJob(anEnded('failed', {expire_at}), at(60), NOW);
    assert.equal(decision.kind === 'applied' && decision.next.expire_at, expire_at);
  });

  it('gives the job all of its retries, and keeps its epoch, its attempts and its cost', () => {
    const end = {outcome: 'failed', cause: 'exit', error: 'so', exit_code: 3} as const;
    const given = endAttempt(aRunningJob({machine_failures: 4}), end, 6, NOW);
    const {attempts, spent_usd, started_at} = given;
    assert.equal(attempts.length, 1);
    assert.deepEqual(nextOf(decideRetryJob(given, at(70), NOW + 10_000)), {
      ...aJob({epoch: 3, attempts, spent_usd, started_at, scheduled_at: at(70), updated_at: at(70)}),
      message_times: {status_at: at(70)},
    });
  });
});
