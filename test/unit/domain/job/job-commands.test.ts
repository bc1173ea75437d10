import assert from 'node:assert/strict';
import {decideCancelJob, decideRetryJob} from '../../../../shared/domain/job/commands.ts';
import {endWithoutHolder, withFittingFields} from '../../../../shared/domain/job/edits.ts';
import type {Job} from '../../../../shared/domain/job/job.ts';
import {endAttempt} from '../../../../shared/domain/job/lifecycle.ts';
import {at, T0} from '../../../support/builders.ts';
import {aJob, aRunningJob} from '../../../support/jobs.ts';

const NOW = T0 + 60_000;
const anEnded = (status: Job['status'], changes: Partial<Job> = {}) =>
  aJob({status, queue: null, ...changes});

describe('a cancel', () => {
  const cases: {name: string; given: Job; then: RegExp}[] = [
    {name: 'ends a job that waits', given: aJob(), then: /^applied: job my-job is cancelled$/},
    {name: 'ends a job that runs', given: aRunningJob(), then: /^applied: job my-job is cancelled$/},
    {name: 'of a cancelled job changes nothing', given: anEnded('cancelled'), then: /^applied: .* already$/},
    {name: 'of a completed job is rejected', given: anEnded('completed'), then: /^rejected: .*completed/},
    {name: 'of a failed job is rejected', given: anEnded('failed'), then: /^rejected: .*failed/},
    {
      name: 'applies however late',
      given: aJob({said: {status_at: at(99)}}),
      then: /^applied: job my-job is cancelled$/,
    },
  ];
  for (const {name, given, then} of cases)
    it(name, () => {
      const decision = decideCancelJob(given, 6, at(60), NOW);
      assert.match(
        `${decision.kind}: ${decision.kind === 'applied' ? decision.what : decision.reason}`,
        then,
      );
      if (decision.kind === 'applied') assert.equal(decision.next.status, 'cancelled');
    });

  it('of a running job records its attempt and its cost', () => {
    const decision = decideCancelJob(aRunningJob(), 6, at(60), NOW);
    const next = decision.kind === 'applied' ? decision.next : assert.fail();
    assert.deepEqual([next.attempts[0]?.outcome, next.spent_usd, next.lease], ['cancelled', 0.1, null]);
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
    {
      name: 'published before a later message is rejected',
      given: anEnded('cancelled', {said: {status_at: at(99)}}),
      then: /^rejected: outdated/,
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

  it('gives the job all of its retries, and keeps its epoch, its attempts and its cost', () => {
    const given = endAttempt(aRunningJob(), {outcome: 'failed', cause: 'exit', error: 'so'}, 6, NOW);
    const decision = decideRetryJob(given, at(60), NOW);
    const next = decision.kind === 'applied' ? decision.next : assert.fail();
    assert.deepEqual(
      [next.status, next.failures, next.cause, next.error, next.expire_at, next.completed_at],
      ['scheduled', 0, null, null, null, null],
    );
    assert.deepEqual([next.epoch, next.attempts.length, next.spent_usd], [3, 1, 0.1]);
  });
});

describe('an edited job', () => {
  const cases: {name: string; given: Job; then: Partial<Job>}[] = [
    {
      name: 'that waits gets its place back',
      given: aJob({queue: 'tpu/0000', lease: aRunningJob().lease}),
      then: {queue: aJob().queue, lease: null},
    },
    {
      name: 'that waits moves with its priority',
      given: aJob({priority: 5}),
      then: {queue: `tpu/0995/${at(0)}/my-job`},
    },
    {name: 'that waits is due at its deadline', given: aJob({deadline_at: at(9)}), then: {due_at: at(9)}},
    {name: 'that runs has no place', given: aRunningJob({queue: 'tpu/1'}), then: {queue: null}},
    {
      name: 'that has ended has no place and no time',
      given: anEnded('completed', {queue: 'tpu/1', due_at: at(1)}),
      then: {queue: null, due_at: null},
    },
  ];
  for (const {name, given, then} of cases)
    it(name, () => assert.deepEqual(withFittingFields(given), {...given, ...then}));

  it('that fits its status is the same object', () => {
    for (const job of [aJob(), aRunningJob(), anEnded('completed')])
      assert.equal(withFittingFields(job), job);
  });

  it('without a worker waits again, and is not charged', () => {
    const given = aRunningJob();
    const next = endAttempt(given, endWithoutHolder(given), null, NOW);
    assert.deepEqual([next.status, next.failures, next.machine_failures], ['scheduled', 0, 0]);
  });
});
