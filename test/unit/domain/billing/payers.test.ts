import assert from 'node:assert/strict';
import {
  accrue,
  budgetReserver,
  type ReserveBudget,
  runAtWork,
  withPayer,
} from '../../../../shared/domain/billing/cost.ts';
import {constraint} from '../../../../shared/domain/records/constraint.ts';
import type {Worker} from '../../../../shared/domain/records/worker.ts';
import {serveWork} from '../../../../shared/domain/tick/serve-work.ts';
import type {Fleet} from '../../../../shared/domain/tick/why-waiting.ts';
import {at, aWorker, T0} from '../../../world/builders.ts';

const HOUR = 3_600_000;
const slot = (number: number) => `tpu-us-central1-a-${number}`;
const aPaid = (changes = {}) => aWorker({phase: 'working', ready_at: at(0), usd_per_hour: 3.6, ...changes});

/** `open`: streams for any slot, by run in the order of service. `bound`: the run of each slot with a stream of its own. */
function assignPayers(
  slots: string[],
  workers: ReadonlyMap<string, Worker>,
  open: readonly {run: string; streams: number}[],
  bound: ReadonlyMap<string, string> = new Map(),
  reserve: ReserveBudget = () => undefined,
) {
  const ofRun = (payer: string, streams: number) => ({
    ...{payer, open: streams, waiting: 0, own: undefined},
    bound: [...bound].flatMap(([name, run]) => (run === payer ? name : [])),
  });
  const others = [...new Set(bound.values())].filter(each => !open.some(({run}) => run === each));
  const demands = [...open.map(({run, streams}) => ofRun(run, streams)), ...others.map(run => ofRun(run, 0))];
  const fleet = {snapshot: {workers}, wanted: new Set(slots)} as unknown as Fleet;
  return serveWork({demands}, fleet, reserve).payers;
}

describe('the runs that pay for slots', () => {
  it('runs pay in order of service, each for as many slots as it has streams', () => {
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
    const payers = assignPayers([0, 1, 2, 3, 4, 5].map(slot), workers, open, fixed);
    assert.deepEqual(Object.fromEntries(payers), {[slot(1)]: 'urgent', [slot(4)]: 'other', [slot(5)]: 'own'});
    const spare = workers.get(slot(1)) ?? assert.fail();
    const moved = accrue(withPayer(accrue(spare, T0 + HOUR), payers.get(slot(1)) ?? null), T0 + 2 * HOUR);
    assert.deepEqual(moved.costs, {ended: 3.6, urgent: 3.6});
  });

  it('no run pays for more TPUs than it has streams, and deleting TPUs do not count', () => {
    const of = (...all: Parameters<typeof aPaid>[0][]) =>
      new Map(all.map((changes, number) => [slot(number), aPaid({name: slot(number), ...changes})]));
    const open = [
      {run: 'a', streams: 1},
      {run: 'b', streams: 2},
    ];
    const spare = {phase: 'booting', work: null, charged_to: 'a'};
    const atWork = {work: 'a/000', charged_to: 'a'};
    const payers = (workers: ReturnType<typeof of>, count: number) =>
      Object.fromEntries(assignPayers([0, 1, 2].slice(0, count).map(slot), workers, open, new Map()));
    assert.deepEqual(payers(of(atWork, spare, spare), 3), {[slot(1)]: 'b', [slot(2)]: 'b'});
    const going = {phase: 'deleting', work: null, charged_to: 'b'};
    assert.deepEqual(payers(of(atWork, going), 3), {[slot(2)]: 'b'});
    const repaired = {phase: 'working', work: null, charged_to: 'ended'};
    assert.deepEqual(payers(of(atWork, repaired), 2), {[slot(1)]: 'b'});
  });

  it('a worker that fell silent at work stays with its run, which has no pending stream', () => {
    const suspect = {work: 'a/000', epoch: 1, total_shards: 0};
    const silent = aPaid({name: slot(0), work: null, charged_to: 'a', suspect});
    const workers = new Map([[silent.name, silent]]);
    const open = [
      {run: 'a', streams: 0},
      {run: 'b', streams: 1},
    ];
    assert.deepEqual([...assignPayers([slot(0)], workers, open, new Map())], []);
    assert.equal(withPayer(silent, 'b').charged_to, 'a', 'a plan from before the silence changes nothing');
  });

  it('a run without the budget for another TPU keeps the idle one with a stream of its own', () => {
    const idle = aPaid({name: slot(0), phase: 'idle', work: null, charged_to: 'own'});
    const payers = (charged_to: string) =>
      assignPayers(
        [slot(0)],
        new Map([[slot(0), {...idle, charged_to}]]),
        [{run: 'other', streams: 1}],
        new Map([[slot(0), 'own']]),
        () => constraint('budget', 'run other'),
      );
    assert.deepEqual([...payers('own')], []);
    assert.deepEqual([...payers('ended')], [[slot(0), null]]);
  });

  it('a worker that fell silent at work counts for its run until it ends', () => {
    const suspect = {work: 'a/000', epoch: 1, total_shards: 0};
    const runOf = (phase: 'idle' | 'deleting') => runAtWork(aPaid({phase, work: null, suspect}));
    assert.deepEqual([runOf('idle'), runOf('deleting')], ['a', undefined]);
  });

  it('the first run pays for an idle worker whose run is over, also when a bound slot serves its last stream', () => {
    const workers = new Map(
      [
        aPaid({name: slot(0), work: 'a/000', charged_to: 'a'}),
        aPaid({name: slot(1), phase: 'creating', work: null, charged_to: 'over'}),
        aPaid({name: slot(2), phase: 'creating', work: null, charged_to: 'a'}),
      ].map(worker => [worker.name, worker]),
    );
    const open = [{run: 'a', streams: 1}];
    const fixed = new Map([[slot(0), 'b']]);
    assert.deepEqual(Object.fromEntries(assignPayers([0, 1, 2].map(slot), workers, open, fixed)), {
      [slot(1)]: 'a',
    });
  });
});

describe('the runs that pay within their budgets', () => {
  const left = (pool: number, one: number, two: number) => ({
    runs: new Map([
      ['one', one],
      ['two', two],
    ]),
    pool,
  });
  const payers = (of: ReturnType<typeof left>, workers = new Map<string, ReturnType<typeof aPaid>>()) => {
    const open = ['one', 'two'].map(run => ({run, streams: 2}));
    const pays = budgetReserver(of, workers, () => 20, 'the month');
    const paid = assignPayers([0, 1, 2].map(slot), workers, open, new Map(), pays);
    return [0, 1, 2].map(number => paid.get(slot(number)));
  };

  it('a run pays for as many TPUs as its budget covers, and the next run pays for the others', () => {
    assert.deepEqual(payers(left(9, 9, 9)), ['one', 'one', 'two']);
    assert.deepEqual(payers(left(9, 1.5, 9)), ['one', 'two', 'two']);
    assert.deepEqual(payers(left(9, 1.5, 1)), ['one', null, null]);
    assert.deepEqual(payers(left(2.5, 9, 9)), ['one', 'one', null]);
  });

  it('the budget of the pool already includes an existing TPU, whichever run pays', () => {
    const spare = aPaid({name: slot(0), phase: 'booting', work: null, charged_to: 'ended'});
    const workers = new Map([[slot(0), spare]]);
    assert.deepEqual(payers(left(1.5, 9, 9), workers), ['one', 'one', null]);
    assert.deepEqual(payers(left(9, 1, 1), workers), [null, null, null]);
  });
});
