import assert from 'node:assert/strict';
import {withChurn} from '../../../../shared/domain/records/churn.ts';
import {newZone} from '../../../../shared/domain/zone/placement.ts';
import {T0} from '../../../world/builders.ts';

const DAY_MS = 86_400_000;

describe('the churn of a zone', () => {
  it('has each day of the last week and each accelerator apart, and adds up', () => {
    const told: [day: number, accelerator: string, tries: number][] = [
      [0, 'v6e-1', 1],
      [1, 'v6e-1', 2],
      [7, 'v6e-1', 3],
      [7, 'v5p-8', 4],
      [7, 'v6e-1', 5],
    ];
    const zone = told.reduce(
      (zone, [day, accelerator, tries]) => withChurn(zone, accelerator, {tries}, T0 + day * DAY_MS),
      newZone('us-central1-a', T0),
    );
    assert.deepEqual(
      zone.churn.map(({day, accelerator, tries}) => [day, accelerator, tries]),
      [
        ['2026-01-03', 'v6e-1', 2],
        ['2026-01-09', 'v5p-8', 4],
        ['2026-01-09', 'v6e-1', 8],
      ],
    );
  });
});
