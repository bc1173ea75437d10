import assert from 'node:assert/strict';
import type {Phase} from '../../../../shared/domain/records/worker.ts';
import {decideWorker} from '../../../../shared/domain/worker/lifecycle.ts';
import type {Observation} from '../../../../shared/domain/worker/observation.ts';
import {at, aWorker, found, LIMITS, moment, T0} from '../../../world/builders.ts';
import {decide, LIVING, node, PHASES, wellIn} from './lifecycle-cases.ts';

describe('a worker by demand', () => {
  const unwanted: Record<Phase, Phase> = {
    creating: 'deleting',
    booting: 'deleting',
    idle: 'deleting',
    working: 'draining',
    draining: 'draining',
    deleting: 'deleting',
    gone: 'gone',
  };
  for (const phase of PHASES)
    it(`an unwanted slot in phase ${phase} becomes ${unwanted[phase]}`, () => {
      const seen: Observation = phase === 'gone' ? {kind: 'absent'} : node('READY');
      assert.equal(decide(wellIn(phase), seen, {wanted: false}).worker.phase, unwanted[phase]);
    });

  it('an unwanted worker has not the cause of death of the one before it', () => {
    const given = {...wellIn('idle'), last_death: 'it was preempted'};
    assert.equal(decide(given, node('READY'), {wanted: false}).worker.last_death, null);
  });

  for (const phase of LIVING)
    it(`a dismissed slot in phase ${phase} is deleted at once`, () => {
      const decision = decideWorker(wellIn(phase), node('READY'), 'dismissed', LIMITS, moment(T0));
      assert.deepEqual([decision.worker.phase, decision.actions[0]?.kind], ['deleting', 'delete']);
    });

  it('a slot that a message deleted stays empty, also when it is wanted', () => {
    const {worker} = decideWorker(
      aWorker({phase: 'gone', held: true}),
      {kind: 'absent'},
      'wanted',
      LIMITS,
      moment(T0),
    );
    assert.equal(worker.phase, 'gone');
  });

  it('a worker that does not drain is deleted, and the event says so', () => {
    const given = aWorker({
      phase: 'draining',
      work: 'my-run/007',
      heartbeat_at: at(900),
      progress_at: at(900),
    });
    const {worker, events} = decideWorker(given, found('READY'), 'wanted', LIMITS, moment(T0 + 901_000));
    assert.equal(worker.phase, 'deleting');
    assert.match(events.join(), /is not drained after 900 s/);
  });

  it('a host that keeps restarting without a heartbeat is replaced', () => {
    let worker = aWorker({phase: 'working', ready_at: at(0), heartbeat_at: at(0), provider_state: 'READY'});
    let died_s = 0;
    for (let s = 60; s < 86_400 && !died_s; s += 60) {
      const state = Math.floor(s / 300) % 2 === 0 ? 'READY' : 'RESTARTING';
      const decision = decideWorker(worker, found(state), 'wanted', LIMITS, moment(T0 + s * 1000));
      worker = decision.worker;
      if (decision.death) died_s = s;
    }
    assert.ok(died_s > 0 && died_s < 3600, String(died_s));
  });

  it('a drained worker is deleted, also when it is wanted again', () => {
    for (const wanted of [true, false])
      assert.equal(
        decide(wellIn('draining', {work: null}), node('READY'), {wanted}).worker.phase,
        'deleting',
      );
  });

  for (const phase of LIVING)
    it(`a slot to recreate in phase ${phase} is deleted, and then created as the next incarnation`, () => {
      const deleting = decide(
        wellIn(phase, {recreate: true}),
        node(phase === 'creating' ? 'CREATING' : 'READY'),
      );
      assert.equal(deleting.worker.phase, 'deleting');
      const gone = decide(deleting.worker, {kind: 'absent'});
      assert.deepEqual([gone.worker.phase, gone.worker.recreate], ['gone', false]);
      const again = decide(gone.worker, {kind: 'absent'});
      assert.deepEqual([again.worker.phase, again.worker.incarnation], ['creating', 3]);
    });
});
