import assert from 'node:assert/strict';
import {workerRequest} from '../../../../shared/contracts/messages/schemas.ts';
import {accrue, downloadsOf, JOBS, totalOf} from '../../../../shared/domain/billing/cost.ts';
import {costByMonth} from '../../../../shared/domain/billing/monthly-spending.ts';
import type {Received, Worker} from '../../../../shared/domain/records/worker.ts';
import {withReceived} from '../../../../shared/domain/requests/downloads.ts';
import {at, aWorker, T0} from '../../../world/builders.ts';

const GIB = 1024 ** 3;
const NOW = T0 + 3_600_000;
const REGION = 'us-central1';
const bytes = (changes: Partial<Received>): Received => ({
  ...{nat_bytes: 0, bucket_bytes: 0, other_bytes: 0},
  ...changes,
});
const aHost = (changes: Partial<Worker> = {}) =>
  aWorker({
    ...{created_at: at(-86_400), born_at: at(0), ready_at: at(0), work: 'my-run/007', zone: 'us-east5-b'},
    ...changes,
  });
const told = (worker: Worker, reports: Received[], region: string | null = REGION, host = 0) =>
  reports.reduce((known, report) => withReceived(known, host, report, region), worker);
const usdOf = ({costs}: Worker, payer = 'my-run') => (costs[downloadsOf(payer)] ?? 0).toFixed(6);

describe('a report of downloads', () => {
  const cases: {name: string; reports: Partial<Received>[]; region?: string | null; usd: number}[] = [
    {name: 'costs each GiB through Cloud NAT $0.045', reports: [{nat_bytes: 2 * GIB}], usd: 0.09},
    {name: 'costs the bucket by its region', reports: [{bucket_bytes: GIB}], usd: 0.02},
    {
      name: 'costs nothing in the region of the bucket',
      reports: [{bucket_bytes: GIB}],
      region: 'us-east5',
      usd: 0,
    },
    {name: 'costs another bucket the highest price', reports: [{other_bytes: GIB}], usd: 0.14},
    {
      name: 'costs nothing for buckets of a local cloud',
      reports: [{bucket_bytes: GIB, other_bytes: GIB}],
      region: null,
      usd: 0,
    },
    {name: 'that is repeated costs once', reports: [{nat_bytes: GIB}, {nat_bytes: GIB}], usd: 0.045},
    {name: 'that is late costs nothing', reports: [{nat_bytes: 2 * GIB}, {nat_bytes: GIB}], usd: 0.09},
    {
      name: 'that falls and rises again costs only the rise',
      reports: [{nat_bytes: 2 * GIB}, {nat_bytes: 0}, {nat_bytes: 3 * GIB}],
      usd: 0.135,
    },
  ];
  for (const {name, reports, region = REGION, usd} of cases)
    it(name, () => {
      const worker = told(aHost(), reports.map(bytes), region);
      assert.equal(usdOf(worker), usd.toFixed(6));
      assert.ok(Object.values(worker.costs).every(each => each >= 0));
    });

  const most = (loads: number) => 20e9 + loads * 2 * 8 * 32e9;
  const limits = [
    {name: 'before a grant', model_loads: 0, most: most(1)},
    {name: 'after grants of two runs', model_loads: 2, most: most(3)},
  ];
  for (const {name, model_loads, most} of limits)
    it(`of more than its models and its environment have, ${name}, costs nothing and replaces the worker`, () => {
      const host = aHost({priced_as: 'v6e-8 on spot', model_loads});
      const least = told(host, [bytes({nat_bytes: most - 1, bucket_bytes: 1})]);
      assert.deepEqual([least.fault, least.received[0]?.nat_bytes], [null, most - 1]);
      const {fault, costs, received} = told(host, [bytes({nat_bytes: most, bucket_bytes: 1})]);
      assert.deepEqual([costs, received], [{}, {}]);
      assert.match(fault ?? '', new RegExp(`host 0 reports ${most + 1} downloaded bytes.* at most ${most}$`));
    });

  it('belongs to the run at work, and to the payer of jobs during a job', () => {
    const report = [bytes({nat_bytes: GIB})];
    assert.equal(usdOf(told(aHost({charged_to: 'other'}), report)), '0.045000');
    assert.equal(usdOf(told(aHost({work: 'job:j1'}), report), JOBS), '0.045000');
  });

  it('of a worker without work is billed to no run, and to the next that it works for', () => {
    const idle = told(aHost({work: null, charged_to: 'other'}), [bytes({nat_bytes: GIB})]);
    assert.deepEqual([idle.received, idle.costs], [{}, {}]);
    assert.equal(usdOf(told({...idle, work: 'my-run/007'}, [bytes({nat_bytes: GIB})])), '0.045000');
  });

  it('of each host is counted separately', () => {
    const first = told(aHost(), [bytes({nat_bytes: GIB})]);
    assert.equal(usdOf(told(first, [bytes({nat_bytes: GIB})], REGION, 1)), '0.090000');
  });

  it('of a TPU without a price is billed to its month', () => {
    const worker = told(aHost({usd_per_hour: null}), [bytes({nat_bytes: GIB})]);
    const months = costByMonth(accrue(worker, NOW), null);
    assert.deepEqual(Object.keys(months), ['2026-01']);
    assert.equal(months['2026-01'], totalOf(worker.costs));
  });
});

describe('a heartbeat with downloads', () => {
  const beat = {action: 'heartbeat', worker: 'tpu-us-central1-a-0', incarnation: 1, host: 0, phase: 'idle'};
  const parse = (received: unknown) =>
    workerRequest.safeParse({...beat, lease: null, progress: null, received}).success;
  for (const wrong of [-1, 0.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53, '1', null])
    it(`is refused with the count ${wrong}`, () =>
      assert.equal(parse({...bytes({}), nat_bytes: wrong}), false));
  it('may lack them', () => assert.equal(parse(undefined), true));
});
