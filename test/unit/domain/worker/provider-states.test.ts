import assert from 'node:assert/strict';
import {protos} from '@google-cloud/tpu';
import {decideWorker} from '../../../../shared/domain/worker/lifecycle.ts';
import type {Limits} from '../../../../shared/domain/worker/limits.ts';
import type {Found} from '../../../../shared/domain/worker/observation.ts';
import {isBadHost, type Queued, type Symptom} from '../../../../shared/domain/worker/provider-states.ts';
import type {Phase, Worker} from '../../../../shared/domain/worker/worker.ts';
import {at, aWorker, LIMITS as COMMON_LIMITS, found, moment, T0} from '../../../support/builders.ts';

const {Node, QueuedResourceState, Symptom: ApiSymptom} = protos.google.cloud.tpu.v2;
const wordsOf = (words: object) => Object.keys(words).filter(word => !/^\d+$/.test(word));

const LIMITS: Limits = {...COMMON_LIMITS, drain_s: 1800, repair_s: 1000};
const PHASES: Phase[] = ['creating', 'booting', 'idle', 'working', 'draining', 'deleting', 'gone'];
const SPEAKING: Phase[] = ['idle', 'working', 'draining'];

/**
 * What becomes of a slot that was well a moment ago, and when its agent is silent from now on: `lives` while it speaks,
 * `waits` for the end of a repair also while it is silent, `lost` at once.
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

/** Health alone ends no life. A node under maintenance is waited for like one under repair. */
const HEALTH: Record<string, 'nothing' | 'a clue' | 'a repair'> = {
  HEALTH_UNSPECIFIED: 'nothing',
  HEALTHY: 'nothing',
  TIMEOUT: 'a clue',
  UNHEALTHY_TENSORFLOW: 'a clue',
  UNHEALTHY_MAINTENANCE: 'a repair',
};

/** Of a queued resource without a node, for a slot that is being created and for one whose agent has spoken. */
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

/** What a silent agent died of. Only chips that do not find each other can be no stream's doing. */
const SYMPTOMS: Record<string, {then: 'silent' | 'broken'}> = {
  LOW_MEMORY: {then: 'silent'},
  OUT_OF_MEMORY: {then: 'silent'},
  EXECUTE_TIMED_OUT: {then: 'silent'},
  MESH_BUILD_FAIL: {then: 'broken'},
  HBM_OUT_OF_MEMORY: {then: 'silent'},
  PROJECT_ABUSE: {then: 'silent'},
};

const inQueue = (state: string, changes: Partial<Queued> = {}): Queued => ({
  ...{state, initiator: 'SERVICE', error: null, valid_until_at: at(7200), ...changes},
});

function wellIn(phase: Phase, changes: Partial<Worker> = {}): Worker {
  const hasWork = phase === 'working' || phase === 'draining';
  return aWorker({
    ...{phase, asked_at: at(0), ready_at: phase === 'creating' ? null : at(0)},
    ...{heartbeat_at: SPEAKING.includes(phase) ? at(0) : null, work: hasWork ? 'my-run/007' : null},
    ...changes,
  });
}

const decide = (worker: Worker, seen: Found, seconds = 0) =>
  decideWorker(worker, seen, 'wanted', LIMITS, moment(T0 + seconds * 1000));
/** The same thing seen now and again later. */
const later = (worker: Worker, seen: Found, seconds: number) =>
  decide(decide(worker, seen).worker, seen, seconds);

