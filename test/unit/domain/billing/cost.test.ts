import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  accrue,
  costOfLeaving,
  costOfLiving,
  overspent,
  paidBy,
  payersFor,
  purseOf,
  totalOf,
  usdPerHourFor,
  usdPerMillionTokens,
} from '../../../../shared/domain/billing/cost.ts';
import {
  chipsOf,
  isPriceKey,
  LIST_PRICES,
  meanUsdPerHour,
  overList,
  usdPerHour,
} from '../../../../shared/domain/billing/prices.ts';
import {at, aWorker, T0} from '../../../support/builders.ts';

const HOUR = 3_600_000;
const slot = (number: number) => `tpu-us-central1-a-${number}`;
const aPaid = (changes = {}) => aWorker({phase: 'working', ready_at: at(0), usd_per_hour: 3.6, ...changes});

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
    it(`${accelerator} has ${chips} chips`, () => assert.equal(chipsOf(accelerator)?.chips, chips));

  for (const accelerator of ['v2-1', 'v5p-7', 'v5litepod-0', 'v6e-01', 'v9-8'])
    it(`${accelerator} is no type`, () => {
      assert.equal(chipsOf(accelerator), undefined);
      assert.equal(usdPerHour(LIST_PRICES, {accelerator, spot: true, zone: 'us-central1-a'}), null);
    });

  it('is that of its region, or of its generation, or nobody knows it', () => {
    const prices = {...LIST_PRICES, 'v6e@europe-west4': {usd: 3, spot_usd: 1}};
    const price = (accelerator: string, zone: string, spot: boolean) =>
      usdPerHour(prices, {accelerator, spot, zone});
    assert.equal(price('v6e-8', 'europe-west4-a', true), 8);
    assert.equal(price('v6e-8', 'us-east5-b', false), 8 * 2.7);
    assert.equal(price('v3-8', 'us-central1-a', false), 8);
    assert.equal(price('v9-8', 'us-central1-a', true), null);
    assert.equal(price('v5litepod-8', 'us-east5-c', true), 4.8);
    assert.equal(price('v5litepod-8', 'europe-west4-a', true), 6.24);
    assert.equal(price('v5p-8', 'us-south1-a', false), 19.116);
  });
});

describe('the price of a node in one of several zones', () => {
  const mean = (accelerator: string) =>
    meanUsdPerHour(LIST_PRICES, {accelerator, spot: false, zones: ['us-central1-a', 'europe-west4-b']});
  it('is their mean', () => assert.ok(Math.abs((mean('v5litepod-4') ?? 0) - 4 * 1.38) < 1e-9));
  it('is unknown where it is in none of them', () => assert.equal(mean('v9-8'), null));
});

