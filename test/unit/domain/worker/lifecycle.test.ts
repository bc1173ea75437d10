import assert from 'node:assert/strict';
import fc from 'fast-check';
import {askedForWork, heardFrom} from '../../../../shared/domain/worker/heartbeat.ts';
import {decideWorker} from '../../../../shared/domain/worker/lifecycle.ts';
import type {Found, Observation} from '../../../../shared/domain/worker/observation.ts';
import {createRefused} from '../../../../shared/domain/worker/transitions.ts';
import {
  isAlive,
  isBlocked,
  NO_WORK,
  type Phase,
  type Worker,
} from '../../../../shared/domain/worker/worker.ts';
import {at, aWorker, found, LIMITS, moment, T0} from '../../../support/builders.ts';

const FOREIGN = {kind: 'foreign', isQueued: false} as const;
const PHASES: Phase[] = ['creating', 'booting', 'idle', 'working', 'draining', 'deleting', 'gone'];
const LIVING: Phase[] = ['creating', 'booting', 'idle', 'working', 'draining'];
const SPEAKING: Phase[] = ['idle', 'working', 'draining'];

/** Every state of a Node in the v2 API, and what it means for a slot that was well a moment ago. */
const STATES: Record<string, 'well' | 'lost'> = {
  STATE_UNSPECIFIED: 'well',
  UNKNOWN: 'well',
  CREATING: 'well',
  READY: 'well',
  RESTARTING: 'well',
  REIMAGING: 'well',
  REPAIRING: 'well',
  STARTING: 'well',
  UNHIDING: 'well',
  STOPPED: 'lost',
  STOPPING: 'lost',
  DELETING: 'lost',
  PREEMPTED: 'lost',
  TERMINATED: 'lost',
  HIDING: 'lost',
  HIDDEN: 'lost',
  SUSPENDED: 'lost',
};

const inQueue = (state: string) => ({state, initiator: 'SERVICE', error: null, valid_until_at: null});

/** A worker in this phase that has done all it should, up to this moment. */
function wellIn(phase: Phase, changes: Partial<Worker> = {}): Worker {
  const speaks = SPEAKING.includes(phase);
  return aWorker({
    phase,
    asked_at: phase === 'creating' || phase === 'deleting' ? at(0) : null,
    heartbeat_at: speaks ? at(0) : null,
    work: phase === 'working' || phase === 'draining' ? 'my-run/007' : null,
    ...changes,
  });
}

const node = (state: string, ...incarnations: number[]): Found =>
  found(state, {incarnations: incarnations.length > 0 ? incarnations : [2]});

const shown = (state: string) => ({
  ...{provider_state: state, health: 'HEALTHY', provider_since_at: at(0)},
});

function decide(worker: Worker, observation: Observation, {wanted = true, seconds = 0} = {}) {
  return decideWorker(
    worker,
    observation,
    wanted ? 'wanted' : 'unwanted',
    LIMITS,
    moment(T0 + seconds * 1000),
  );
}

