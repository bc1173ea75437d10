import assert from 'node:assert/strict';
import type {Sampled} from '../../../client/views/assumptions.ts';
import {countedBill, estimatedBill} from '../../../client/views/whole-bill.ts';
import {aRun} from '../../world/builders.ts';

const GIB = 1024 ** 3;
const sure = (estimate: number) => ({estimate, low: estimate, high: estimate});
/** Two streams of 5 GiB, 1000 shards, and a model of 1 GiB. */
const SAMPLED = {
  streams: 2,
  stream_bytes: 10 * GIB,
  totals: {shards: sure(1000)},
  operations: 7 * GIB,
  computed_tokens: 7,
} as unknown as Sampled;
const bill = (place: Partial<Parameters<typeof estimatedBill>[3]>) =>
  estimatedBill(SAMPLED, {estimate: 100 * GIB, low: 50 * GIB, high: null}, sure(10), {
    ...{zone: 'us-central1-a', region: 'us-central1', workers: 4, isHubModel: false},
    ...place,
  });
const usd = (dollars: number) => dollars.toFixed(4);

describe('the bill beside the TPUs', () => {
  it('the bill beside the TPUs has network between regions for streams, shards and the weights of each TPU at work', () => {
    const {network, nat} = bill({zone: 'us-east5-b'});
    assert.deepEqual([network.estimate, network.low].map(usd), [
      usd(0.02 * (100 + 10 + 4)),
      usd(0.02 * (50 + 10 + 4)),
    ]);
    assert.deepEqual([network.high, nat.estimate, bill({}).network.estimate], [null, 0, 0]);
  });

  it('the bill beside the TPUs has Cloud NAT for the weights of a hub model, which cross no region', () => {
    const {network, nat} = bill({zone: 'us-east5-b', isHubModel: true});
    assert.deepEqual([network.estimate, nat.estimate].map(usd), [usd(0.02 * 110), usd(0.045 * 2)]);
  });

  it('the bill beside the TPUs has operations of streams and shards, functions and Firestore by hour and shard, and storage each month', () => {
    const {operations, control, storage_month} = bill({});
    assert.deepEqual(
      [operations, control, storage_month].map(each => usd(each.estimate)),
      ['0.0055', '0.0081', '2.0000'],
    );
  });

  it('the bill beside the TPUs of a run is counted from its document', () => {
    const run = aRun({
      streams_completed: 2,
      total_shards: 1000,
      total_bytes: 100 * GIB,
      cost_usd: 20,
      network_usd: 2,
      download_usd: 1,
    });
    const {network_usd, ...others} = countedBill(run, 2);
    assert.equal(network_usd, 3);
    assert.deepEqual(Object.values(others).map(usd), ['0.0055', '0.0081', '2.0000']);
    assert.equal(usd(countedBill(run, null).control_usd), '0.0053');
  });
});