describe('what a life costs', () => {
  it('is nothing before READY, and goes on until it is gone', () => {
    assert.deepEqual(accrue(aPaid({ready_at: null}), T0 + HOUR).costs, {});
    assert.deepEqual(accrue(aPaid({phase: 'gone'}), T0 + HOUR).costs, {});
    assert.deepEqual(accrue(aPaid({phase: 'deleting', charged_to: 'my-run'}), T0 + HOUR).costs, {
      'my-run': 3.6,
    });
  });

  it('belongs to the run that it works for, then to the one it worked for last; what came before, to the first', () => {
    let worker = accrue(aPaid({work: null}), T0 + HOUR);
    assert.deepEqual(worker.costs, {_idle: 3.6});
    worker = accrue({...worker, work: 'one/000'}, T0 + 2 * HOUR);
    assert.deepEqual(worker.costs, {one: 7.2});
    worker = accrue({...worker, work: null}, T0 + 3 * HOUR);
    worker = accrue({...worker, work: 'two/000'}, T0 + 4 * HOUR);
    assert.deepEqual([worker.costs.one?.toFixed(2), worker.costs.two?.toFixed(2)], ['10.80', '3.60']);
  });

  it('is paid by whoever is served first, each for as many as it has streams, and by another when that has none left', () => {
    const open = [
      {run: 'urgent', streams: 2},
      {run: 'other', streams: 5},
    ];
    const workers = new Map(
      [
        aPaid({name: slot(0), work: 'urgent/000', charged_to: 'urgent'}),
        aPaid({name: slot(1), phase: 'booting', work: null, charged_to: 'ended'}),
        aPaid({name: slot(2), work: 'ended/000', charged_to: 'ended'}),
        aPaid({name: slot(3), phase: 'booting', work: null, charged_to: null}),
      ].map(worker => [worker.name, worker]),
    );
    const fixed = new Map([[slot(5), 'own']]);
    const payers = payersFor([0, 1, 2, 3, 4, 5].map(slot), workers, open, fixed);
    assert.deepEqual(Object.fromEntries(payers), {[slot(1)]: 'urgent', [slot(4)]: 'other', [slot(5)]: 'own'});
    const spare = workers.get(slot(1)) ?? assert.fail();
    const moved = accrue(paidBy(accrue(spare, T0 + HOUR), payers.get(slot(1)) ?? null), T0 + 2 * HOUR);
    assert.deepEqual(moved.costs, {ended: 3.6, urgent: 3.6});
  });

  it('is paid by no run for more TPUs than it has streams, those that go not counted', () => {
    const of = (...all: Parameters<typeof aPaid>[0][]) =>
      new Map(all.map((changes, number) => [slot(number), aPaid({name: slot(number), ...changes})]));
    const open = [
      {run: 'a', streams: 1},
      {run: 'b', streams: 2},
    ];
    const spare = {phase: 'booting', work: null, charged_to: 'a'};
    const atWork = {work: 'a/000', charged_to: 'a'};
    const payers = (workers: ReturnType<typeof of>, count: number) =>
      Object.fromEntries(payersFor([0, 1, 2].slice(0, count).map(slot), workers, open, new Map()));
    assert.deepEqual(payers(of(atWork, spare, spare), 3), {[slot(1)]: 'b', [slot(2)]: 'b'});
    const going = {phase: 'deleting', work: null, charged_to: 'b'};
    assert.deepEqual(payers(of(atWork, going), 3), {[slot(2)]: 'b'});
    const repaired = {phase: 'working', work: null, charged_to: 'ended'};
    assert.deepEqual(payers(of(atWork, repaired), 2), {[slot(1)]: 'b'});
  });

  it('does not depend on how often it is brought up to date, and never falls', () => {
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

  it('is summed over the living', () => {
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

describe('clocks that do not agree', () => {
  it('charge no minute twice', () => {
    let worker = aWorker({phase: 'working', ready_at: at(0), usd_per_hour: 3600, work: 'my-run/000'});
    for (let s = 60; s <= 600; s += 60) worker = accrue(accrue(worker, T0 + s * 1000 + 5000), T0 + s * 1000);
    assert.equal(totalOf(worker.costs), 605);
  });
});

describe('prices that are given', () => {
  it('of a generation go for every region that is not given too', () => {
    const prices = overList({v5litepod: {usd: 2, spot_usd: 2}, 'v5p@us-east5': {usd: 1, spot_usd: 1}});
    const priceOf = (accelerator: string, zone: string) =>
      usdPerHour(prices, {accelerator, spot: true, zone});
    assert.equal(priceOf('v5litepod-1', 'europe-west4-b'), 2);
    assert.equal(priceOf('v5p-2', 'us-east5-a'), 1);
    assert.equal(priceOf('v5p-2', 'europe-west4-b'), LIST_PRICES['v5p@europe-west4']?.spot_usd);
  });

  it('and that nobody knows go before the list too', () => {
    const prices = overList({v5litepod: null, 'v5p-2@us-east5': null});
    const priceOf = (accelerator: string, zone: string) =>
      usdPerHour(prices, {accelerator, spot: true, zone});
    assert.equal(priceOf('v5litepod-1', 'europe-west4-b'), null);
    assert.equal(priceOf('v5p-2', 'us-east5-a'), null);
    assert.equal(priceOf('v5p-2', 'us-central1-a'), LIST_PRICES.v5p?.spot_usd);
  });

  for (const key of ['v6e', 'v6e-8', 'v9-8', 'v5litepod@us-south1', 'v6e-8@us-east5'])
    it(`may be called ${key}`, () => assert.ok(isPriceKey(key, 'v9-8')));

  for (const key of [
    'v5e',
    'V6E',
    'v5e-8',
    'v9-4',
    'v9',
    'v6e@us-east5-b',
    'v6e@',
    'v6e@us-east5@us-east5',
    '',
  ])
    it(`may not be called "${key}"`, () => assert.ok(!isPriceKey(key, 'v9-8')));
});

describe('a budget', () => {
  it('holds at its last cent, needs a price, and none is no limit', () => {
    const spent = (spent_usd: number) => ({spent_usd, leaving_usd: 0});
    assert.equal(overspent('run', null, spent(1e9), false), undefined);
    assert.equal(overspent('run', 10, spent(9.99), true), undefined);
    assert.match(overspent('run', 10, spent(10), true) ?? '', /\$10\.00 of \$10\.00 are spent; /);
    assert.match(overspent('run', 10, spent(0), false) ?? '', /prices\/chips/);
  });

  it('pays for TPUs until they are gone, and says what it keeps for that', () => {
    assert.equal(overspent('run', 10, {spent_usd: 8, leaving_usd: 1.9}, true), undefined);
    assert.match(
      overspent('run', 10, {spent_usd: 8, leaving_usd: 2}, true) ?? '',
      /^\$8\.00 of \$10\.00 are spent, and \$2\.00 are kept for the minutes that deleting TPUs takes; /,
    );
  });

  it('keeps three minutes of each TPU that is not gone, also of one that is not READY yet', () => {
    const workers = [
      aPaid({work: 'one/000', usd_per_hour: 20}),
      aPaid({phase: 'creating', ready_at: null, charged_to: 'one', usd_per_hour: 40}),
      aPaid({phase: 'deleting', usd_per_hour: 60}),
      aPaid({phase: 'gone', charged_to: 'one'}),
    ];
    const {runs, total} = costOfLeaving(workers);
    assert.deepEqual([[...runs], total], [[['one', 3]], 6]);
  });
});

describe('what a budget leaves', () => {
  const left = (pool: number, one: number, two: number) => ({
    runs: new Map([
      ['one', one],
      ['two', two],
    ]),
    pool,
  });
  const payers = (of: ReturnType<typeof left>, workers = new Map<string, ReturnType<typeof aPaid>>()) => {
    const open = ['one', 'two'].map(run => ({run, streams: 2}));
    const pays = purseOf(of, workers, () => 20);
    return [...payersFor([0, 1, 2].map(slot), workers, open, new Map(), pays).values()];
  };

  it('is for as many TPUs as it pays for until they are gone; the next run may have the others', () => {
    assert.deepEqual(payers(left(9, 9, 9)), ['one', 'one', 'two']);
    assert.deepEqual(payers(left(9, 1.5, 9)), ['one', 'two', 'two']);
    assert.deepEqual(payers(left(9, 1.5, 1)), ['one', null, null]);
    assert.deepEqual(payers(left(2.5, 9, 9)), ['one', 'one', null]);
  });

  it('of the pool has paid for a TPU that is there, whatever run is to pay for it', () => {
    const spare = aPaid({name: slot(0), phase: 'booting', work: null, charged_to: 'ended'});
    const workers = new Map([[slot(0), spare]]);
    assert.deepEqual(payers(left(1.5, 9, 9), workers), ['one', 'one', null]);
    assert.deepEqual(payers(left(9, 1, 1), workers), [null, null, null]);
  });
});

describe('what an hour of the TPUs of a run cost', () => {
  it('is their mean by the hours that the run paid for, and unknown when none is priced', () => {
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

describe('what a million tokens cost', () => {
  it('is the cost over the tokens, and unknown before there are any', () => {
    assert.equal(usdPerMillionTokens({cost_usd: 3, total_tokens: 12_000_000}), 0.25);
    assert.equal(usdPerMillionTokens({cost_usd: 3, total_tokens: 0}), null);
  });
});
