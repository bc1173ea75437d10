import assert from 'node:assert/strict';
import {createRequire} from 'node:module';
import {protos} from '@google-cloud/tpu';
import {decideWorker} from '../../../../shared/domain/worker/lifecycle.ts';
import {type NodeStanding, nodeStanding} from '../../../../shared/domain/worker/provider-states.ts';
import {at, found, moment, T0} from '../../../world/builders.ts';
import {decide, inQueue, LIMITS, PHASES, SPEAKING, wellIn, wordsOf} from './provider-cases.ts';

const {Node} = protos.google.cloud.tpu.v2;

/**
 * Fate of a healthy slot. `lives`: ends when its agent falls silent. `waits`: a silent agent may wait for the end of a repair.
 * `lost`: ends at once.
 */
type Meaning = 'lives' | 'waits' | 'lost';

const STATES: Record<string, Meaning> = {
  STATE_UNSPECIFIED: 'lives',
  CREATING: 'lives',
  READY: 'lives',
  RESTARTING: 'waits',
  REIMAGING: 'waits',
  DELETING: 'lost',
  REPAIRING: 'waits',
  STOPPED: 'lost',
  STOPPING: 'lost',
  STARTING: 'lives',
  PREEMPTED: 'lost',
  TERMINATED: 'lost',
  HIDING: 'lost',
  HIDDEN: 'lost',
  UNHIDING: 'lives',
  UNKNOWN: 'lives',
};

/** States of an instance of Compute Engine. Those that a node has too mean the same there. */
const INSTANCE_STATES: Record<string, NodeStanding> = {
  UNDEFINED_STATUS: 'coming',
  PENDING: 'coming',
  PROVISIONING: 'coming',
  STAGING: 'coming',
  RUNNING: 'up',
  REPAIRING: 'mending',
  PENDING_STOP: 'over',
  STOPPING: 'over',
  STOPPED: 'over',
  SUSPENDING: 'over',
  SUSPENDED: 'over',
  DEPROVISIONING: 'over',
  TERMINATED: 'over',
};

/** Health alone ends no incarnation. A node under maintenance may be silent as during a repair. */
const HEALTH: Record<string, 'nothing' | 'a clue' | 'a repair'> = {
  HEALTH_UNSPECIFIED: 'nothing',
  HEALTHY: 'nothing',
  TIMEOUT: 'a clue',
  UNHEALTHY_TENSORFLOW: 'a clue',
  UNHEALTHY_MAINTENANCE: 'a repair',
};

describe('states of an instance', () => {
  it('the table names every status of the API', () => {
    const root = createRequire(import.meta.url)('@google-cloud/compute/build/protos/protos.json');
    const {Instance} = root.nested.google.nested.cloud.nested.compute.nested.v1.nested;
    assert.deepEqual(Object.keys(INSTANCE_STATES).sort(), Object.keys(Instance.nested.Status.values).sort());
  });

  for (const [state, standing] of Object.entries(INSTANCE_STATES))
    it(`an instance that is ${state} is ${standing}`, () => {
      assert.equal(nodeStanding({provider_state: state, health: null, queue_state: null}), standing);
    });
});

describe('states of a node', () => {
  it('the tables name every node state and health value of the API', () => {
    assert.deepEqual(Object.keys(STATES).sort(), wordsOf(Node.State).sort());
    assert.deepEqual(Object.keys(HEALTH).sort(), wordsOf(Node.Health).sort());
  });

  for (const [state, ofState] of Object.entries(STATES))
    for (const [health, ofHealth] of Object.entries(HEALTH))
      for (const phase of PHASES) {
        const meaning = state === 'READY' && ofHealth === 'a repair' ? 'waits' : ofState;
        const isOver = phase === 'gone' || phase === 'deleting' || meaning === 'lost';
        const then = isOver ? 'deleting' : phase === 'creating' && state === 'READY' ? 'booting' : phase;
        it(`a slot in phase ${phase} with node ${state}, ${health} becomes ${then}${SPEAKING.includes(then) ? `, and ${meaning} while silent` : ''}`, () => {
          const seen = found(state, {health});
          const {worker, death, actions} = decide(wellIn(phase), seen);
          assert.deepEqual([worker.phase, worker.provider_state, worker.health], [then, state, health]);
          const asked = isOver && phase !== 'deleting' ? ['delete'] : [];
          assert.deepEqual(
            actions.map(action => action.kind),
            asked,
          );
          assert.equal(death?.kind, isOver && phase !== 'gone' && phase !== 'deleting' ? 'taken' : undefined);
          if (!SPEAKING.includes(then)) return;
          const silent = decide(worker, seen, LIMITS.silent_s + 1);
          assert.equal(silent.death?.kind, meaning === 'waits' ? undefined : 'silent');
          if (ofHealth === 'a clue' && silent.death) assert.match(silent.death.cause, new RegExp(health));
          const unseen = decideWorker(
            worker,
            {kind: 'unknown'},
            'wanted',
            LIMITS,
            moment(T0 + (LIMITS.silent_s + 1) * 1000),
          );
          assert.equal(unseen.death?.kind, silent.death?.kind, 'the same in a zone without an answer');
          const late = decide(worker, seen, LIMITS.repair_s + 1);
          assert.equal(late.death?.kind, meaning === 'waits' ? 'taken' : 'silent');
        });
      }

  it('a create that fails late blocks the slot for retry_s', () => {
    const absent = {kind: 'absent'} as const;
    for (const seen of [found('CREATING'), found(null, {queued: inQueue('PROVISIONING')})]) {
      const {worker} = decide(wellIn('creating'), seen);
      const {worker: after, death} = decideWorker(worker, absent, 'wanted', LIMITS, moment(T0 + 60_000));
      assert.deepEqual([after.phase, death?.kind], ['deleting', 'setup']);
      const {worker: gone} = decideWorker(after, absent, 'wanted', LIMITS, moment(T0 + 120_000));
      assert.deepEqual([gone.phase, gone.blocked_until_at], ['gone', at(60 + LIMITS.retry_s)]);
    }
  });
});

describe('repairs of a node', () => {
  for (const [what, mending] of [
    ['RESTARTING', found('RESTARTING')],
    ['maintenance', found('READY', {health: 'UNHEALTHY_MAINTENANCE'})],
  ] as const) {
    it(`a host has boot_s for its first heartbeat after ${what}`, () => {
      const {worker} = decide(wellIn('working'), mending);
      const back = decide(worker, found('READY'), 800);
      assert.deepEqual(
        [back.worker.phase, back.worker.heartbeat_at, back.death],
        ['booting', null, undefined],
      );
      assert.equal(decide(back.worker, found('READY'), 800 + LIMITS.boot_s).worker.phase, 'booting');
      assert.equal(decide(back.worker, found('READY'), 801 + LIMITS.boot_s).death?.kind, 'unheard');
    });

    it(`an agent that sends heartbeats during ${what} continues its work`, () => {
      const {worker} = decide(wellIn('working'), mending);
      const spoken = {...worker, heartbeat_at: at(780), progress_at: at(780)};
      assert.equal(decide(spoken, found('READY'), 800).worker.phase, 'working');
    });
  }

  it('a repair that changes its state has one limit', () => {
    const {worker} = decide(wellIn('working'), found('RESTARTING'));
    const next = decide(worker, found('REPAIRING'), 900).worker;
    assert.equal(decide(next, found('REPAIRING'), LIMITS.repair_s + 1).death?.kind, 'taken');
  });
});
