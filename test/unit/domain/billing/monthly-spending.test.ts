import assert from 'node:assert/strict';
import fc from 'fast-check';
import {addLives, costByMonth, livingInMonth} from '../../../../shared/domain/billing/monthly-spending.ts';
import type {Worker} from '../../../../shared/domain/records/worker.ts';
import {aWorker, T0} from '../../../world/builders.ts';

describe('spending by month', () => {
  const END = '2026-02-01T00:00:00.000Z';
  const over = (changes: Partial<Worker>) => aWorker({phase: 'gone', usd_per_hour: 2, ...changes});

  it('the cost of an incarnation is divided at the end of a UTC month', () => {
    const life = over({
      ready_at: '2026-01-31T21:00:00.000Z',
      costs_at: '2026-02-01T01:00:00.000Z',
      costs: {'my-run': 6, other: 2},
    });
    assert.deepEqual(costByMonth(life, null), {'2026-01': 6, '2026-02': 2});
    assert.deepEqual(addLives({months: {'2026-01': 1, '2025-12': 5}, copied_at: null}, [life]), {
      '2025-12': 5,
      '2026-01': 7,
      '2026-02': 2,
    });
  });

  it('the cost of an incarnation counts from the time of the copy that has the cost until then', () => {
    const life = over({
      ready_at: '2026-01-31T21:00:00.000Z',
      costs_at: '2026-02-01T01:00:00.000Z',
      costs: {'my-run': 8},
    });
    assert.deepEqual(costByMonth(life, '2026-01-31T23:00:00.000Z'), {'2026-01': 2, '2026-02': 2});
    assert.deepEqual(costByMonth(life, '2026-02-01T02:00:00.000Z'), {});
  });

  it('the cost of an incarnation is divided at the end of a year', () => {
    const life = over({
      ready_at: '2025-12-31T23:00:00.000Z',
      costs_at: '2026-01-01T01:00:00.000Z',
      costs: {'my-run': 4},
    });
    assert.deepEqual(costByMonth(life, null), {'2025-12': 2, '2026-01': 2});
  });

  it('spending of the living counts up to now, without incarnations that have ended', () => {
    const living = aWorker({
      phase: 'working',
      work: 'my-run/007',
      usd_per_hour: 2,
      ready_at: '2026-01-31T23:00:00.000Z',
    });
    const now = Date.parse(END) + 1_800_000;
    assert.deepEqual(
      ['2026-01', '2026-02'].map(name =>
        livingInMonth({name, copied_at: null}, [living, over({costs: {x: 9}})], now),
      ),
      [2, 1],
    );
  });

  it('the months of an incarnation add up to its cost', () => {
    const hours = fc.double({min: 0.01, max: 3000, noNaN: true});
    fc.assert(
      fc.property(hours, hours, (after_h, lasts_h) => {
        const ready = T0 + after_h * 3_600_000;
        const life = over({
          ready_at: new Date(ready).toISOString(),
          costs_at: new Date(ready + lasts_h * 3_600_000).toISOString(),
          costs: {'my-run': lasts_h},
        });
        const total = Object.values(costByMonth(life, null)).reduce((sum, usd) => sum + usd, 0);
        assert.ok(Math.abs(total - lasts_h) < 1e-6 * lasts_h);
      }),
    );
  });
});
