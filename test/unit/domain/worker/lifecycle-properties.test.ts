import assert from 'node:assert/strict';
import fc from 'fast-check';
import {isAlive, type Worker} from '../../../../shared/domain/records/worker.ts';
import {askedForWork} from '../../../../shared/domain/requests/heard-from.ts';
import {decideWorker} from '../../../../shared/domain/worker/lifecycle.ts';
import type {FoundNode, Observation} from '../../../../shared/domain/worker/observation.ts';
import {at, aWorker, found, LIMITS, moment, T0} from '../../../world/builders.ts';
import {decide, FOREIGN, node, PHASES, STATES} from './lifecycle-cases.ts';

const inQueue = (state: string) => ({state, initiator: 'SERVICE', error: null, valid_until_at: null});

/** Instants around now, before and after every limit. */
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

describe('every decision about a worker', () => {
  it('a repeated decision about the same observation requests nothing twice', () => {
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

  it('a decision never creates a node while a node exists, and never reuses an incarnation', () => {
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

  it('a decision concludes nothing about nodes from a zone without an answer', () => {
    fc.assert(
      fc.property(workers, fc.boolean(), (given, wanted) => {
        const {worker, actions} = decide(given, {kind: 'unknown'}, {wanted});
        if (given.phase === 'deleting') assert.deepEqual([worker, actions], [given, []]);
        if (given.phase === 'creating') assert.notEqual(worker.phase, 'booting');
        assert.doesNotMatch(worker.last_death ?? '', /vanished/);
      }),
    );
  });

  it('a decision never deletes a foreign node', () => {
    fc.assert(
      fc.property(workers, fc.boolean(), (given, wanted) => {
        assert.deepEqual(decide(given, FOREIGN, {wanted}).actions, []);
      }),
    );
  });
});

const isOnItsWay = ({state, queued}: FoundNode) =>
  state === null
    ? queued?.state !== 'SUSPENDED' && queued?.state !== 'FAILED'
    : ['CREATING', 'STARTING'].includes(state);

/** Cloud TPU on a good day: a request is fulfilled after a minute, and an agent speaks as soon as it can. */
function live(given: Worker, seen: Observation, wanted: boolean, from_minute = 0) {
  let worker = given;
  let observation = seen;
  let now = T0 + from_minute * 60_000;
  const created: number[] = [];
  for (let minute = 0; minute < 60; minute++) {
    now += 60_000;
    const decision = decideWorker(worker, observation, wanted ? 'wanted' : 'unwanted', LIMITS, moment(now));
    worker = decision.worker;
    // Cloud TPU first continues by itself, and then fulfils requests.
    if (observation.kind === 'unknown' || observation.kind === 'foreign') observation = {kind: 'absent'};
    else if (observation.kind === 'found' && observation.state === 'DELETING') observation = {kind: 'absent'};
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

describe('a worker on a good day', () => {
  it('a wanted slot works again from every state, and then requests nothing more @full', () => {
    fc.assert(
      fc.property(workers, observations, (given, seen) => {
        const settled = live(given, seen, true);
        assert.equal(settled.worker.phase, 'idle', JSON.stringify(settled));
        assert.ok(settled.observation.kind === 'found' && settled.observation.state === 'READY');
        assert.ok(settled.created.length <= 2, 'at most two creates');
        const later = live(settled.worker, settled.observation, true, 60);
        assert.deepEqual([later.worker.phase, later.created], ['idle', []]);
      }),
      {numRuns: 1000},
    );
  });

  it('an unwanted slot is gone from every state, and leaves nothing in Cloud TPU', () => {
    fc.assert(
      fc.property(workers, observations, (given, seen) => {
        const {worker, observation, created} = live(given, seen, false);
        assert.equal(worker.phase, 'gone', JSON.stringify({worker, observation}));
        assert.equal(observation.kind, 'absent');
        assert.ok(created.length <= 1, 'at most one earlier request');
      }),
      {numRuns: 1000},
    );
  });
});
