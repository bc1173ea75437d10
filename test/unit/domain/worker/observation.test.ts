import assert from 'node:assert/strict';
import type {Worker} from '../../../../shared/domain/records/worker.ts';
import {decideWorker} from '../../../../shared/domain/worker/lifecycle.ts';
import {NOT_LISTED, observe, sortNodes} from '../../../../shared/domain/worker/nodes.ts';
import {afterLook} from '../../../../shared/domain/worker/observation.ts';
import {aTpu, at, aWorker, found, LIMITS, moment, T0} from '../../../world/builders.ts';

describe('a list of nodes', () => {
  it('proves nothing about a worker whose phase or whose node has changed since', () => {
    const list = {deployment: 'gleaner', unreachable: [], at_ms: T0 + 60_000};
    const kindFor = (changes: Partial<Worker>) => observe(sortNodes([aTpu()], list), aWorker(changes)).kind;
    assert.equal(kindFor({phase_since_at: at(60), provider_since_at: at(60)}), 'found');
    assert.equal(kindFor({phase_since_at: at(61)}), 'unknown');
    assert.equal(kindFor({provider_since_at: at(61)}), 'unknown');
  });

  it('counts where the worker has changed hours later, because the clock was set back since', () => {
    const list = {deployment: 'gleaner', unreachable: [], at_ms: T0 + 60_000};
    const ahead = aWorker({phase: 'deleting', provider_state: 'READY', provider_since_at: at(7260)});
    assert.equal(observe(sortNodes([], list), ahead).kind, 'missing');
    assert.equal(observe(NOT_LISTED, ahead).kind, 'unknown');
  });
});

describe('the billing start of a node', () => {
  it('a node that reappears in a gone slot starts a new bill', () => {
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

  it('a request of ours behind a foreign node starts a new bill in a gone slot', () => {
    const billed = {ready_at: at(0), usd_per_hour: 2, costs: {'my-run': 5}, costs_at: at(60)};
    const given = aWorker({phase: 'gone', phase_since_at: at(60), ...billed});
    const behind = {kind: 'foreign', isQueued: true} as const;
    const {worker} = decideWorker(given, behind, 'unwanted', LIMITS, moment(T0 + 120_000));
    assert.deepEqual(
      [worker.phase, worker.ready_at, worker.costs, worker.costs_at],
      ['deleting', null, {}, null],
    );
  });

  for (const {name, changes, node, ready_s} of [
    {name: 'was created minutes ago', changes: {}, node: {created_at: at(8800)}, ready_s: 9000},
    {name: 'was created long ago', changes: {}, node: {created_at: at(100)}, ready_s: 100},
    {name: 'was not READY at a later tick', changes: {provider_since_at: at(500)}, node: {}, ready_s: 500},
    {name: 'was created by a slow clock', changes: {}, node: {created_at: at(-50)}, ready_s: 0},
    {name: 'is being deleted', changes: {phase: 'deleting', phase_since_at: at(400)}, node: {}, ready_s: 0},
    {
      name: 'is being deleted for another incarnation',
      changes: {phase: 'deleting', phase_since_at: at(400)},
      node: {incarnations: [1]},
      ready_s: 400,
    },
  ] as const)
    it(`a READY node that ${name} is billed from second ${ready_s}`, () => {
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

  it('a node that every tick saw before READY is billed from READY', () => {
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
});

describe('a node that a list omits', () => {
  it('is missing since the first list without it, and anew after a list with it', () => {
    const worker = aWorker({
      phase: 'working',
      provider_state: 'READY',
      health: 'HEALTHY',
      ready_at: at(0),
    });
    const once = afterLook(worker, {kind: 'missing', listed_at: at(0)}, T0);
    const twice = afterLook(once, {kind: 'missing', listed_at: at(60)}, T0 + 60_000);
    assert.equal(twice.missing_since_at, at(0));
    const listed = afterLook(twice, found('READY', {health: 'HEALTHY'}), T0 + 120_000);
    assert.equal(listed.missing_since_at, null);
  });
});
