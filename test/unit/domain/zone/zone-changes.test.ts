import assert from 'node:assert/strict';
import {type Death, taken} from '../../../../shared/domain/worker/liveness.ts';
import {newZone} from '../../../../shared/domain/zone/placement.ts';
import {changeOf, zoneAfter} from '../../../../shared/domain/zone/zone-changes.ts';
import {aConfig, at, aWorker, T0} from '../../../world/builders.ts';

describe('the change that an observed node shows', () => {
  const shown = (phase: 'creating' | 'booting' | 'deleting', state: string | null, health = 'HEALTHY') =>
    aWorker({phase, provider_state: state, health: state && health, asked_at: at(0)});
  const none = shown('creating', null);
  const creating = shown('creating', 'CREATING');
  const repairing = shown('creating', 'REPAIRING');
  const ready = shown('booting', 'READY');
  const ill = shown('booting', 'READY', 'UNHEALTHY_MAINTENANCE');

  for (const [name, before, worker] of [
    ['listed', none, creating],
    ['READY', creating, ready],
    ['READY after the first words of its host', shown('booting', null), ready],
    ['READY and under repair when it is first seen', none, ill],
    ['under repair before it was READY', creating, repairing],
  ] as const)
    it(`is a given node where it is ${name}`, () => assert.equal(changeOf(before, {worker}), 'given'));

  for (const [name, before, worker] of [
    ['READY after a repair', repairing, ready],
    ['READY again', ill, ready],
    ['still being created', creating, shown('creating', 'STARTING')],
    ['deleted', none, shown('deleting', 'READY')],
    ['preempted', creating, shown('creating', 'PREEMPTED')],
  ] as const)
    it(`is none where it is ${name}`, () => assert.equal(changeOf(before, {worker}), undefined));
  for (const [name, before, then] of [
    ['lost where it ended its worker', ready, 'lost'],
    ['lost before it was READY', creating, 'lost'],
    ['lost once: not where its worker is deleted already', shown('deleting', 'READY'), undefined],
  ] as const)
    it(`is a node ${name}`, () => {
      const worker = shown('deleting', 'PREEMPTED');
      assert.equal(changeOf(before, {worker, death: taken('preempted')}), then);
    });

  it('counts a lost node with its lifetime, and a failed boot with none', () => {
    const before = {...ready, ready_at: at(-600)};
    const lived = (death: Death) => {
      const {losses} = zoneAfter(aConfig(), newZone('z', T0), 'lost', {before, worker: ready, death}, T0);
      return losses.map(({lived_s}) => lived_s);
    };
    assert.deepEqual([lived(taken('preempted')), lived({kind: 'unheard', cause: 'no word'})], [[600], [0]]);
  });
});
