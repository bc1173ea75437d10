import assert from 'node:assert/strict';
import {
  bytePrice,
  crossRegionProblem,
  withRead,
  withTraffic,
} from '../../../../shared/domain/billing/network.ts';
import {aRun, aStream} from '../../../world/builders.ts';

const GIB = 1024 ** 3;
const ZONE = 'us-east5-b';

describe('traffic between regions', () => {
  for (const [zone, region, usd] of [
    ['us-central1-a', 'us-central1', 0],
    ['us-east5-b', 'us-central1', 0.02],
    ['northamerica-northeast1-a', 'us-central1', 0.02],
    ['europe-west4-b', 'us-central1', 0.05],
    ['europe-west4-b', 'asia-east1', 0.08],
    ['us-central1-a', 'southamerica-west1', 0.14],
    ['mars-north1-a', 'us-central1', 0.14],
    ['us-east5-b', null, 0],
  ] as const)
    it(`a GiB between ${zone} and a bucket in ${region} costs $${usd}`, () =>
      assert.equal((bytePrice(zone, region) * GIB).toFixed(6), usd.toFixed(6)));

  it('a stream costs its bytes at each grant, and its shards cost theirs at the price of the last grant', () => {
    const stream = aStream({size_bytes: GIB});
    const near = withTraffic(withRead(stream, 'us-central1-a', 'us-central1'), GIB);
    assert.deepEqual([near.network_bytes, near.network_usd], [0, 0]);
    const far = withTraffic(withRead(withRead(stream, ZONE, 'us-central1'), ZONE, 'us-central1'), 3 * GIB);
    assert.deepEqual([far.network_bytes, far.network_usd.toFixed(6)], [5 * GIB, '0.100000']);
    const moved = withTraffic(withRead(far, 'us-central1-a', 'us-central1'), GIB);
    assert.equal(moved.network_bytes, far.network_bytes);
  });

  it('a run needs allow_cross_region for a pool with a zone in another region', () => {
    const zones = ['us-central1-a', ZONE];
    const why = crossRegionProblem(aRun(), zones, 'us-central1');
    assert.match(
      why ?? '',
      /^us-east5-b and the bucket in us-central1 are in different regions.*\$0\.02.*allow_cross/,
    );
    assert.equal(crossRegionProblem(aRun({allow_cross_region: true}), zones, 'us-central1'), undefined);
    assert.equal(crossRegionProblem(aRun(), ['us-central1-a', 'us-central1-b'], 'us-central1'), undefined);
    assert.equal(crossRegionProblem(aRun(), zones, null), undefined);
  });
});
