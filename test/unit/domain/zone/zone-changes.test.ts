import assert from 'node:assert/strict';
import {changeOf} from '../../../../shared/domain/zone/zone-changes.ts';
import {at, aWorker} from '../../../support/builders.ts';

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
});
