import assert from 'node:assert/strict';
import {
  type Decision,
  decideCancel,
  decideDelete,
  decidePausePool,
  decideRecreate,
  decideResumePool,
  decideRetry,
  decideRunAction,
  type RunAction,
} from '../../../../shared/domain/commands/commands.ts';
import {
  decideConfigure,
  decideKeep,
  decideNewPool,
  decideScale,
} from '../../../../shared/domain/commands/settings.ts';
import {constraint} from '../../../../shared/domain/records/constraint.ts';
import {NO_MACHINE_DEATHS} from '../../../../shared/domain/records/machine-deaths.ts';
import type {Pool} from '../../../../shared/domain/records/pool.ts';
import {NO_MODEL_FAILURES, type Run, type RunStatus} from '../../../../shared/domain/records/run.ts';
import {MAX_FAILURES, MAX_FAULTS} from '../../../../shared/domain/records/stream.ts';
import type {Phase, Worker} from '../../../../shared/domain/records/worker.ts';
import {aConfig, aRun, aStream, at, aWorker, T0} from '../../../world/builders.ts';

function nextOf<T>(decision: Decision<T>): T {
  return decision.kind === 'applied' ? decision.next : assert.fail(decision.reason);
}

/** Status of a run after each action, by its status before. null: the message is refused and changes nothing. */
const TABLE: Record<RunAction, Record<RunStatus, RunStatus | null>> = {
  start: {active: 'active', paused: 'active', completed: 'completed', failed: 'failed', stopped: null},
  resume: {active: 'active', paused: 'active', completed: null, failed: null, stopped: null},
  pause: {active: 'paused', paused: 'paused', completed: null, failed: null, stopped: null},
  stop: {
    active: 'stopped',
    paused: 'stopped',
    completed: 'completed',
    failed: 'stopped',
    stopped: 'stopped',
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
    for (const [run, folder] of [
      ['my-run', 'datasets/my-run'],
      ['default', 'datasets'],
    ] as const)
      it(`${action} of the unknown run ${run} names the stream to drop first`, () => {
        const decision = decideRunAction(action, run, undefined, at(0), T0);
        const reason = decision.kind === 'rejected' ? decision.reason : '';
        assert.ok(reason.includes(`drop ${folder}/stream_000.jsonl first`), reason);
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

  for (const [of, changes] of [
    ['pause', {status: 'paused'}],
    ['wait', {waits: {...constraint('coming', 'tpu-a'), since_at: '2026-01-01T00:00:00.000Z'}}],
  ] as const)
    it(`a stop ends the reason of a ${of}`, () => {
      const run = aRun({...changes, reason: 'it boots'});
      assert.equal(nextOf(decideRunAction('stop', 'my-run', run, at(1), T0 + 1000)).reason, null);
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

  it('a resume flags the run, and resets the counts of its machines and of its model', () => {
    const counts = {machine_deaths: 9, machine_failed_streams: 2, model_misses: 3, changed_at: null};
    const run: Run = {...aRun({status: 'paused', reason: 'no machine lives'}), ...counts};
    const next = nextOf(decideRunAction('resume', 'my-run', run, at(1), T0 + 1000));
    const active = {status: 'active' as const, reason: null, changed_at: at(1), updated_at: at(1)};
    const reset = {...NO_MACHINE_DEATHS, ...NO_MODEL_FAILURES};
    assert.deepEqual(next, {...run, ...reset, ...active, message_times: {status_at: at(1)}});
  });

  it('a pause of a run that waits for its model lasts until a person resumes the run', () => {
    const waiting = aRun({status: 'paused', reason: 'its model fails', model_next_at: at(60)});
    const {reason, model_next_at} = nextOf(decideRunAction('pause', 'my-run', waiting, at(1), T0 + 1000));
    assert.deepEqual([reason, model_next_at], ['a person paused it', null]);
  });

  it('the settings of a stopped run change no more', () => {
    const settings = {budget_usd: 9};
    const decision = decideConfigure('my-run', aRun({status: 'stopped'}), settings, undefined, at(1), T0);
    assert.equal(decision.kind, 'rejected');
  });

  it('a stop notes its time once, and applies to a stopped run however late', () => {
    for (const status of ['active', 'completed'] as const) {
      const stopped = nextOf(decideRunAction('stop', 'my-run', aRun({status}), at(1), T0 + 1000));
      const again = nextOf(decideRunAction('stop', 'my-run', stopped, at(0), T0 + 2000));
      assert.deepEqual([stopped.stopped_at, again.stopped_at], [at(1), at(1)]);
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

  it('delete of a worker that is gone keeps its slot empty, and deletes nothing', () => {
    const {held, recreate} = nextOf(decideDelete('tpu-us-central1-a-0', aWorker({phase: 'gone'}), at(0)));
    assert.deepEqual([held, recreate], [true, false]);
  });
});

describe('retry of a stream', () => {
  it('resets its failures, faults and error, and keeps its checkpoint', () => {
    const stored = {epoch: 3, total_shards: 4, last_processed_sample_idx: 39};
    const ended = {
      failures: MAX_FAILURES,
      failed_workers: ['a/1', 'b/1', 'c/1'],
      faults: MAX_FAULTS,
      last_error: 'line 41 is no JSON',
    };
    const failed = aStream({status: 'failed', ...stored, ...ended});
    const decision = decideRetry(failed, at(1), T0 + 2000);
    const reset = {
      status: 'pending',
      failures: 0,
      failed_workers: [],
      faults: 0,
      faulted_workers: [],
      last_error: null,
    };
    assert.ok(decision.kind === 'applied');
    assert.deepEqual(decision.next, {
      ...failed,
      ...reset,
      message_times: {status_at: at(1)},
      updated_at: at(2),
    });
  });

  it('is refused for an empty stream: a worker would fail it again', () => {
    const stream = aStream({status: 'failed', size_bytes: 0});
    assert.equal(decideRetry(stream, at(1), T0).kind, 'rejected');
  });
});

describe('the creates of a pool', () => {
  const stoppedBy = (cause: Pool['limiter']['cause']): Pool => {
    const pool = nextOf(decidePausePool(aConfig().pool, at(0), T0));
    return {...pool, message_times: {}, limiter: {...pool.limiter, cause, since_at: at(60)}};
  };

  it('continue after a resume that is published after a failure has stopped them', () => {
    assert.match(JSON.stringify(decideResumePool(stoppedBy('boots'), at(59))), /"outdated: pool tpu/);
    assert.equal(nextOf(decideResumePool(stoppedBy('boots'), at(60))).limiter.state, 'open');
  });

  it('continue after a resume that is published before a late pause was applied', () => {
    assert.equal(nextOf(decideResumePool(stoppedBy('person'), at(59))).limiter.state, 'open');
  });

  it('know after a resume that their zones have given nodes', () => {
    const {limiter, ...pool} = stoppedBy('person');
    const resumed = decideResumePool({...pool, limiter: {...limiter, has_given: true}}, at(59));
    assert.equal(nextOf(resumed).limiter.has_given, true);
  });
});

describe('the settings of a pool', () => {
  const pool = {...aConfig().pool, zones: ['us-central1-a'], workers_per_zone: 2};
  const limits = {ceilings: {...aConfig().ceilings, max_workers: 4}, elsewhere: 2, longest_poll_s: 60};

  const scale = (settings: object, elsewhere = 2) =>
    decideScale(pool, settings, undefined, {...limits, elsewhere}, at(0));

  for (const [settings, reason] of [
    [{workers_per_zone: 3}, /other pools have 2/],
    [{poll_s: 61}, /poll_s 61 is more than 60 s/],
    [{provisioning: 'flex-start'}, /needs provider "compute-engine"/],
    [{zones: [`us-${'x'.repeat(60)}1-a`]}, /more than 63 characters/],
  ] as const)
    it(`refuse ${JSON.stringify(settings).slice(0, 40)} with the reason`, () => {
      const decision = scale(settings);
      assert.match(decision.kind === 'rejected' ? decision.reason : '', reason);
    });

  it('may always shrink the pool, whatever the other pools have', () => {
    assert.equal(scale({workers_per_zone: 1}, 9).kind, 'applied');
  });

  it('of a new pool are ordered by the message that creates it', () => {
    const next = nextOf(decideNewPool(pool, limits, ['workers_per_zone'], at(9)));
    assert.equal(decideScale(next, {workers_per_zone: 1}, undefined, limits, at(8)).kind, 'rejected');
  });

  it('`keep` keeps TPUs for some minutes, counted from its publish time', () => {
    const keep = (minutes: number, workers: number, now = T0 + 60_000) =>
      decideKeep(pool, {minutes, workers}, at(0), now);
    assert.deepEqual(nextOf(keep(2, 2)).keep, {workers: 2, until_at: at(120)});
    assert.equal(keep(2, 3).kind, 'rejected', 'more than its slots');
    assert.equal(keep(1, 1).kind, 'rejected', 'its minutes have ended');
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

  it('a stop that is delivered after a later resume ends the run', () => {
    const {document} = deliver(aRun(), [
      {second: 2, decide: run('resume')},
      {second: 1, decide: run('stop')},
    ]);
    assert.equal(document.status, 'stopped');
    assert.deepEqual(document.message_times, {status_at: at(2)}, 'the later message stays noted');
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

  type Decide<T> = (document: T, published_at: string) => Decision<T>;
  const late = <T>(document: T, decides: Record<string, Decide<T>>) => {
    for (const [later, decideLater] of Object.entries(decides))
      for (const [earlier, decideEarlier] of Object.entries(decides))
        it(`a ${earlier} that is delivered after a later ${later} is refused`, () => {
          const next = nextOf(decideLater(document, at(20)));
          assert.match(JSON.stringify(decideEarlier(next, at(10))), /"reason":"outdated/);
        });
  };
  late<Run>(aRun(), {start: run('start'), pause: run('pause'), resume: run('resume')});
  late<Worker>(aWorker(), {
    recreate: (worker, published_at) => decideRecreate('w', worker, published_at),
    delete: (worker, published_at) => decideDelete('w', worker, published_at),
  });
  late<Pool>(aConfig().pool, {
    'pause of the pool': (pool, published_at) => decidePausePool(pool, published_at, T0),
    'resume of the pool': decideResumePool,
  });
  late<Pool>(aConfig().pool, {
    keep: (pool, published_at) => decideKeep(pool, {minutes: 9, workers: 1}, published_at, T0),
    'keep of nothing': (pool, published_at) => decideKeep(pool, {minutes: 0, workers: 1}, published_at, T0),
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
