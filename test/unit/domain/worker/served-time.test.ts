import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  isServedFor,
  NEVER_SERVED,
  PROOF_S,
  type Served,
  servedBetween,
  withPing,
  withProof,
} from '../../../../shared/domain/worker/served-time.ts';
import {at, T0} from '../../../world/builders.ts';

/** Served time after proofs at these seconds, in this order. */
const proofs = (...seconds: number[]): Served =>
  seconds.reduce((served, second) => withProof(served, T0 + second * 1000), NEVER_SERVED);

describe('served time', () => {
  const cases: [string, Served, number, number][] = [
    ['a proof every minute serves all the time', proofs(0, 60, 120, 180, 240, 300), 0, 300],
    ['proofs 150 s apart serve the time between', proofs(0, 150, 300), 0, 300],
    ['proofs 151 s apart serve nothing between', proofs(0, 151), 0, 0],
    ['a gap of two hours is not served', proofs(0, 60, 7260, 7320), 0, 120],
    ['time from the middle of a gap begins at its end', proofs(0, 60, 7260, 7320), 3600, 60],
    ['time after the newest proof is not served yet', proofs(0, 60), 60, 0],
    ['time before the first proof is not served', proofs(600, 660), 0, 60],
    ['an older proof that comes late changes nothing', proofs(0, 60, 30, 120), 0, 120],
  ];
  for (const [name, served, since, seconds] of cases)
    it(name, () => {
      assert.equal(isServedFor(served, at(since), seconds), false, `not more than ${seconds} s`);
      assert.equal(isServedFor(served, at(since), seconds - 1), true, `more than ${seconds - 1} s`);
    });

  it('a clock that is set back serves time again from the next ping on', () => {
    const ahead = withPing(proofs(0, 60), T0 + 7_260_000);
    const back = [70, 130].reduce((served, second) => withPing(served, T0 + second * 1000), ahead);
    assert.equal(isServedFor(back, at(69), 59), true, 'the time since the clock was set back is served');
    assert.equal(isServedFor(back, at(71), 59), false, 'no lease ends by the time that was set back');
  });

  it('a ping that is stored late changes nothing', () => {
    assert.deepEqual(withPing(proofs(0, 60), T0 + 50_000), proofs(0, 60));
  });

  it('a clock that was set back keeps the fields of a later release', () => {
    const later = {...proofs(0, 60), of_a_later_release: 1};
    assert.equal((withPing(later, T0 - 7_260_000) as typeof later).of_a_later_release, 1);
  });

  it('no time between two instants is served after the newest proof', () => {
    assert.equal(servedBetween(proofs(0, 60), at(0), at(600)), 60_000);
  });

  it('no served time has passed since null', () => {
    assert.equal(isServedFor(proofs(0, 60), null, 0), false);
  });

  it('served time grows with each proof, by at most the time between the proofs', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({min: 1, max: 400}), {minLength: 1, maxLength: 300}), steps => {
        let [served, second, expected] = [proofs(0), 0, 0];
        for (const step of steps) {
          second += step;
          served = withProof(served, T0 + second * 1000);
          if (step <= PROOF_S) expected += step;
        }
        assert.equal(isServedFor(served, at(0), expected), false);
        if (served.gaps.length < 200) assert.equal(isServedFor(served, at(0), expected - 1), true);
        assert.ok(served.gaps.length <= 200, 'the document stays small');
      }),
    );
  });
});
