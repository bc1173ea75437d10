import assert from 'node:assert/strict';
import {fractionOf, placeAmong, retryIn, shuffled} from '../../../../shared/domain/stream/spread.ts';

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

  it('askers start all over a large run, and at the first stream where one page holds all', () => {
    const places = new Set(ASKERS.map(asker => placeAmong(5000, 20, asker)));
    assert.ok(places.size > 850, String(places.size));
    assert.equal(placeAmong(20, 20, ASKERS[0] ?? ''), undefined);
  });

  it('each stream of a page is the first choice of about as many askers', () => {
    const page = Array.from({length: 20}, (_, index) => ({stream: String(index).padStart(3, '0')}));
    const firsts = new Map<string, number>();
    for (const asker of ASKERS) {
      const first = shuffled(page, asker)[0]?.stream ?? '';
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
