import assert from 'node:assert/strict';
import {type Constraint, constraint, dominant, goesOn} from '../../../../shared/domain/records/constraint.ts';
import {at, T0} from '../../../world/builders.ts';

const ZONE = 'us-central1-a';
const soldOut = (changes: Partial<Constraint> = {}) => ({...constraint('zone', ZONE), ...changes});
const stored = {...soldOut(), since_at: at(-60)};

describe('a constraint in a document', () => {
  for (const {name, now_is, since_at} of [
    {name: 'begins now', now_is: constraint('quota', ZONE), since_at: at(0)},
    {name: 'of another zone begins now', now_is: constraint('zone', 'us-east1-c'), since_at: at(0)},
    {
      name: 'that is known to have begun earlier has that time',
      now_is: soldOut({since_at: at(-99)}),
      since_at: at(-99),
    },
    {name: 'that continues keeps its beginning', now_is: soldOut({refusals: 2}), since_at: at(-60)},
  ])
    it(name, () => assert.equal(goesOn(stored, now_is, T0)?.since_at, since_at));

  it('is the same object where nothing changes, and gone where nothing waits', () => {
    assert.equal(goesOn(stored, soldOut(), T0), stored);
    assert.equal(goesOn(stored, undefined, T0), null);
  });

  it('is the first by kind of several', () => {
    assert.equal(dominant([constraint('coming', 'x'), soldOut(), constraint('idle', 'x')])?.kind, 'zone');
  });
});