describe('the life of a slot', () => {
  for (const state of ['RESTARTING', 'REIMAGING', 'REPAIRING'])
    it(`waits for a node that is ${state}, silent as it is, and not for ever`, () => {
      const {worker} = decide(wellIn('working'), node(state));
      assert.equal(decide(worker, node(state), {seconds: LIMITS.repair_s}).worker.phase, 'working');
      assert.equal(decide(worker, node(state), {seconds: LIMITS.repair_s + 1}).worker.phase, 'deleting');
    });

  describe('by what Cloud TPU shows', () => {
    for (const [state, meaning] of Object.entries(STATES))
      for (const phase of PHASES) {
        const then =
          phase === 'gone' || phase === 'deleting' ? 'deleting' : meaning === 'lost' ? 'deleting' : phase;
        const expected = phase === 'creating' && state === 'READY' ? 'booting' : then;
        it(`${phase} and ${state} becomes ${expected}`, () => {
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
            'the console shows it',
          );
          if (LIVING.includes(phase) && expected === 'deleting') assert.ok(worker.last_death, 'it says why');
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
      it(`${phase} and no node becomes ${absent[phase].then}`, () => {
        const {worker, actions} = decide(wellIn(phase), {kind: 'absent'});
        assert.equal(worker.phase, absent[phase].then);
        assert.deepEqual(
          actions.map(action => action.kind),
          absent[phase].asks,
        );
      });

    for (const phase of PHASES.filter(phase => phase !== 'gone'))
      it(`${phase} in a zone that gives no answer stays as it is`, () => {
        const worker = wellIn(phase);
        assert.deepEqual(decide(worker, {kind: 'unknown'}), {worker, actions: [], events: []});
      });

    for (const phase of LIVING)
      it(`${phase} with a node of another life is lost`, () => {
        const {worker, actions} = decide(wellIn(phase), node('READY', 1));
        assert.equal(worker.phase, 'deleting');
        assert.equal(actions[0]?.kind, 'delete');
        assert.match(worker.last_death ?? '', /incarnation 1, not 2/);
        assert.equal(worker.blocked_until_at, null, 'its zone refused nothing');
      });

    for (const phase of PHASES)
      it(`${phase} and a node that somebody else made leaves that node alone`, () => {
        const {worker, actions, events} = decide(wellIn(phase), FOREIGN);
        assert.equal(worker.phase, 'gone');
        assert.deepEqual(actions, []);
        assert.ok(isBlocked(worker, T0 + 60_000), 'another slot is taken meanwhile');
        assert.match(events.join(), /not ours/);
      });

    it('a request of ours behind a node that is not is taken back, and asked for again', () => {
      const behind = {kind: 'foreign', isQueued: true} as const;
      for (const phase of PHASES.filter(phase => phase !== 'deleting')) {
        const {worker, actions} = decide(wellIn(phase), behind);
        assert.deepEqual([worker.phase, actions.map(({kind}) => kind)], ['deleting', ['delete']], phase);
      }
      const asked = aWorker({phase: 'deleting', asked_at: at(0)});
      assert.deepEqual(decide(asked, behind, {seconds: 1}).actions, []);
      assert.equal(decide(asked, behind, {seconds: 1000}).actions.length, 1);
    });

    it('a slot that nobody wants says nothing about a node that is not ours', () => {
      const worker = wellIn('gone');
      assert.deepEqual(decide(worker, FOREIGN, {wanted: false}), {worker, actions: [], events: []});
    });

    it('a node that outlived its database is deleted, and its number is not used again', () => {
      const {worker} = decide(aWorker({incarnation: 0}), node('READY', 17));
      assert.deepEqual([worker.phase, worker.incarnation], ['deleting', 17]);
      const {worker: gone} = decide(worker, {kind: 'absent'});
      assert.equal(decide(gone, {kind: 'absent'}).worker.incarnation, 18);
      assert.equal(decide(wellIn('creating'), node('READY', 17)).worker.incarnation, 17);
    });
  });

  describe('by time', () => {
    const limits: {
      name: string;
      given: Worker;
      seen: Observation;
      limit: number;
      then: Phase;
      before?: Phase;
      asks?: 'create' | 'delete';
    }[] = [
      {
        name: 'a node that is never READY',
        given: wellIn('creating', {asked_at: at(600)}),
        seen: node('CREATING'),
        limit: 900,
        then: 'deleting',
        asks: 'delete',
      },
      {
        name: 'a create that had no effect',
        given: wellIn('creating'),
        seen: {kind: 'absent'},
        limit: 180,
        then: 'creating',
        asks: 'create',
      },
      {
        name: 'a delete of a node that does not go',
        given: wellIn('deleting'),
        seen: node('READY'),
        limit: 30,
        then: 'deleting',
        asks: 'delete',
      },
      {
        name: 'a delete that does not come to its end',
        given: wellIn('deleting'),
        seen: node('DELETING'),
        limit: 180,
        then: 'deleting',
        asks: 'delete',
      },
      {
        name: 'READY but silent',
        given: wellIn('booting'),
        seen: node('READY'),
        limit: 600,
        then: 'deleting',
        asks: 'delete',
      },
      {
        name: 'a setup without end',
        given: wellIn('booting', {heartbeat_at: at(1790)}),
        seen: node('READY'),
        limit: 1800,
        then: 'deleting',
        asks: 'delete',
      },
      {
        name: 'a setup that falls silent',
        given: wellIn('booting', {heartbeat_at: at(0)}),
        seen: node('READY'),
        limit: 240,
        then: 'deleting',
        asks: 'delete',
      },
      {
        name: 'an idle worker that falls silent',
        given: wellIn('idle'),
        seen: node('READY'),
        limit: 240,
        then: 'deleting',
        asks: 'delete',
      },
      {
        name: 'a worker that falls silent in its work',
        given: wellIn('working'),
        seen: node('READY'),
        limit: 240,
        then: 'deleting',
        asks: 'delete',
      },
      {
        name: 'a worker that falls silent while its zone gives no answer',
        given: wellIn('working'),
        seen: {kind: 'unknown'},
        limit: 240,
        then: 'deleting',
        asks: 'delete',
      },
      {
        name: 'draining without end',
        given: wellIn('draining', {heartbeat_at: at(890), progress_at: at(890)}),
        seen: node('READY'),
        limit: 900,
        then: 'deleting',
        asks: 'delete',
      },
      {
        name: 'a repair without end',
        given: wellIn('creating', {asked_at: at(890), ...shown('REPAIRING')}),
        seen: node('REPAIRING'),
        limit: 900,
        then: 'deleting',
        asks: 'delete',
      },
      ...(
        [
          ['running', 600],
          ['uploading', 600],
          ['compiling', 900],
          ['loading', 3600],
        ] as const
      ).map(([activity, limit]) => ({
        name: `${activity} without progress, though it beats,`,
        given: wellIn('working', {activity, progress_at: at(0), heartbeat_at: at(limit)}),
        seen: node('READY'),
        limit,
        then: 'deleting' as const,
        asks: 'delete' as const,
      })),
      {
        name: 'an agent that says it is idle and never asks for work',
        given: wellIn('idle', {activity: 'idle', progress_at: at(0), heartbeat_at: at(600)}),
        seen: node('READY'),
        limit: 600,
        then: 'deleting',
        asks: 'delete',
      },
      {
        name: 'a node of unknown state that says nothing',
        given: wellIn('working'),
        seen: node('UNKNOWN'),
        limit: 240,
        then: 'deleting',
        asks: 'delete',
      },
    ];
    for (const {name, given, seen, limit, then, asks} of limits)
      it(`${name} is given ${limit} s`, () => {
        const inTime = decide(given, seen, {seconds: limit});
        assert.deepEqual([inTime.worker.phase, inTime.actions], [given.phase, []]);
        const late = decide(given, seen, {seconds: limit + 1});
        assert.equal(late.worker.phase, then);
        assert.equal(late.actions[0]?.kind, asks);
      });

    it('a slot whose node never came up lets other slots go first', () => {
      const dead = decide(wellIn('creating'), node('CREATING'), {seconds: 901}).worker;
      const gone = decide(dead, {kind: 'absent'}, {seconds: 961}).worker;
      assert.ok(gone.phase === 'gone' && isBlocked(gone, T0 + 962_000), JSON.stringify(gone));
      const again = decide(gone, {kind: 'absent'}, {seconds: 901 + 301}).worker;
      assert.deepEqual([again.phase, again.blocked_until_at], ['creating', null]);
    });

    it('a slot that its zone refused is created again when its time is over, not before', () => {
      const refused = createRefused(wellIn('creating'), 'no capacity', 300, T0);
      assert.deepEqual([refused.phase, refused.last_error], ['gone', 'no capacity']);
      assert.deepEqual(decide(refused, {kind: 'absent'}, {seconds: 300}).actions, []);
      const {worker} = decide(refused, {kind: 'absent'}, {seconds: 301});
      assert.deepEqual([worker.phase, worker.incarnation], ['creating', 3]);
    });
  });

  describe('by what is wanted', () => {
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
      it(`${phase} and not wanted becomes ${unwanted[phase]}`, () => {
        const seen: Observation = phase === 'gone' ? {kind: 'absent'} : node('READY');
        assert.equal(decide(wellIn(phase), seen, {wanted: false}).worker.phase, unwanted[phase]);
      });

    for (const phase of LIVING)
      it(`${phase} and dismissed is deleted at once`, () => {
        const decision = decideWorker(wellIn(phase), node('READY'), 'dismissed', LIMITS, moment(T0));
        assert.deepEqual([decision.worker.phase, decision.actions[0]?.kind], ['deleting', 'delete']);
      });

    it('a slot that is gone and is seen again pays for nothing twice', () => {
      const given = aWorker({
        phase: 'gone',
        phase_since_at: at(60),
        ready_at: at(0),
        usd_per_hour: 2,
        costs: {'my-run': 5},
        costs_at: at(60),
      });
      const seenAt = (seconds: number, state: string, created_at = at(0)) => {
        const seen = found(state, {created_at});
        const {worker} = decideWorker(given, seen, 'unwanted', LIMITS, moment(T0 + seconds * 1000));
        return [worker.phase, worker.ready_at, worker.costs, worker.costs_at];
      };
      assert.deepEqual(seenAt(120, 'READY'), ['deleting', at(120), {}, null]);
      assert.deepEqual(seenAt(9000, 'READY'), ['deleting', at(60), {}, null]);
      assert.deepEqual(seenAt(9000, 'READY', at(900)), ['deleting', at(900), {}, null]);
      assert.deepEqual(seenAt(9000, 'CREATING'), ['deleting', null, {}, null]);
    });

    for (const {name, changes, node, ready_s} of [
      {name: 'a while ago', changes: {}, node: {created_at: at(8800)}, ready_s: 9000},
      {name: 'long ago', changes: {}, node: {created_at: at(100)}, ready_s: 100},
      {
        name: 'long ago, and was not READY since',
        changes: {provider_since_at: at(500)},
        node: {},
        ready_s: 500,
      },
      {name: 'by a clock that is behind', changes: {}, node: {created_at: at(-50)}, ready_s: 0},
      {name: 'and has to go', changes: {phase: 'deleting', phase_since_at: at(400)}, node: {}, ready_s: 0},
      {
        name: 'in another life, and has to go',
        changes: {phase: 'deleting', phase_since_at: at(400)},
        node: {incarnations: [1]},
        ready_s: 400,
      },
    ] as const)
      it(`a node that is found READY and was made ${name} is paid for since ${ready_s} s`, () => {
        const given = aWorker({phase: 'creating', asked_at: at(0), ...changes});
        const seen = found('READY', {
          ...node,
          incarnations: [...('incarnations' in node ? node.incarnations : [2])],
        });
        const {worker} = decideWorker(
          given,
          seen,
          'wanted',
          {...LIMITS, create_s: 9999},
          moment(T0 + 9_000_000),
        );
        assert.equal(worker.ready_at, at(ready_s));
        assert.equal(
          decideWorker(worker, seen, 'wanted', LIMITS, moment(T0 + 9_100_000)).worker.ready_at,
          at(ready_s),
        );
      });

    it('a node that every look found coming is paid for since it is READY, however long that took', () => {
      let worker = aWorker({phase: 'creating', asked_at: at(0)});
      for (let minute = 1; minute <= 12; minute++) {
        const seen = found(minute < 12 ? 'CREATING' : 'READY', {created_at: at(5)});
        worker = decideWorker(
          worker,
          seen,
          'wanted',
          {...LIMITS, create_s: 9999},
          moment(T0 + minute * 60_000),
        ).worker;
      }
      assert.equal(worker.ready_at, at(720));
    });

    for (const [provisioning, ready_s] of [
      ['node', 0],
      ['queued-resource', 9000],
    ] as const)
      it(`an agent that speaks before its node was seen is paid for since ${ready_s} s, asked for as ${provisioning}`, () => {
        const given = aWorker({phase: 'creating', provisioning});
        const said = {...NO_WORK, activity: 'setup'};
        assert.equal(heardFrom(given, said, T0 + 9_000_000).ready_at, at(ready_s));
        assert.equal(heardFrom(given, said, T0 + 200_000).ready_at, at(200));
      });

    it('a slot that a message took away is not made again, whoever wants it', () => {
      const {worker} = decideWorker(
        aWorker({phase: 'gone', held: true}),
        {kind: 'absent'},
        'wanted',
        LIMITS,
        moment(T0),
      );
      assert.equal(worker.phase, 'gone');
    });

    it('a worker that does not drain is deleted, and nobody says that it is drained', () => {
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

    it('a host that restarts again and again and never speaks is no host', () => {
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

    it('a drained worker is deleted, also when it is wanted again: it was told that nothing comes', () => {
      for (const wanted of [true, false])
        assert.equal(
          decide(wellIn('draining', {work: null}), node('READY'), {wanted}).worker.phase,
          'deleting',
        );
    });

    for (const phase of LIVING)
      it(`${phase} and to be made again is deleted, and then created with the next number`, () => {
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

  describe('by what its agent says', () => {
    const said = (activity: string, work: string | null) => ({...NO_WORK, activity, work});
    const cases: {given: Phase; says: [string, string | null]; then: Phase}[] = [
      {given: 'creating', says: ['setup', null], then: 'booting'},
      {given: 'creating', says: ['idle', null], then: 'idle'},
      {given: 'booting', says: ['setup', null], then: 'booting'},
      {given: 'booting', says: ['idle', null], then: 'idle'},
      {given: 'idle', says: ['loading', 'my-run/007'], then: 'working'},
      {given: 'working', says: ['uploading', 'my-run/007'], then: 'working'},
      {given: 'working', says: ['idle', null], then: 'idle'},
      {given: 'working', says: ['setup', null], then: 'booting'},
      {given: 'draining', says: ['running', 'my-run/007'], then: 'draining'},
      {given: 'draining', says: ['idle', null], then: 'draining'},
      {given: 'draining', says: ['setup', null], then: 'draining'},
    ];
    for (const {given, says, then} of cases)
      it(`${given} and "${says[0]}" becomes ${then}`, () => {
        const heard = heardFrom(wellIn(given), said(...says), T0 + 5000);
        assert.equal(heard.phase, then);
        assert.equal(heard.heartbeat_at, at(5));
        assert.equal(
          heard.phase_since_at,
          given === then ? at(0) : at(5),
          'the time in a phase is not renewed',
        );
        assert.equal(heard.work, says[1]);
      });
  });

  /** Instants around now, so that every limit is sometimes over. */
  const instants = fc.oneof(fc.constant(null), fc.integer({min: -4000, max: 0}).map(at));
  const workers = fc
    .record({
      phase: fc.constantFrom(...PHASES),
      phase_since_at: fc.integer({min: -4000, max: 0}).map(at),
      asked_at: instants,
      heartbeat_at: instants,
      incarnation: fc.integer({min: 1, max: 4}),
      blocked_until_at: fc.oneof(fc.constant(null), fc.integer({min: -400, max: 400}).map(at)),
      recreate: fc.boolean(),
      work: fc.constantFrom(null, 'my-run/007'),
    })
    .map(aWorker);
  const observations: fc.Arbitrary<Observation> = fc.oneof(
    fc.constant({kind: 'unknown' as const}),
    fc.constant({kind: 'absent' as const}),
    fc.constant(FOREIGN),
    fc
      .tuple(
        fc.constantFrom(null, ...Object.keys(STATES)),
        fc.constantFrom(null, 'WAITING_FOR_RESOURCES', 'PROVISIONING', 'ACTIVE', 'SUSPENDED', 'FAILED'),
        fc.subarray([1, 2, 3, 4, 9], {maxLength: 2}),
      )
      .filter(([state, queued]) => state !== null || queued !== null)
      .map(([state, queued, incarnations]) =>
        found(state, {queued: queued ? inQueue(queued) : null, incarnations}),
      ),
  );

  describe('always', () => {
    it('asks once, however often it looks at the same thing at the same time', () => {
      fc.assert(
        fc.property(workers, observations, fc.boolean(), (given, seen, wanted) => {
          const asked: string[] = [];
          let worker = given;
          for (let look = 0; look < 6; look++) {
            const decision = decide(worker, seen, {wanted});
            asked.push(...decision.actions.map(action => action.kind));
            worker = decision.worker;
          }
          assert.equal(new Set(asked).size, asked.length, asked.join());
          assert.deepEqual(decide(worker, seen, {wanted}), {worker, actions: [], events: []});
        }),
      );
    });

    it('never creates while a node is there, and never with a number that was used', () => {
      fc.assert(
        fc.property(workers, observations, fc.boolean(), (given, seen, wanted) => {
          const {worker, actions} = decide(given, seen, {wanted});
          const created = actions.filter(action => action.kind === 'create');
          if (seen.kind === 'found')
            assert.ok(
              worker.incarnation >=
                (worker.phase === 'deleting' && given.phase !== 'deleting'
                  ? Math.max(0, ...seen.incarnations)
                  : 0),
            );
          if (seen.kind === 'found' || seen.kind === 'foreign') assert.deepEqual(created, []);
          if (given.phase !== 'creating')
            for (const {incarnation} of created) assert.equal(incarnation, given.incarnation + 1);
          assert.ok(worker.incarnation >= given.incarnation);
          for (const action of actions)
            assert.deepEqual([action.worker, action.incarnation], [worker.name, worker.incarnation]);
        }),
      );
    });

    it('concludes nothing about nodes from a zone that gives no answer', () => {
      fc.assert(
        fc.property(workers, fc.boolean(), (given, wanted) => {
          const {worker, actions} = decide(given, {kind: 'unknown'}, {wanted});
          if (given.phase === 'deleting') assert.deepEqual([worker, actions], [given, []]);
          if (given.phase === 'creating') assert.notEqual(worker.phase, 'booting');
          assert.doesNotMatch(worker.last_death ?? '', /vanished/);
        }),
      );
    });

    it('never deletes what nobody of ours made', () => {
      fc.assert(
        fc.property(workers, fc.boolean(), (given, wanted) => {
          assert.deepEqual(decide(given, FOREIGN, {wanted}).actions, []);
        }),
      );
    });
  });

  const isOnItsWay = ({state, queued}: Found) =>
    state === null
      ? queued?.state !== 'SUSPENDED' && queued?.state !== 'FAILED'
      : ['CREATING', 'STARTING'].includes(state);

  /** Cloud TPU on a good day: what is asked for is there a minute later, and an agent speaks as soon as it can. */
  function live(given: Worker, seen: Observation, wanted: boolean, from_minute = 0) {
    let worker = given;
    let observation = seen;
    let now = T0 + from_minute * 60_000;
    const created: number[] = [];
    for (let minute = 0; minute < 60; minute++) {
      now += 60_000;
      const decision = decideWorker(worker, observation, wanted ? 'wanted' : 'unwanted', LIMITS, moment(now));
      worker = decision.worker;
      // Cloud TPU goes on by itself, and then with what was asked of it.
      if (observation.kind === 'unknown' || observation.kind === 'foreign') observation = {kind: 'absent'};
      else if (observation.kind === 'found' && observation.state === 'DELETING')
        observation = {kind: 'absent'};
      else if (observation.kind === 'found' && isOnItsWay(observation))
        observation = {...observation, state: 'READY', queued: observation.queued && inQueue('ACTIVE')};
      for (const action of decision.actions) {
        const there = observation.kind === 'found';
        if (action.kind === 'delete' && there) observation = found('DELETING', {incarnations: []});
        if (action.kind === 'create') created.push(action.incarnation);
        if (action.kind === 'create' && !there) observation = node('CREATING', action.incarnation);
      }
      const speaks = observation.kind === 'found' && observation.state === 'READY';
      const isCurrent =
        observation.kind === 'found' && observation.incarnations.every(each => each === worker.incarnation);
      if (speaks && isCurrent && (isAlive(worker) || worker.phase === 'creating')) {
        worker = askedForWork(worker, now);
      }
    }
    return {worker, observation, created};
  }

  describe('on a good day', () => {
    it('a wanted slot comes alive again from every state, and then nothing more is asked @full', () => {
      fc.assert(
        fc.property(workers, observations, (given, seen) => {
          const settled = live(given, seen, true);
          assert.equal(settled.worker.phase, 'idle', JSON.stringify(settled));
          assert.ok(settled.observation.kind === 'found' && settled.observation.state === 'READY');
          assert.ok(settled.created.length <= 2, 'it is not made over and over');
          const later = live(settled.worker, settled.observation, true, 60);
          assert.deepEqual([later.worker.phase, later.created], ['idle', []]);
        }),
        {numRuns: 1000},
      );
    });

    it('a slot that nobody wants is gone from every state, and nothing is left in Cloud TPU', () => {
      fc.assert(
        fc.property(workers, observations, (given, seen) => {
          const {worker, observation, created} = live(given, seen, false);
          assert.equal(worker.phase, 'gone', JSON.stringify({worker, observation}));
          assert.equal(observation.kind, 'absent');
          assert.ok(created.length <= 1, 'at most one that was asked for before');
        }),
        {numRuns: 1000},
      );
    });
  });
});
