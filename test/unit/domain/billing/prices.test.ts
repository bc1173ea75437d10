import assert from 'node:assert/strict';
import {GENERATIONS, LIST_PRICES, LISTED_ON} from '../../../../shared/domain/billing/list-prices.ts';
import {
  ageText,
  chipsOf,
  isPriceKey,
  originOf,
  overList,
  usdPerHour,
} from '../../../../shared/domain/billing/prices.ts';

describe('the price of a node', () => {
  for (const [accelerator, chips] of [
    ['v2-8', 4],
    ['v3-32', 16],
    ['v4-8', 4],
    ['v5p-8', 4],
    ['v5litepod-1', 1],
    ['v5litepod-16', 16],
    ['v6e-8', 8],
  ] as const)
    it(`a ${accelerator} has ${chips} chips`, () => assert.equal(chipsOf(accelerator)?.chips, chips));

  for (const accelerator of ['v2-1', 'v5p-7', 'v5litepod-0', 'v6e-01', 'v9-8'])
    it(`${accelerator} is no TPU type, and has no price`, () => {
      assert.equal(chipsOf(accelerator), undefined);
      assert.equal(usdPerHour(LIST_PRICES, {accelerator, spot: true, zone: 'us-central1-a'}), null);
    });

  it('a node has the price of its type in its region, or of its generation, or none', () => {
    const prices = {...LIST_PRICES, 'v6e@europe-west4': {usd: 3, spot_usd: 1}};
    const price = (accelerator: string, zone: string, spot: boolean) =>
      usdPerHour(prices, {accelerator, spot, zone});
    assert.equal(price('v6e-8', 'europe-west4-a', true), 8);
    assert.equal(price('v6e-8', 'us-east5-b', false), 8 * 2.7);
    assert.equal(price('v3-8', 'us-central1-a', false), 8);
    assert.equal(price('v6e-8', 'europe-west4-ai1a', true), 8);
    assert.equal(price('v9-8', 'us-central1-a', true), null);
    assert.equal(price('v5litepod-8', 'us-east5-c', true), 4.8);
    assert.equal(price('v5litepod-8', 'europe-west4-a', true), 8 * 0.44498);
    assert.equal(price('v5p-8', 'us-south1-a', false), 19.116);
  });

  // The chip-hours of the catalog that the list copies.
  for (const [accelerator, zone, usd, spot_usd] of [
    ['v5litepod-1', 'us-central1-a', 1.2, 0.24493],
    ['v6e-1', 'us-central1-b', 2.7, 0.54421],
    ['v6e-1', 'us-south1-ai1b', 2.7, 1.35],
    ['v5p-2', 'us-central1-a', 4.2, 0.8357],
    ['v4-2', 'us-central2-b', 3.22, 0.9215],
  ] as const)
    it(`a chip of ${accelerator} in ${zone} costs $${usd} an hour, and $${spot_usd} on spot`, () => {
      const chip = (spot: boolean) => usdPerHour(LIST_PRICES, {accelerator, spot, zone});
      assert.deepEqual([chip(false), chip(true)], [usd, spot_usd]);
    });

  it('a region without a listed price has the highest price of any region', () => {
    for (const generation of GENERATIONS) {
      const known = Object.entries(LIST_PRICES).filter(([key]) => key.startsWith(`${generation}@`));
      const {usd, spot_usd} = LIST_PRICES[generation] ?? assert.fail();
      assert.ok(
        known.length > 0 && known.every(([, price]) => price.usd <= usd && price.spot_usd <= spot_usd),
      );
      assert.ok(
        known.every(([, price]) => price.spot_usd < price.usd),
        generation,
      );
    }
    const v6e = (spot: boolean) => usdPerHour(LIST_PRICES, {accelerator: 'v6e-1', spot, zone: 'me-west1-a'});
    assert.deepEqual([v6e(false), v6e(true)], [3.24, 2.27]);
  });

  it('a price names its origin and its day: the list, the highest of the list, the catalog, or a person', () => {
    const origin = (zone: string, given = {}) => Object.values(originOf(overList(given), 'v6e-8', zone));
    const catalog = {usd: 2, spot_usd: 1, source: 'catalog', as_of: '2026-11-24'};
    assert.deepEqual(origin('us-east5-b'), ['list', LISTED_ON, false]);
    assert.deepEqual(origin('me-west1-a'), ['list', LISTED_ON, true]);
    assert.deepEqual(origin('us-east5-b', {'v6e@us-east5': catalog}), ['catalog', '2026-11-24', false]);
    assert.deepEqual(origin('us-east5-b', {v6e: {usd: 2, spot_usd: 1}, 'v6e@us-east5': catalog}), [
      'person',
      null,
      false,
    ]);
    assert.deepEqual(origin('me-west1-a', {'v6e-8@me-west1': {usd: 2, spot_usd: 1}}), [
      'person',
      null,
      false,
    ]);
  });

  it('a price is called old after seven days', () => {
    const now = Date.parse('2026-12-01T12:00:00.000Z');
    assert.deepEqual(
      ['2026-11-30', '2026-11-24', '2026-11-23', null].map(as_of => ageText(as_of, now)),
      [undefined, undefined, '8 days old', undefined],
    );
  });
});

describe('prices over the list', () => {
  it('a given price of a generation replaces the listed prices of all regions', () => {
    const prices = overList({v5litepod: {usd: 2, spot_usd: 2}, 'v5p@us-east5': {usd: 1, spot_usd: 1}});
    const priceOf = (accelerator: string, zone: string) =>
      usdPerHour(prices, {accelerator, spot: true, zone});
    assert.equal(priceOf('v5litepod-1', 'europe-west4-b'), 2);
    assert.equal(priceOf('v5p-2', 'us-east5-a'), 1);
    assert.equal(priceOf('v5p-2', 'europe-west4-b'), LIST_PRICES['v5p@europe-west4']?.spot_usd);
  });

  it('a given price that is unknown replaces the list too', () => {
    const prices = overList({v5litepod: null, 'v5p-2@us-east5': null});
    const priceOf = (accelerator: string, zone: string) =>
      usdPerHour(prices, {accelerator, spot: true, zone});
    assert.equal(priceOf('v5litepod-1', 'europe-west4-b'), null);
    assert.equal(priceOf('v5p-2', 'us-east5-a'), null);
    assert.equal(priceOf('v5p-2', 'us-central1-a'), LIST_PRICES['v5p@us-central1']?.spot_usd);
  });

  for (const key of ['v6e', 'v6e-8', 'v9-8', 'v5litepod@us-south1', 'v6e-8@us-east5'])
    it(`${key} is a valid key of a price`, () => assert.ok(isPriceKey(key, ['v9-8'])));

  it('a generation is a valid key where no pool is known', () =>
    assert.ok(isPriceKey('v5litepod@us-south1', [])));

  for (const key of [
    ...['v5e', 'V6E', 'v5e-8', 'v9-4', 'v9', ''],
    ...['v6e@us-east5-b', 'v6e@', 'v6e@us-east5@us-east5'],
  ])
    it(`"${key}" is no key of a price`, () => assert.ok(!isPriceKey(key, ['v9-8'])));
});
