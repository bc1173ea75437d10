import assert from 'node:assert/strict';
import {addSkus, NO_PRICES, refreshed, type Sku} from '../../../../shared/domain/billing/catalog.ts';
import {overList, usdPerHour} from '../../../../shared/domain/billing/prices.ts';
import {at, T0} from '../../../world/builders.ts';
import {aSku, chipSkus} from '../../../world/catalog.ts';

const SPOT = 'TpuV6e attached to Spot Preemptible VMs running in Columbus';
const found = (...skus: Sku[]) => addSkus(NO_PRICES, skus, T0);
const V6E = chipSkus('v6e@us-east5', {usd: 2.7, spot_usd: 1.4033});

describe('the prices of the Billing Catalog', () => {
  it('are those of plain chips: reservations, commitments and flex-start have other prices', () => {
    const {chips, unknown} = found(
      aSku('DWS Defined Duration V6e running in Columbus', 'OnDemand', 'us-east5', 1.35),
      aSku('Capacity Optimized TpuV6e running in Columbus', 'OnDemand', 'us-east5', 9),
      aSku('Reserved V6e TPU in Columbus in Calendar Mode', 'OnDemand', 'us-east5', 1.89),
      aSku('Commitment v1: TpuV6e running in Columbus for 1 Year', 'Commit1Yr', 'us-east5', 1.89),
      aSku('TpuV6e running in Columbus', 'Commit1Yr', 'us-east5', 1),
      ...V6E,
    );
    const since_at = '2025-01-01T00:00:00.000Z';
    assert.deepEqual([chips, unknown], [{'v6e@us-east5': {usd: 2.7, spot_usd: 1.4033, since_at}}, []]);
  });

  it('are those in force now, of all price changes of an item', () => {
    const [now, next] = [
      aSku(SPOT, 'Preemptible', 'us-east5', 2, at(-60)),
      aSku(SPOT, 'Preemptible', 'us-east5', 6, at(60)),
    ];
    const {chips} = found({...now, pricingInfo: [...next.pricingInfo, ...now.pricingInfo]});
    assert.deepEqual(chips, {'v6e@us-east5': {spot_usd: 2, since_at: at(-60)}});
  });

  it('are the higher of two prices of one chip, since the later of both', () => {
    const {chips} = found(
      aSku(SPOT, 'Preemptible', 'us-east5', 2, at(-60)),
      aSku(SPOT, 'Preemptible', 'us-east5', 1, at(-90)),
    );
    assert.deepEqual(chips, {'v6e@us-east5': {spot_usd: 2, since_at: at(-60)}});
  });

  it('name each chip that this release does not know, and each price in another unit', () => {
    const [plain] = chipSkus('v5p@us-east5', {usd: 1, spot_usd: 1});
    const [price] = plain?.pricingInfo ?? [];
    const expression = {usageUnit: 'mo', tieredRates: price?.pricingExpression.tieredRates ?? []};
    const monthly = {
      ...(plain ?? assert.fail()),
      pricingInfo: [{effectiveTime: at(-9), pricingExpression: expression}],
    };
    const {chips, unknown} = found(aSku('Tpu7x running in Iowa', 'OnDemand', 'us-central1', 12), monthly);
    assert.deepEqual(chips, {});
    assert.deepEqual(unknown, ['Tpu7x', 'TpuV5p running in Somewhere: no price in dollars an hour']);
  });
});

describe('a refresh of the prices', () => {
  const today = {source: 'catalog', as_of: at(0).slice(0, 10), since_at: '2025-01-01T00:00:00.000Z'};

  it('replaces the price of the list and of an earlier refresh, and says what changed', () => {
    const stored = {
      'v6e@us-east5': {usd: 2.7, spot_usd: 1.3, source: 'catalog' as const, as_of: '2025-12-01'},
    };
    const {prices, changed} = refreshed(stored, found(...V6E), T0);
    assert.deepEqual(prices, {'v6e@us-east5': {usd: 2.7, spot_usd: 1.4033, ...today}});
    assert.deepEqual(changed, ['v6e@us-east5: $2.7 and $1.4033 on spot, was $2.7 and $1.3 on spot']);
    assert.equal(
      usdPerHour(overList(prices), {accelerator: 'v6e-8', spot: true, zone: 'us-east5-b'}),
      8 * 1.4033,
    );
  });

  it('leaves a price of a person, of a region or of a whole generation, and names it', () => {
    for (const key of ['v6e@us-east5', 'v6e']) {
      const {prices, kept} = refreshed({[key]: {usd: 1, spot_usd: 1}}, found(...V6E), T0);
      assert.deepEqual(prices, {});
      assert.ok(kept.includes('v6e@us-east5: keeps the price that a person set'), String(kept));
    }
  });

  it('keeps and names a price that the catalog lacks, or has only on spot', () => {
    const stored = {'v5p@us-east5': {usd: 4.2, spot_usd: 2, source: 'catalog' as const, as_of: '2025-12-01'}};
    const [, spot] = V6E;
    const {prices, changed, kept} = refreshed(stored, found(spot ?? assert.fail()), T0);
    assert.deepEqual([prices, changed], [stored, []]);
    for (const text of [
      'v5p@us-east5: not in the catalog; keeps $4.2 and $2 on spot of 2025-12-01',
      'v6e@us-east5: the catalog has no price on demand; keeps $2.7 and $1.215 on spot of 2026-11-23',
      'v4@us-central2: not in the catalog; keeps $3.22 and $0.9215 on spot of 2026-11-23',
    ])
      assert.ok(kept.includes(text), kept.join('\n'));
  });

  it('raises the price of a generation in other regions to the highest of the catalog', () => {
    const {prices} = refreshed({}, found(...chipSkus('v6e@us-east5', {usd: 9, spot_usd: 8})), T0);
    assert.equal(usdPerHour(overList(prices), {accelerator: 'v6e-1', spot: true, zone: 'me-west1-a'}), 8);
  });
});
