import assert from 'node:assert/strict';
import {meanUsdPerHour, usdPerHourFor, usdPerMillionTokens} from '../../../client/views/rates.ts';
import {LIST_PRICES} from '../../../shared/domain/billing/list-prices.ts';
import {at, aWorker} from '../../world/builders.ts';

const aPaid = (changes = {}) => aWorker({phase: 'working', ready_at: at(0), usd_per_hour: 3.6, ...changes});

describe('the hourly price of a run', () => {
  it('the hourly price of a run is the mean over its paid hours, and unknown without a price', () => {
    const workers = [
      aPaid({usd_per_hour: 1, costs: {'my-run': 3}}),
      aPaid({usd_per_hour: 2, costs: {'my-run': 2, other: 50}}),
      aPaid({usd_per_hour: 9, costs: {other: 9}}),
    ];
    assert.equal(usdPerHourFor('my-run', workers), 5 / 4);
    assert.equal(usdPerHourFor('none', workers), null);
    assert.equal(usdPerHourFor('my-run', [aPaid({usd_per_hour: null, costs: {'my-run': 1}})]), null);
  });
});

describe('the price of a million tokens', () => {
  it('the price of a million tokens is cost over tokens, and unknown without tokens', () => {
    assert.equal(usdPerMillionTokens({cost_usd: 3, total_tokens: 12_000_000}), 0.25);
    assert.equal(usdPerMillionTokens({cost_usd: 3, total_tokens: 0}), null);
  });
});

describe('the mean price over zones', () => {
  const mean = (accelerator: string) =>
    meanUsdPerHour(LIST_PRICES, {accelerator, spot: false, zones: ['us-central1-a', 'europe-west4-b']});
  it('the mean price of a node counts the zones with a known price', () =>
    assert.ok(Math.abs((mean('v5litepod-4') ?? 0) - 4 * 1.38) < 1e-9));
  it('the mean price is unknown where no zone has a price', () => assert.equal(mean('v9-8'), null));
});
