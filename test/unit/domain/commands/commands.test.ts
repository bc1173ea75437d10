import assert from 'node:assert/strict';
import {
  type Decision,
  decideCancel,
  decideDelete,
  decideRecreate,
  decideRetry,
  decideRunAction,
  type RunAction,
} from '../../../../shared/domain/commands/commands.ts';
import {decideConfigure, decideScale} from '../../../../shared/domain/commands/settings.ts';
import type {RunStatus} from '../../../../shared/domain/run/run.ts';
import {MAX_FAILURES, MAX_FAULTS} from '../../../../shared/domain/stream/stream.ts';
import type {Phase} from '../../../../shared/domain/worker/worker.ts';
import {aConfig, aRun, aStream, at, aWorker, T0} from '../../../support/builders.ts';

/** Status of a run after each action, by its status before. null: the message is refused and changes nothing. */
const TABLE: Record<RunAction, Record<RunStatus, RunStatus | null>> = {
  start: {active: 'active', paused: 'active', completed: 'completed', failed: 'failed', cancelled: null},
  resume: {active: 'active', paused: 'active', completed: null, failed: null, cancelled: null},
  pause: {active: 'paused', paused: 'paused', completed: null, failed: null, cancelled: null},
  stop: {
    active: 'cancelled',
    paused: 'cancelled',
    completed: 'completed',
    failed: 'cancelled',
    cancelled: 'cancelled',
  },
};

describe('control actions', () => {
  for (const action of Object.keys(TABLE) as RunAction[])
    for (const [status, then] of Object.entries(TABLE[action]) as [RunStatus, RunStatus | null][])
      it(`${action} of a run that is ${status} ${then ? `leaves it ${then}` : 'is refused'}`, () => {
        const run = aRun({status});
        const decision = decideRunAction(action, 'my-run', run, at(1), T0 + 1000);
        if (then === null) {
          assert.ok(
            decision.kind === 'rejected' && decision.reason.includes(status),
            JSON.stringify(decision),
          );
          return;
        }
        assert.ok(decision.kind === 'applied');
        assert.equal(decision.next.status, then);
        if (then === status)
          assert.equal(decision.next.updated_at, run.updated_at, 'nothing else is written');
        else assert.equal(decision.next.updated_at, at(1));
        const again = decideRunAction(action, 'my-run', decision.next, at(1), T0 + 2000);
        assert.ok(again.kind === 'applied', 'a repeated message is harmless');
        assert.deepEqual(again.next, decision.next);
      });

  for (const action of Object.keys(TABLE) as RunAction[])
    it(`${action} of an unknown run names the stream to drop first`, () => {
      const decision = decideRunAction(action, 'my-run', undefined, at(0), T0);
      assert.ok(
        decision.kind === 'rejected' && decision.reason.includes('drop datasets/my-run/stream_000.jsonl'),
      );
    });

  it('resume of a run that a breaker or a budget paused says when it is paused again, without old figures', () => {
    const budget = 'its budget allows no more: $0.00 of $0.0010 are spent; configure a larger budget_usd';
    const resume = (reason: string) =>
      decideRunAction('resume', 'my-run', aRun({status: 'paused', reason}), at(1), T0 + 1000);
    for (const [reason, then] of [
      [budget, 'if a budget allows no more'],
      ['no machine lives', 'while this holds: no machine lives'],
    ] as const) {
      const decision = resume(reason);
      assert.ok(decision.kind === 'applied');
      assert.equal(decision.what, `my-run resumed; it is paused again ${then}`);
    }
  });

  it('start of the unknown run default names a stream object without a run folder', () => {
    const decision = decideRunAction('start', 'default', undefined, at(0), T0);
    assert.ok(
      decision.kind === 'rejected' && decision.reason.includes('drop datasets/stream_000.jsonl first'),
    );
  });

  it('a stop ends the reason of a pause', () => {
    const decision = decideRunAction(
      'stop',
      'my-run',
      aRun({status: 'paused', reason: 'resume it'}),
      at(0),
      T0,
    );
    assert.ok(decision.kind === 'applied' && decision.next.reason === null);
  });

  it('the budget of a paused run names the pause, and no budget is none', () => {
    const decision = decideConfigure(
      'my-run',
      aRun({status: 'paused'}),
      {budget_usd: null},
      undefined,
      at(1),
      T0,
    );
    assert.ok(decision.kind === 'applied');
    assert.match(decision.what, /budget_usd none, version \d+; it is paused, until it is resumed$/);
  });

  it('a stopped run stays stopped after every action', () => {
    for (const action of Object.keys(TABLE) as RunAction[]) {
      const decision = decideRunAction(action, 'my-run', aRun({status: 'cancelled'}), at(0), T0);
      assert.ok(decision.kind === 'rejected' || decision.next.status === 'cancelled');
    }
  });

  const phases: Record<Phase, boolean> = {
    creating: true,
    booting: true,
    idle: true,
    working: true,
    draining: true,
    deleting: false,
    gone: false,
  };
  for (const [phase, then] of Object.entries(phases) as [Phase, boolean][])
    it(`recreate of a worker in phase ${phase} ${then ? 'marks the worker' : 'leaves the worker unmarked'}`, () => {
      const order = decideRecreate('tpu-us-central1-a-0', aWorker({phase}), at(0));
      assert.ok(order.kind === 'applied' && order.next.recreate === then);
    });

  it('recreate of an unknown worker is refused, and the reason names the worker', () => {
    const order = decideRecreate('tpu-us-central1-a-9', undefined, at(0));
    assert.ok(order.kind === 'rejected' && order.reason.includes('tpu-us-central1-a-9'));
  });
});

