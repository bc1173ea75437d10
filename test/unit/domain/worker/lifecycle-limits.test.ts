import assert from 'node:assert/strict';
import {isBlocked, type Phase, type Worker} from '../../../../shared/domain/records/worker.ts';
import type {Observation} from '../../../../shared/domain/worker/observation.ts';
import {createRefused} from '../../../../shared/domain/worker/transitions.ts';
import {at, T0} from '../../../world/builders.ts';
import {decide, node, wellIn} from './lifecycle-cases.ts';

const shown = (state: string) => ({
  ...{provider_state: state, health: 'HEALTHY', provider_since_at: at(0)},
});

describe('time limits of a worker', () => {
  const limits: {
    name: string;
    given: Worker;
    seen?: Observation;
    limit: number;
    then?: Phase;
    asks?: 'create' | 'delete';
  }[] = [
    {
      name: 'a node that never becomes READY',
      given: wellIn('creating', {asked_at: at(600)}),
      seen: node('CREATING'),
      limit: 900,
    },
    {
      name: 'a create without effect',
      given: wellIn('creating'),
      seen: {kind: 'absent'},
      limit: 180,
      then: 'creating',
      asks: 'create',
    },
    {name: 'a delete without effect', given: wellIn('deleting'), limit: 30},
    {name: 'a delete that never ends', given: wellIn('deleting'), seen: node('DELETING'), limit: 180},
    {name: 'a READY node with a silent agent', given: wellIn('booting'), limit: 600},
    {name: 'a setup that never ends', given: wellIn('booting', {heartbeat_at: at(1790)}), limit: 1800},
    {name: 'a setup that falls silent', given: wellIn('booting', {heartbeat_at: at(0)}), limit: 240},
    {name: 'an idle agent that falls silent', given: wellIn('idle'), limit: 240},
    {name: 'a working agent that falls silent', given: wellIn('working'), limit: 240},
    {
      name: 'a silent agent in a zone without an answer',
      given: wellIn('working'),
      seen: {kind: 'unknown'},
      limit: 240,
    },
    {
      name: 'a draining worker',
      given: wellIn('draining', {heartbeat_at: at(890), progress_at: at(890)}),
      limit: 900,
    },
    {
      name: 'a repair that never ends',
      given: wellIn('creating', {asked_at: at(890), ...shown('REPAIRING')}),
      seen: node('REPAIRING'),
      limit: 900,
    },
    ...(
      [
        ['running', 600],
        ['uploading', 600],
        ['compiling', 900],
        ['loading', 3600],
      ] as const
    ).map(([activity, limit]) => ({
      name: `an agent that is ${activity} with heartbeats and without progress`,
      given: wellIn('working', {activity, progress_at: at(0), heartbeat_at: at(limit)}),
      limit,
    })),
    {
      name: 'an idle agent that never requests work',
      given: wellIn('idle', {activity: 'idle', progress_at: at(0), heartbeat_at: at(600)}),
      limit: 600,
    },
    {
      name: 'a silent worker with a node of state UNKNOWN',
      given: wellIn('working'),
      seen: node('UNKNOWN'),
      limit: 240,
    },
  ];
  for (const {name, given, seen = node('READY'), limit, then = 'deleting', asks = 'delete'} of limits)
    it(`${name} has ${limit} s`, () => {
      const inTime = decide(given, seen, {seconds: limit});
      assert.deepEqual([inTime.worker.phase, inTime.actions], [given.phase, []]);
      const late = decide(given, seen, {seconds: limit + 1});
      assert.equal(late.worker.phase, then);
      assert.equal(late.actions[0]?.kind, asks);
    });

  it('a slot is blocked for retry_s after a node that never came up', () => {
    const dead = decide(wellIn('creating'), node('CREATING'), {seconds: 901}).worker;
    const gone = decide(dead, {kind: 'absent'}, {seconds: 961}).worker;
    assert.ok(gone.phase === 'gone' && isBlocked(gone, T0 + 962_000), JSON.stringify(gone));
    const again = decide(gone, {kind: 'absent'}, {seconds: 901 + 301}).worker;
    assert.deepEqual([again.phase, again.blocked_until_at], ['creating', null]);
  });

  it('a slot whose node was listed before its refusal is created as the next incarnation', () => {
    const listed = {...wellIn('creating'), provider_state: 'CREATING'};
    const refused = createRefused(listed, 'no capacity', 0, T0);
    assert.equal(decide(refused, {kind: 'absent'}, {seconds: 1}).worker.incarnation, 3);
  });

  it('a slot whose refused node shows after all is deleted, and created as the next incarnation', () => {
    const refused = createRefused(wellIn('creating'), 'no capacity', 0, T0);
    const dying = decide(refused, node('READY')).worker;
    const gone = decide(dying, {kind: 'absent'}, {seconds: 1}).worker;
    assert.deepEqual([dying.phase, gone.phase], ['deleting', 'gone']);
    assert.equal(decide(gone, {kind: 'absent'}, {seconds: 2}).worker.incarnation, 3);
  });

  it('a refused slot is created again after its block, as the same incarnation', () => {
    const refused = createRefused(wellIn('creating'), 'no capacity', 300, T0);
    assert.deepEqual([refused.phase, refused.last_error], ['gone', 'no capacity']);
    assert.deepEqual(decide(refused, {kind: 'absent'}, {seconds: 300}).actions, []);
    const {worker} = decide(refused, {kind: 'absent'}, {seconds: 301});
    assert.deepEqual([worker.phase, worker.incarnation, worker.born_at], ['creating', 2, refused.born_at]);
  });
});
