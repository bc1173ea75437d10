import assert from 'node:assert/strict';
import {decideCancelJob, decideRetryJob} from '../../../../shared/domain/job/commands.ts';
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

  it('keeps the time until which a person keeps the job', () => {
    const expire_at = at(90 * 86_400);
    const decision = decideRetryJob(anEnded('failed', {expire_at}), at(60), NOW);
    assert.equal(decision.kind === 'applied' && decision.next.expire_at, expire_at);
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
