/** Properties of the life of a job, over random events in random order. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import {decideCancelJob, decideRetryJob} from '../../../../shared/domain/job/commands.ts';
import {
  endAttempt,
  endOfDue,
  grantJob,
  isFinal,
  type JobEnd,
} from '../../../../shared/domain/job/lifecycle.ts';
import {isWaiting} from '../../../../shared/domain/job/queue.ts';
import {CAUSES} from '../../../../shared/domain/records/causes.ts';
import type {Job} from '../../../../shared/domain/records/job.ts';
import {holds} from '../../../../shared/domain/stream/lease.ts';
import {iso} from '../../../../shared/domain/time.ts';
import {at, aWorker, T0} from '../../../world/builders.ts';
import {aJob} from '../../../world/scenes/jobs.ts';

const WORKERS = ['tpu-us-central1-a-0', 'tpu-us-central1-a-1'];
const ends: fc.Arbitrary<JobEnd> = fc.oneof(
  fc.constant<JobEnd>({outcome: 'completed', cause: null, error: null, result: 'r'}),
  fc.constantFrom<JobEnd>(
    {outcome: 'preempted', cause: 'preempted', error: null},
    {outcome: 'drained', cause: 'drained', error: null},
  ),
  fc.constantFrom(...CAUSES).map<JobEnd>(cause => ({outcome: 'failed', cause, error: 'so'})),
);

type Event =
  | {kind: 'ask'; worker: number}
  | {kind: 'finish'; worker: number; epoch: number; end: JobEnd}
  | {kind: 'tick' | 'cancel' | 'retry'};
const events: fc.Arbitrary<Event> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({kind: fc.constant('ask' as const), worker: fc.integer({min: 0, max: 1})}),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('finish' as const),
      worker: fc.integer({min: 0, max: 1}),
      epoch: fc.integer({min: 0, max: 1}),
      end: ends,
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({kind: fc.constantFrom('tick' as const, 'cancel' as const, 'retry' as const)}),
  },
);

/** The shell around the rules: an event changes the job, or does not apply. `epoch` counts back from the newest. */
function apply(job: Job, event: Event, step: number): Job {
  const now = T0 + step * 100_000;
  const holderOf = (index: number) => ({worker: WORKERS[index] ?? '', incarnation: 1});
  switch (event.kind) {
    case 'ask':
      return job.status === 'scheduled' ? grantJob(job, holderOf(event.worker), 1, now) : job;
    case 'finish': {
      const claim = {...holderOf(event.worker), epoch: job.epoch - event.epoch};
      return holds(job, claim) ? endAttempt(job, event.end, 1, now) : job;
    }
    case 'tick': {
      const end = endOfDue(job, aWorker({usd_per_hour: 1, claimed_at: iso(now)}), 240, now);
      return end ? endAttempt(job, end, 1, now) : job;
    }
    case 'cancel':
    case 'retry': {
      const decision =
        event.kind === 'cancel'
          ? decideCancelJob(job, job.lease ? {usd_per_hour: 1} : undefined, at(step), now)
          : decideRetryJob(job, at(step), now);
      return decision.kind === 'applied' ? decision.next : job;
    }
    default:
      return event satisfies never;
  }
}

const courses = fc.record({
  max_retries: fc.integer({min: 0, max: 3}),
  events: fc.array(events, {maxLength: 60}),
});

function always(check: (before: Job, after: Job, event: Event) => void): void {
  fc.assert(
    fc.property(courses, ({max_retries, events}) => {
      let job = aJob({max_retries});
      for (const [step, event] of events.entries()) {
        const next = apply(job, event, step);
        check(job, next, event);
        job = next;
      }
    }),
  );
}

describe('in every course of a job', () => {
  it('its epoch only grows, by one with each grant', () =>
    always((before, after) => {
      const isGrant = before.status === 'scheduled' && after.status === 'running';
      assert.equal(after.epoch, before.epoch + (isGrant ? 1 : 0));
    }));

  it('a completed job never changes', () =>
    always((before, after) => {
      if (before.status === 'completed') assert.deepEqual(after, before);
    }));

  it('an attempt is recorded once, when its lease ends', () =>
    always((before, after) => {
      const hasEnded = before.lease !== null && after.lease === null;
      assert.equal(after.attempts.length - before.attempts.length, hasEnded ? 1 : 0);
      const epochs = after.attempts.map(({epoch}) => epoch);
      assert.equal(new Set(epochs).size, epochs.length);
    }));

  it('it has a place while it waits, and a lease and an end while it runs', () =>
    always((_, after) => {
      assert.equal(after.queue !== null, after.status === 'scheduled');
      assert.equal(after.lease !== null, after.status === 'running');
      if (after.status === 'running') assert.notEqual(after.due_at, null);
      if (isFinal(after)) assert.equal(after.due_at, null);
      if (after.status === 'scheduled') assert.ok(isWaiting(after), 'its place is its own');
    }));

  it('only the claim of its holder finishes an attempt', () =>
    always((before, after, event) => {
      if (event.kind !== 'finish' || after === before) return;
      assert.equal(before.lease?.worker, WORKERS[event.worker]);
      assert.equal(event.epoch, 0);
    }));

  it('no preemption and no machine counts against its retries', () =>
    always((before, after, event) => {
      const own = ['exit', 'timeout', 'memory', 'disk', 'output', 'result'];
      if (after.failures <= before.failures) return;
      const cause = after.attempts.at(-1)?.cause ?? '';
      assert.ok(own.includes(cause), `${event.kind}: ${cause}`);
      assert.ok(after.failures <= after.max_retries + 1);
    }));

  it('its cost is the sum of its attempts', () =>
    always((_, after) => {
      const sum = after.attempts.reduce((total, {cost_usd}) => total + (cost_usd ?? 0), 0);
      if (after.attempts.length < 50) assert.ok(Math.abs(after.spent_usd - sum) < 1e-9);
    }));
});
