import assert from 'node:assert/strict';
import {
  fractionOf,
  placeAmong,
  retryIn,
  shuffled,
  spreadOver,
} from '../../../../shared/domain/stream/spread.ts';

const ASKERS = Array.from({length: 1000}, (_, index) => `tpu-us-central1-a-${index}#1 at 17`);

describe('the spread of askers', () => {
  it('each tenth of all places gets about a tenth of a thousand askers', () => {
    const tenths = Array.from(
      {length: 10},
      (_, tenth) => ASKERS.filter(asker => Math.floor(fractionOf(asker) * 10) === tenth).length,
    );
    assert.ok(
      tenths.every(count => count > 70 && count < 130),
      tenths.join(),
    );
  });

  it('askers start all over a large run, wherever its indexes begin', () => {
    const places = ASKERS.map(asker => Number(placeAmong({first: 20_000, last: 24_999}, asker)));
    assert.ok(new Set(places).size > 850, String(new Set(places).size));
    assert.ok(Math.min(...places) >= 20_000 && Math.max(...places) < 25_000);
  });

  it('small runs are the first choice of about as many askers, and a large run comes before all younger runs', () => {
    const runsOf = (...pending: number[]) =>
      pending.map((streams_pending, index) => ({run: `r${index}`, streams_pending}));
    const firstsOf = (runs: ReturnType<typeof runsOf>) =>
      Map.groupBy(ASKERS, asker => spreadOver(runs, asker)[0]?.run ?? '');
    const small = firstsOf(runsOf(...Array.from({length: 150}, () => 1)));
    assert.equal(small.size, 100, 'the runs of the first hundred streams');
    assert.ok(Math.max(...[...small.values()].map(({length}) => length)) < 30);
    assert.deepEqual([...firstsOf(runsOf(5000, 1, 5000)).keys()], ['r0']);
    const both = firstsOf(runsOf(20, 5000));
    assert.ok(Math.abs((both.get('r0')?.length ?? 0) - 200) < 50, String(both.get('r0')?.length));
  });

  it('an asker gets every run once, the youngest runs in their order', () => {
    const runs = Array.from({length: 300}, (_, index) => ({run: `r${index}`, streams_pending: 0}));
    const order = spreadOver(runs, 'an asker');
    assert.equal(new Set(order).size, 300);
    assert.deepEqual(order.slice(100), runs.slice(100));
  });

  it('each stream of a page is the first choice of about as many askers', () => {
    const page = Array.from({length: 20}, (_, index) => ({stream: String(index).padStart(3, '0')}));
    const firsts = new Map<string, number>();
    for (const asker of ASKERS) {
      const first = shuffled(page, asker, ({stream}) => stream)[0]?.stream ?? '';
      firsts.set(first, (firsts.get(first) ?? 0) + 1);
    }
    assert.ok(firsts.size === 20 && Math.max(...firsts.values()) < 90, [...firsts.values()].join());
  });

  it('askers wait for different tenths of a second', () => {
    const seconds = ASKERS.map(asker => retryIn(2, 5, asker));
    assert.ok(Math.min(...seconds) >= 2 && Math.max(...seconds) < 5);
    assert.ok(new Set(seconds).size === 30, 'tenths from 2.0 to 4.9');
  });
});
