import assert from 'node:assert/strict';
import {isBlocked, type Phase} from '../../../../shared/domain/records/worker.ts';
import {at, aWorker, LIMITS, T0} from '../../../world/builders.ts';
import {decide, FOREIGN, LIVING, node, PHASES, STATES, wellIn} from './lifecycle-cases.ts';

describe('a worker after an observation', () => {
  for (const state of ['RESTARTING', 'REIMAGING', 'REPAIRING'])
    it(`a silent worker with a ${state} node is kept until repair_s`, () => {
      const {worker} = decide(wellIn('working'), node(state));
      assert.equal(decide(worker, node(state), {seconds: LIMITS.repair_s}).worker.phase, 'working');
      assert.equal(decide(worker, node(state), {seconds: LIMITS.repair_s + 1}).worker.phase, 'deleting');
    });

  for (const [state, meaning] of Object.entries(STATES))
    for (const phase of PHASES) {
      const then =
        phase === 'gone' || phase === 'deleting' ? 'deleting' : meaning === 'lost' ? 'deleting' : phase;
      const expected = phase === 'creating' && state === 'READY' ? 'booting' : then;
      it(`a slot in phase ${phase} with node state ${state} becomes ${expected}`, () => {
        const {worker, actions} = decide(wellIn(phase), node(state));
        assert.equal(worker.phase, expected);
        const asked = expected === 'deleting' && phase !== 'deleting' ? ['delete'] : [];
        assert.deepEqual(
          actions.map(action => action.kind),
          asked,
        );
        assert.deepEqual(
          [worker.provider_state, worker.health],
          [state, 'HEALTHY'],
          'the document shows state and health',
        );
        if (LIVING.includes(phase) && expected === 'deleting')
          assert.ok(worker.last_death, 'the cause is recorded');
      });
    }

  const absent: Record<Phase, {then: Phase; asks: string[]}> = {
    creating: {then: 'creating', asks: []},
    booting: {then: 'deleting', asks: ['delete']},
    idle: {then: 'deleting', asks: ['delete']},
    working: {then: 'deleting', asks: ['delete']},
    draining: {then: 'deleting', asks: ['delete']},
    deleting: {then: 'gone', asks: []},
    gone: {then: 'creating', asks: ['create']},
  };
  for (const phase of PHASES)
    it(`a slot in phase ${phase} without a node becomes ${absent[phase].then}`, () => {
      const {worker, actions} = decide(wellIn(phase), {kind: 'absent'});
      assert.equal(worker.phase, absent[phase].then);
      assert.deepEqual(
        actions.map(action => action.kind),
        absent[phase].asks,
      );
    });

  for (const phase of PHASES.filter(phase => phase !== 'gone'))
    it(`a slot in phase ${phase} in a zone without an answer stays unchanged`, () => {
      const worker = wellIn(phase);
      assert.deepEqual(decide(worker, {kind: 'unknown'}), {worker, actions: [], events: []});
    });

  for (const phase of LIVING)
    it(`a slot in phase ${phase} with a node of another incarnation is deleted`, () => {
      const {worker, actions} = decide(wellIn(phase), node('READY', 1));
      assert.equal(worker.phase, 'deleting');
      assert.equal(actions[0]?.kind, 'delete');
      assert.match(worker.last_death ?? '', /incarnation 1, not 2/);
      assert.equal(worker.blocked_until_at, null, 'the zone refused nothing');
    });

  for (const phase of PHASES)
    it(`a slot in phase ${phase} does not touch a foreign node of its name`, () => {
      const {worker, actions, events} = decide(wellIn(phase), FOREIGN);
      assert.equal(worker.phase, 'gone');
      assert.deepEqual(actions, []);
      assert.ok(isBlocked(worker, T0 + 60_000), 'the slot is blocked');
      assert.match(events.join(), /not ours/);
    });

  it('a request of ours behind a foreign node is deleted, and the delete repeats', () => {
    const behind = {kind: 'foreign', isQueued: true} as const;
    for (const phase of PHASES.filter(phase => phase !== 'deleting')) {
      const {worker, actions} = decide(wellIn(phase), behind);
      assert.deepEqual([worker.phase, actions.map(({kind}) => kind)], ['deleting', ['delete']], phase);
    }
    const asked = aWorker({phase: 'deleting', asked_at: at(0)});
    assert.deepEqual(decide(asked, behind, {seconds: 1}).actions, []);
    assert.equal(decide(asked, behind, {seconds: 1000}).actions.length, 1);
  });

  it('an unwanted empty slot records nothing about a foreign node', () => {
    const worker = wellIn('gone');
    assert.deepEqual(decide(worker, FOREIGN, {wanted: false}), {worker, actions: [], events: []});
  });

  it('a node that outlived its database is deleted, and its incarnation is never used again', () => {
    const {worker} = decide(aWorker({incarnation: 0}), node('READY', 17));
    assert.deepEqual([worker.phase, worker.incarnation], ['deleting', 17]);
    const {worker: gone} = decide(worker, {kind: 'absent'});
    assert.equal(decide(gone, {kind: 'absent'}).worker.incarnation, 18);
    assert.equal(decide(wellIn('creating'), node('READY', 17)).worker.incarnation, 17);
  });
});
