import assert from 'node:assert/strict';
import {protos} from '@google-cloud/tpu';
import {decideWorker} from '../../../../shared/domain/worker/lifecycle.ts';
import {at, found, moment, T0} from '../../../world/builders.ts';
import {decide, inQueue, LIMITS, later, PHASES, wellIn, wordsOf} from './provider-cases.ts';

const {QueuedResourceState} = protos.google.cloud.tpu.v2;

/** Fate of a slot with a queued resource and no node: while it is created, and after its agent has spoken. */
const QUEUE: Record<string, {creating: 'waits' | 'is made' | 'lost'; living: 'lost'}> = {
  STATE_UNSPECIFIED: {creating: 'waits', living: 'lost'},
  CREATING: {creating: 'waits', living: 'lost'},
  ACCEPTED: {creating: 'waits', living: 'lost'},
  WAITING_FOR_RESOURCES: {creating: 'waits', living: 'lost'},
  PROVISIONING: {creating: 'is made', living: 'lost'},
  ACTIVE: {creating: 'is made', living: 'lost'},
  SUSPENDING: {creating: 'lost', living: 'lost'},
  SUSPENDED: {creating: 'lost', living: 'lost'},
  FAILED: {creating: 'lost', living: 'lost'},
  DELETING: {creating: 'lost', living: 'lost'},
};

describe('states of a queued resource', () => {
  it('the table names every state of a queued resource', () => {
    assert.deepEqual(Object.keys(QUEUE).sort(), wordsOf(QueuedResourceState.State).sort());
  });

  for (const [state, {creating}] of Object.entries(QUEUE))
    for (const phase of PHASES) {
      const isLost = phase === 'deleting' || phase === 'gone' || creating === 'lost';
      it(`a slot in phase ${phase} with a queued resource ${state} and no node becomes ${isLost ? 'deleting' : phase}`, () => {
        const given = wellIn(phase, {provisioning: 'queued-resource', valid_until_at: at(7200)});
        const {worker, actions} = decide(given, found(null, {queued: inQueue(state)}));
        assert.deepEqual(
          [worker.phase, worker.provider_state, worker.queue_state],
          [isLost ? 'deleting' : phase, null, state],
        );
        assert.deepEqual(
          actions.map(action => action.kind),
          isLost && phase !== 'deleting' ? ['delete'] : [],
        );
      });
      if (phase === 'gone' || phase === 'deleting') continue;
      it(`a slot in phase ${phase} with a queued resource ${state} and a READY node ${creating === 'lost' ? 'becomes deleting' : 'lives'}`, () => {
        const {worker} = decide(wellIn(phase), found('READY', {queued: inQueue(state)}));
        const alive = phase === 'creating' ? 'booting' : phase;
        assert.equal(worker.phase, creating === 'lost' ? 'deleting' : alive);
      });
    }

  const queued = wellIn('creating', {provisioning: 'queued-resource', valid_until_at: at(7200)});

  for (const [state, {creating}] of Object.entries(QUEUE))
    if (creating === 'waits')
      it(`a queued resource ${state} waits until it expires, which is a stock-out`, () => {
        const seen = found(null, {queued: inQueue(state)});
        assert.equal(later(queued, seen, 7200).worker.phase, 'creating');
        const {death, worker} = later(queued, seen, 7201);
        assert.deepEqual([death?.kind, death?.refusal, worker.phase], ['setup', 'no-capacity', 'deleting']);
      });

  for (const state of ['PROVISIONING', 'ACTIVE'])
    it(`a queued resource ${state} has create_s from the start of that state`, () => {
      const waiting = decide(queued, found(null, {queued: inQueue('WAITING_FOR_RESOURCES')})).worker;
      const seen = found(null, {queued: inQueue(state)});
      const {worker} = decide(waiting, seen, 7000);
      assert.equal(decide(worker, seen, 7000 + LIMITS.create_s).worker.phase, 'creating');
      const late = decide(worker, seen, 7000 + LIMITS.create_s + 1);
      assert.deepEqual([late.worker.phase, late.death?.refusal], ['deleting', 'transient']);
    });

  for (const {name, seen, limit_s} of [
    {name: 'that is listed as CREATING has create_s', seen: found('CREATING'), limit_s: 2700},
    {name: 'that no list has shown has 900 s', seen: {kind: 'absent'} as const, limit_s: 900},
  ])
    it(`a node ${name} to become READY`, () => {
      const limits = {...LIMITS, create_s: 2700, ask_again_s: 99_999};
      const requested = wellIn('creating', {provisioning: 'node'});
      const decideAfter = (seconds: number) =>
        decideWorker(requested, seen, 'wanted', limits, moment(T0 + seconds * 1000));
      assert.equal(decideAfter(limit_s).worker.phase, 'creating');
      assert.equal(decideAfter(limit_s + 1).death?.cause, `it was not READY within ${limit_s} s`);
    });

  it('a queued resource that FAILED gives the kind and the message of its refusal', () => {
    const error = {kind: 'quota' as const, message: 'Quota limit exceeded'};
    const {death} = decide(queued, found(null, {queued: inQueue('FAILED', {error})}));
    assert.deepEqual([death?.kind, death?.refusal], ['setup', 'quota']);
    assert.match(death?.cause ?? '', /FAILED: Quota limit exceeded/);
  });

  it('a queued resource that is SUSPENDED names its initiator', () => {
    for (const [initiator, by] of [
      ['SERVICE', / by Cloud TPU$/],
      ['USER', / by a user$/],
      ['STATE_INITIATOR_UNSPECIFIED', /SUSPENDED$/],
    ] as const) {
      const seen = found('READY', {queued: inQueue('SUSPENDED', {initiator})});
      assert.match(decide(wellIn('working'), seen).death?.cause ?? '', by);
    }
  });

  it('a queued resource of another incarnation ends the worker', () => {
    const seen = found('READY', {queued: inQueue('ACTIVE'), incarnations: [2, 7]});
    const {worker, death} = decide(wellIn('working'), seen);
    assert.deepEqual([worker.phase, worker.incarnation, death?.kind], ['deleting', 7, 'taken']);
  });
});