describe('retry of a stream', () => {
  it('resets its failures, faults and error, and keeps its checkpoint', () => {
    const stored = {epoch: 3, total_shards: 4, last_processed_sample_idx: 39};
    const ended = {failures: MAX_FAILURES, faults: MAX_FAULTS, last_error: 'line 41 is no JSON'};
    const failed = aStream({status: 'failed', ...stored, ...ended});
    const decision = decideRetry(failed, at(1), T0 + 2000);
    const reset = {status: 'pending', failures: 0, faults: 0, last_error: null};
    assert.ok(decision.kind === 'applied');
    assert.deepEqual(decision.next, {...failed, ...reset, said: {status_at: at(1)}, updated_at: at(2)});
  });
});

/** A message about one document, published at this second. */
type Message<T> = {second: number; decide: (document: T, published_at: string) => Decision<T>};

/** Applies the messages in this order. Returns the document and the reasons of refusals. */
function deliver<T>(document: T, messages: readonly Message<T>[]): {document: T; refusals: string[]} {
  const refusals: string[] = [];
  for (const {second, decide} of messages) {
    const decision = decide(document, at(second));
    if (decision.kind === 'applied') document = decision.next;
    else refusals.push(decision.reason);
  }
  return {document, refusals};
}

describe('messages that are delivered out of order', () => {
  const run =
    (action: RunAction) =>
    (document: ReturnType<typeof aRun>, published_at: string): Decision<ReturnType<typeof aRun>> =>
      decideRunAction(action, 'my-run', document, published_at, T0);
  const budget =
    (settings: {budget_usd?: number; priority?: number}) =>
    (document: ReturnType<typeof aRun>, published_at: string) =>
      decideConfigure('my-run', document, settings, undefined, published_at, T0);

  it('a budget of 50 that is delivered after a later budget of 500 leaves 500', () => {
    const {document, refusals} = deliver(aRun(), [
      {second: 2, decide: budget({budget_usd: 500})},
      {second: 1, decide: budget({budget_usd: 50})},
    ]);
    assert.deepEqual([document.budget_usd, document.version], [500, 1]);
    assert.match(refusals.join(), /^outdated: .*budget_usd of 2026-01-02T03:04:07.000Z$/);
  });

  it('an older message sets the fields that no later message has set, and names its other fields as outdated', () => {
    const {document} = deliver(aRun(), [{second: 2, decide: budget({budget_usd: 500})}]);
    const decision = budget({budget_usd: 50, priority: 7})(document, at(1));
    assert.ok(decision.kind === 'applied');
    assert.deepEqual([decision.next.budget_usd, decision.next.priority], [500, 7]);
    assert.match(decision.what, /has priority 7, version 2; outdated: .*budget_usd/);
  });

  it('a pause that is delivered after a later resume leaves the run active', () => {
    const {document, refusals} = deliver(aRun(), [
      {second: 2, decide: run('resume')},
      {second: 1, decide: run('pause')},
    ]);
    assert.equal(document.status, 'active');
    assert.match(refusals.join(), /^outdated: .*status/);
  });

  it('a stop that is delivered after a later resume ends the run', () => {
    const {document} = deliver(aRun(), [
      {second: 2, decide: run('resume')},
      {second: 1, decide: run('stop')},
    ]);
    assert.equal(document.status, 'cancelled');
    assert.deepEqual(document.said, {status_at: at(2)}, 'the later message stays noted');
  });

  it('a recreate that is published after a delete counts in both orders of delivery', () => {
    const messages = [
      {
        second: 1,
        decide: (worker: ReturnType<typeof aWorker>, published_at: string) =>
          decideDelete('w', worker, published_at),
      },
      {
        second: 2,
        decide: (worker: ReturnType<typeof aWorker>, published_at: string) =>
          decideRecreate('w', worker, published_at),
      },
    ];
    for (const phase of ['working', 'gone'] as const)
      for (const order of [messages, messages.toReversed()])
        assert.equal(deliver(aWorker({phase}), order).document.held, false);
  });

  it('a retry that is delivered after a later cancel does not revive the stream', () => {
    const {document, refusals} = deliver(aStream({status: 'failed'}), [
      {second: 2, decide: (stream, published_at) => decideCancel(stream, published_at, T0)},
      {second: 1, decide: (stream, published_at) => decideRetry(stream, published_at, T0)},
    ]);
    assert.equal(document.status, 'failed');
    assert.match(refusals.join(), /^outdated: .*status/);
  });

  it('a cancel applies also after a later retry', () => {
    const {document} = deliver(aStream({status: 'failed'}), [
      {second: 2, decide: (stream, published_at) => decideRetry(stream, published_at, T0)},
      {second: 1, decide: (stream, published_at) => decideCancel(stream, published_at, T0)},
    ]);
    assert.equal(document.status, 'failed');
  });

  it('each field of the pool has the value of the message published last, in every order of delivery', () => {
    const messages = [
      {second: 1, settings: {workers_per_zone: 1, budget_usd: 10}},
      {second: 2, settings: {workers_per_zone: 2, zones: ['us-east1-c']}},
      {second: 3, settings: {budget_usd: 30}},
    ].map(({second, settings}) => ({
      second,
      decide: (pool: ReturnType<typeof aConfig>['pool'], published_at: string) =>
        decideScale(pool, settings, undefined, aConfig(), published_at),
    }));
    const [one, two, three] = messages;
    assert.ok(one && two && three);
    for (const order of [
      messages,
      [one, three, two],
      [two, one, three],
      [two, three, one],
      [three, one, two],
      [three, two, one],
    ]) {
      const {workers_per_zone, zones, budget_usd} = deliver(aConfig().pool, order).document;
      assert.deepEqual([workers_per_zone, zones, budget_usd], [2, ['us-east1-c'], 30]);
    }
  });

  it('a message with the wrong if_version is refused, also if it is the newest message', () => {
    const decision = decideScale(aConfig().pool, {workers_per_zone: 3}, 4, aConfig(), at(9));
    assert.ok(decision.kind === 'rejected' && /version 0, not 4/.test(decision.reason));
  });
});
