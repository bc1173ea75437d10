import assert from 'node:assert/strict';
import {usdPerHourFor, usdPerMillionTokens} from '../../../cli/run/rates.ts';
import {at, aWorker} from '../../support/builders.ts';

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
