import assert from 'node:assert/strict';
import fc from 'fast-check';
import {accrue, costOfLiving, repricedAt, totalOf} from '../../../../shared/domain/billing/cost.ts';
import type {Worker} from '../../../../shared/domain/records/worker.ts';
import {at, aWorker, T0} from '../../../world/builders.ts';

const HOUR = 3_600_000;
const aPaid = (changes = {}) => aWorker({phase: 'working', ready_at: at(0), usd_per_hour: 3.6, ...changes});

describe('the cost of an incarnation', () => {
  it('an incarnation costs nothing before READY, and costs until it is gone', () => {
    assert.deepEqual(accrue(aPaid({ready_at: null}), T0 + HOUR).costs, {});
    assert.deepEqual(accrue(aPaid({phase: 'gone'}), T0 + HOUR).costs, {});
    assert.deepEqual(accrue(aPaid({phase: 'deleting', charged_to: 'my-run'}), T0 + HOUR).costs, {
      'my-run': 3.6,
    });
  });

  it('the time of a worker belongs to its run, or to its last run; idle time before belongs to its first run', () => {
    let worker = accrue(aPaid({work: null}), T0 + HOUR);
    assert.deepEqual(worker.costs, {_idle: 3.6});
    worker = accrue({...worker, work: 'one/000'}, T0 + 2 * HOUR);
    assert.deepEqual(worker.costs, {one: 7.2});
    worker = accrue({...worker, work: null}, T0 + 3 * HOUR);
    worker = accrue({...worker, work: 'two/000'}, T0 + 4 * HOUR);
    assert.deepEqual([worker.costs.one?.toFixed(2), worker.costs.two?.toFixed(2)], ['10.80', '3.60']);
  });

  it('the cost of an incarnation is the same for any number of updates, and never falls', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(HOUR), {maxLength: 20}), times => {
        const sorted = [...times].sort((a, b) => a - b);
        let worker = aPaid({work: 'my-run/000'});
        for (const time of sorted) {
          const next = accrue(worker, T0 + time);
          assert.ok(totalOf(next.costs) >= totalOf(worker.costs));
          worker = next;
        }
        const once = accrue(aPaid({work: 'my-run/000'}), T0 + HOUR);
        assert.ok(Math.abs(totalOf(accrue(worker, T0 + HOUR).costs) - totalOf(once.costs)) < 1e-9);
      }),
    );
  });

  it('the cost of the living excludes workers that are gone', () => {
    const workers = [
      aPaid({work: 'one/000'}),
      aPaid({work: 'two/000'}),
      aPaid({work: 'one/001'}),
      aPaid({phase: 'gone', costs: {one: 99}}),
    ];
    const {runs, total} = costOfLiving(workers, T0 + HOUR);
    assert.deepEqual(
      [[...runs], total.toFixed(2)],
      [
        [
          ['one', 7.2],
          ['two', 3.6],
        ],
        '10.80',
      ],
    );
  });
});

describe('a price that changes', () => {
  const price = (since_s: number, worker = aPaid({work: 'my-run/000'})) =>
    repricedAt(worker, 10.8, T0 + since_s * 1000, T0 + HOUR);

  it('a new price counts from its instant on, also where the time since was counted before', () => {
    const cents = ({costs}: Worker) => Math.round(100 * totalOf(costs));
    assert.deepEqual(
      [3600, 1800, -7200].map(since_s => cents(price(since_s))),
      [360, 720, 1080],
    );
    const counted = accrue(aPaid({work: 'my-run/000'}), T0 + HOUR);
    assert.equal(cents(price(1800, counted)), 720);
    assert.equal(cents(accrue(price(1800), T0 + 2 * HOUR)), 720 + 1080);
  });

  it('a new price corrects each hour once, though a slow tick brings the earlier price back for a while', () => {
    const back = repricedAt(price(1800), 3.6, T0 + 1.5 * HOUR, T0 + 1.5 * HOUR);
    const again = repricedAt(back, 10.8, T0 + HOUR / 2, T0 + 2 * HOUR);
    assert.equal(
      totalOf(again.costs).toFixed(6),
      totalOf(accrue(price(1800), T0 + 2 * HOUR).costs).toFixed(6),
    );
  });

  it('a new price waits until a node is READY, and changes no node that is gone', () => {
    for (const worker of [aPaid({ready_at: null}), aPaid({phase: 'gone'})])
      assert.equal(price(0, worker), worker);
  });
});

describe('clocks that disagree', () => {
  it('two clocks that disagree charge no minute twice', () => {
    let worker = aWorker({phase: 'working', ready_at: at(0), usd_per_hour: 3600, work: 'my-run/000'});
    for (let s = 60; s <= 600; s += 60) worker = accrue(accrue(worker, T0 + s * 1000 + 5000), T0 + s * 1000);
    assert.equal(totalOf(worker.costs), 605);
  });
});
