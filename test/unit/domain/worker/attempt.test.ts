import assert from 'node:assert/strict';
import {attemptOf, withBill} from '../../../../shared/domain/worker/attempt.ts';
import {at, aWorker, T0} from '../../../world/builders.ts';

describe('the bill of an incarnation that has ended', () => {
  const worker = aWorker({phase: 'working', costs: {'my-run': 1}, ready_at: at(0)});
  const ended = attemptOf(worker, {worker: {...worker, phase: 'deleting'}}, 'logs', T0 + 60_000);
  const gone = withBill(ended, {...worker, costs: {'my-run': 2, _idle: 1}}, T0 + 90_000);

  it('has the cost up to the time at which the node is gone', () => {
    assert.deepEqual([ended.cost_usd, ended.gone_at], [1, undefined]);
    assert.deepEqual([gone.cost_usd, gone.costs, gone.gone_at], [3, {'my-run': 2, _idle: 1}, at(90)]);
  });

  it('has the cost of a node that is seen again too', () => {
    const again = withBill(
      gone,
      {...worker, costs: {'my-run': 4, other: 5}, ready_at: at(200)},
      T0 + 300_000,
    );
    assert.deepEqual(again.costs, {'my-run': 6, _idle: 1, other: 5});
    assert.deepEqual([again.cost_usd, again.ready_at, again.gone_at], [12, at(0), at(300)]);
    const unseen = {...worker, costs: {'my-run': 4}, ready_at: null};
    assert.equal(withBill(gone, unseen, T0 + 300_000), gone);
  });
});
