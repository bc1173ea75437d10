import assert from 'node:assert/strict';
import {type RunHistory, withPoint} from '../../../../shared/domain/records/history.ts';
import {aRun, T0} from '../../../world/builders.ts';

describe('The history of a run', () => {
  it('has few points that span the whole life, at about equal distances', () => {
    let history: RunHistory | null = null;
    const days_s = 30 * 86_400;
    for (let s = 0; s <= days_s; s += 60)
      history = withPoint(
        history,
        aRun({total_tokens: s, cost_usd: s / 1000, preemptions: s}),
        T0 + s * 1000,
      );
    const {at_s, tokens, usd, leases, preemptions, step_s} = history ?? assert.fail();
    assert.ok(at_s.length > 120 && at_s.length <= 288, `${at_s.length} points`);
    assert.deepEqual([usd.length, leases.length], [at_s.length, at_s.length]);
    assert.deepEqual([tokens, preemptions], [at_s, at_s]);
    assert.equal(at_s[0], 0);
    const gaps = at_s.slice(1).map((value, index) => value - (at_s[index] ?? 0));
    assert.ok(Math.max(...gaps) <= 2 * Math.min(...gaps), `${step_s}: ${gaps}`);
    assert.ok(days_s - (at_s.at(-1) ?? 0) <= step_s);
  });

  it('has no preemptions where the run has no count of them', () => {
    assert.deepEqual(withPoint(null, aRun({preemptions: null}), T0).preemptions, []);
  });

  it('stays the same object while its last point is young', () => {
    const first = withPoint(null, aRun(), T0);
    assert.equal(withPoint(first, aRun({total_tokens: 9}), T0 + 1000), first);
    const end = withPoint(first, aRun({total_tokens: 9}), T0 + 1000, {turns: true});
    assert.deepEqual(
      [end.at_s, end.tokens],
      [
        [0, 1],
        [0, 9],
      ],
    );
  });
});