describe('what Cloud TPU says', () => {
  it('has all its words here', () => {
    assert.deepEqual(Object.keys(STATES).sort(), wordsOf(Node.State).sort());
    assert.deepEqual(Object.keys(HEALTH).sort(), wordsOf(Node.Health).sort());
    assert.deepEqual(Object.keys(QUEUE).sort(), wordsOf(QueuedResourceState.State).sort());
    assert.deepEqual(
      [...wordsOf(ApiSymptom.SymptomType)].sort(),
      ['SYMPTOM_TYPE_UNSPECIFIED', ...Object.keys(SYMPTOMS)].sort(),
    );
  });

  for (const [state, ofState] of Object.entries(STATES))
    for (const [health, ofHealth] of Object.entries(HEALTH))
      for (const phase of PHASES) {
        const meaning = state === 'READY' && ofHealth === 'a repair' ? 'waits' : ofState;
        const isOver = phase === 'gone' || phase === 'deleting' || meaning === 'lost';
        const then = isOver ? 'deleting' : phase === 'creating' && state === 'READY' ? 'booting' : phase;
        it(`${phase}, ${state}, ${health}: ${then}${SPEAKING.includes(then) ? `, and silent, ${meaning}` : ''}`, () => {
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
          assert.equal(unseen.death?.kind, silent.death?.kind, 'also where nobody could look');
          const late = decide(worker, seen, LIMITS.repair_s + 1);
          assert.equal(late.death?.kind, meaning === 'waits' ? 'taken' : 'silent');
        });
      }

  describe('of a queued resource', () => {
    for (const [state, {creating}] of Object.entries(QUEUE))
      for (const phase of PHASES) {
        const isLost = phase === 'deleting' || phase === 'gone' || creating === 'lost';
        it(`without a node, ${phase} and ${state}: ${isLost ? 'deleting' : phase}`, () => {
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
        it(`with a READY node, ${phase} and ${state}: ${creating === 'lost' ? 'deleting' : 'lives'}`, () => {
          const {worker} = decide(wellIn(phase), found('READY', {queued: inQueue(state)}));
          const alive = phase === 'creating' ? 'booting' : phase;
          assert.equal(worker.phase, creating === 'lost' ? 'deleting' : alive);
        });
      }

    const queued = wellIn('creating', {provisioning: 'queued-resource', valid_until_at: at(7200)});

    for (const [state, {creating}] of Object.entries(QUEUE))
      if (creating === 'waits')
        it(`${state} is waited for until its end, and the zone is then sold out`, () => {
          const seen = found(null, {queued: inQueue(state)});
          assert.equal(later(queued, seen, 7200).worker.phase, 'creating');
          const {death, worker} = later(queued, seen, 7201);
          assert.deepEqual([death?.kind, death?.refusal, worker.phase], ['setup', 'no-capacity', 'deleting']);
        });

    for (const state of ['PROVISIONING', 'ACTIVE'])
      it(`${state} is given as long as any node, from when it says so, however long it waited`, () => {
        const waiting = decide(queued, found(null, {queued: inQueue('WAITING_FOR_RESOURCES')})).worker;
        const seen = found(null, {queued: inQueue(state)});
        const {worker} = decide(waiting, seen, 7000);
        assert.equal(decide(worker, seen, 7000 + LIMITS.create_s).worker.phase, 'creating');
        const late = decide(worker, seen, 7000 + LIMITS.create_s + 1);
        assert.deepEqual([late.worker.phase, late.death?.refusal], ['deleting', 'transient']);
      });

    it('FAILED tells the zone why, and a person too', () => {
      const error = {kind: 'quota' as const, message: 'Quota limit exceeded'};
      const {death} = decide(queued, found(null, {queued: inQueue('FAILED', {error})}));
      assert.deepEqual([death?.kind, death?.refusal], ['setup', 'quota']);
      assert.match(death?.cause ?? '', /FAILED: Quota limit exceeded/);
    });

    it('SUSPENDED says who did it', () => {
      for (const [initiator, by] of [
        ['SERVICE', / by Cloud TPU$/],
        ['USER', / by a user$/],
        ['STATE_INITIATOR_UNSPECIFIED', /SUSPENDED$/],
      ] as const) {
        const seen = found('READY', {queued: inQueue('SUSPENDED', {initiator})});
        assert.match(decide(wellIn('working'), seen).death?.cause ?? '', by);
      }
    });

    it('of another life is the end of this one, whatever life its node is of', () => {
      const seen = found('READY', {queued: inQueue('ACTIVE'), incarnations: [2, 7]});
      const {worker, death} = decide(wellIn('working'), seen);
      assert.deepEqual([worker.phase, worker.incarnation, death?.kind], ['deleting', 7, 'taken']);
    });
  });

  it('and then nothing of it: a create that fails late is not asked for again and again', () => {
    const absent = {kind: 'absent'} as const;
    for (const seen of [found('CREATING'), found(null, {queued: inQueue('PROVISIONING')})]) {
      const {worker} = decide(wellIn('creating'), seen);
      const {worker: after, death} = decideWorker(worker, absent, 'wanted', LIMITS, moment(T0 + 60_000));
      assert.deepEqual([after.phase, death?.kind], ['deleting', 'setup']);
      const {worker: gone} = decideWorker(after, absent, 'wanted', LIMITS, moment(T0 + 120_000));
      assert.deepEqual([gone.phase, gone.blocked_until_at], ['gone', at(60 + LIMITS.retry_s)]);
    }
  });

  describe('of a repair', () => {
    for (const [what, mending] of [
      ['RESTARTING', found('RESTARTING')],
      ['maintenance', found('READY', {health: 'UNHEALTHY_MAINTENANCE'})],
    ] as const) {
      it(`${what} that ends leaves its host the time to boot`, () => {
        const {worker} = decide(wellIn('working'), mending);
        const back = decide(worker, found('READY'), 800);
        assert.deepEqual(
          [back.worker.phase, back.worker.heartbeat_at, back.death],
          ['booting', null, undefined],
        );
        assert.equal(decide(back.worker, found('READY'), 800 + LIMITS.boot_s).worker.phase, 'booting');
        assert.equal(decide(back.worker, found('READY'), 801 + LIMITS.boot_s).death?.kind, 'unheard');
      });

      it(`${what} through which an agent speaks changes nothing`, () => {
        const {worker} = decide(wellIn('working'), mending);
        const spoken = {...worker, heartbeat_at: at(780), progress_at: at(780)};
        assert.equal(decide(spoken, found('READY'), 800).worker.phase, 'working');
      });
    }

    it('that goes from one state to another is one repair', () => {
      const {worker} = decide(wellIn('working'), found('RESTARTING'));
      const next = decide(worker, found('REPAIRING'), 900).worker;
      assert.equal(decide(next, found('REPAIRING'), LIMITS.repair_s + 1).death?.kind, 'taken');
    });
  });

  describe('of symptoms', () => {
    const symptom = (kind: string, seconds: number): Symptom => ({
      ...{symptom: kind, details: `details of ${kind}`, created_at: at(seconds)},
    });

    for (const [kind, {then}] of Object.entries(SYMPTOMS)) {
      const seen = found('READY', {symptoms: [symptom(kind, 60)]});

      it(`${kind} is told once, kept, and ends nothing by itself`, () => {
        const {worker, events, death} = decide(wellIn('working'), seen, 100);
        assert.deepEqual([worker.phase, death, worker.symptoms], ['working', undefined, seen.symptoms]);
        assert.equal(events.length, 1);
        assert.match(events[0] ?? '', new RegExp(`shows ${kind}, .*details of ${kind}`));
        assert.deepEqual(decide(worker, seen, 130), {worker, actions: [], events: []});
      });

      it(`${kind} and then silence is a death of kind ${then}, and the cause names it`, () => {
        const {death} = decide(wellIn('working'), seen, LIMITS.silent_s + 1);
        assert.equal(death?.kind, then);
        assert.match(death?.cause ?? '', new RegExp(`said nothing.*${kind}`));
      });

      it(`${kind} from before the node was READY says nothing`, () => {
        const early = found('READY', {symptoms: [symptom(kind, -1)]});
        assert.deepEqual(decide(wellIn('working'), early).worker.symptoms, []);
        assert.deepEqual(decide(wellIn('creating'), early).worker.symptoms, []);
      });
    }

    it('the newest are kept, and a new word is told as it is', () => {
      const many = Array.from({length: 9}, (_, index) => symptom('LOW_MEMORY', 90 - index));
      const {worker, events} = decide(
        wellIn('working'),
        found('READY', {symptoms: [...many, symptom('TOO_HOT', 99)]}),
        100,
      );
      assert.equal(worker.symptoms.length, 5);
      assert.match(events.at(-1) ?? '', /TOO_HOT, a symptom that is new to us/);
    });
  });

  describe('through the agent, of a host', () => {
    const texts = [
      "Couldn't open iommu group /dev/vfio/3: Device or resource busy",
      'open(/dev/vfio/0): Device or resource busy: Device or resource busy',
      'INTERNAL: Failed to initialize TPU system: resource busy',
      'UNKNOWN: TPU initialization failed: No ba16c7433 device found.',
      'RuntimeError: No accelerator found. Run on a TPU',
      "RuntimeError: Unable to initialize backend 'tpu': UNKNOWN: TPU initialization failed: open(/dev/vfio/0)",
    ];
    for (const text of texts)
      it(`"${text.slice(0, 40)}" is a broken machine`, () => {
        const fault = `Failed to extract stream 007: ${text}`;
        assert.ok(isBadHost(fault));
        const {worker, death} = decide(wellIn('idle', {fault}), found('READY'));
        assert.deepEqual([worker.phase, death?.kind], ['deleting', 'broken']);
        assert.match(death?.cause ?? '', /its agent said: Failed to extract/);
      });

    it('a runtime that cannot be loaded is no broken machine: the next one has the same', () => {
      const text = "Unable to initialize backend 'tpu': INTERNAL: Failed to open libtpu.so: no such file";
      assert.ok(!isBadHost(text));
    });

    it('a machine that failed otherwise is replaced as well, and says nothing bad of its zone', () => {
      const {worker, death} = decide(wellIn('idle', {fault: 'the disk is full'}), found('READY'));
      assert.deepEqual([worker.phase, death?.kind], ['deleting', 'crashed']);
    });

    it('the next life begins without what was said of this one', () => {
      const fault = texts[0] ?? '';
      const seen = found('READY', {symptoms: [symptomNow()]});
      const dead = decide(wellIn('working', {fault}), seen, 10).worker;
      const gone = decideWorker(dead, {kind: 'absent'}, 'wanted', LIMITS, moment(T0 + 60_000)).worker;
      const {worker} = decideWorker(gone, {kind: 'absent'}, 'wanted', LIMITS, moment(T0 + 120_000));
      assert.deepEqual(
        [worker.phase, worker.fault, worker.symptoms, worker.provider_state, worker.provider_since_at],
        ['creating', null, [], null, null],
      );
    });
  });
});

function symptomNow(): Symptom {
  return {symptom: 'LOW_MEMORY', details: '', created_at: at(5)};
}
