import assert from 'node:assert/strict';
import {gaps} from './coverage.ts';
import {runSeeds} from './run.ts';
import {simulate} from './world.ts';

const SEEDS = Number(process.env.GLEANER_SIMULATION_SEEDS ?? 16);

describe('simulated worlds', () => {
  it(`${SEEDS} worlds lose no work, repeat no work, leave no node, and show every state and fault`, async () => {
    const {violations, seeds, seen} = await runSeeds({first: 0, seeds: SEEDS});
    const replay = violations.map(
      ({seed, violation}) => `npm run simulate -- --seed ${seed} --trace: ${violation}`,
    );
    assert.deepEqual([seeds, replay], [SEEDS, []]);
    if (SEEDS >= 5000) assert.deepEqual(gaps(seen), [], 'no world showed these states and faults');
  }).timeout(14_400_000);

  it('one seed gives the same world every time @full', async () => {
    const [one, two] = [await simulate(22, {trace: true}), await simulate(22, {trace: true})];
    assert.deepEqual(one, two);
    assert.ok(one.trace.length > 50);
  });
});
