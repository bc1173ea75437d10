import assert from 'node:assert/strict';
import {decideRecreate, decideRunAction, type RunAction} from '../../shared/core/control.ts';
import type {RunStatus} from '../../shared/core/run.ts';
import type {Phase} from '../../shared/core/worker.ts';
import {aRun, at, aWorker, T0} from '../builders.ts';

/** What each action makes of a run in each status; null is a refusal, which changes nothing. */
const TABLE: Record<RunAction, Record<RunStatus, RunStatus | null>> = {
  start: {active: 'active', paused: 'active', completed: 'completed', failed: 'failed', cancelled: null},
  resume: {active: 'active', paused: 'active', completed: null, failed: null, cancelled: null},
  pause: {active: 'paused', paused: 'paused', completed: null, failed: null, cancelled: null},
  stop: {
    active: 'cancelled',
    paused: 'cancelled',
    completed: null,
    failed: 'cancelled',
    cancelled: 'cancelled',
  },
};

describe('control actions', () => {
  for (const action of Object.keys(TABLE) as RunAction[])
    for (const [status, then] of Object.entries(TABLE[action]) as [RunStatus, RunStatus | null][])
      it(`${action} of a run that is ${status} ${then ? `leaves it ${then}` : 'is refused'}`, () => {
        const run = aRun({status});
        const decision = decideRunAction(action, 'my-run', run, T0 + 1000);
        if (then === null) {
          assert.ok(
            decision.kind === 'rejected' && decision.reason.includes(status),
            JSON.stringify(decision),
          );
          return;
        }
        assert.ok(decision.kind === 'applied');
        assert.equal(decision.next.status, then);
        if (then === status) assert.equal(decision.next, run, 'nothing is written');
        else assert.equal(decision.next.updated_at, at(1));
        const again = decideRunAction(action, 'my-run', decision.next, T0 + 2000);
        assert.ok(again.kind === 'applied' && again.next === decision.next, 'a repeated message is harmless');
      });

  for (const action of Object.keys(TABLE) as RunAction[])
    it(`${action} of a run that nobody knows says what to do first`, () => {
      const decision = decideRunAction(action, 'my-run', undefined, T0);
      assert.ok(
        decision.kind === 'rejected' && decision.reason.includes('drop datasets/my-run/stream_000.jsonl'),
      );
    });

  it('of a run that nobody knows names an object that would be taken', () => {
    const decision = decideRunAction('start', 'default', undefined, T0);
    assert.ok(
      decision.kind === 'rejected' && decision.reason.includes('drop datasets/stream_000.jsonl first'),
    );
  });

  it('nothing brings a stopped run back', () => {
    for (const action of Object.keys(TABLE) as RunAction[]) {
      const decision = decideRunAction(action, 'my-run', aRun({status: 'cancelled'}), T0);
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
    it(`recreate of a worker that is ${phase} ${then ? 'is ordered' : 'is so already'}`, () => {
      const order = decideRecreate('tpu-us-central1-a-0', aWorker({phase}));
      assert.ok(order.kind === 'applied' && order.next.recreate === then);
    });

  it('recreate of a worker that nobody knows is refused by name', () => {
    const order = decideRecreate('tpu-us-central1-a-9', undefined);
    assert.ok(order.kind === 'rejected' && order.reason.includes('tpu-us-central1-a-9'));
  });
});
