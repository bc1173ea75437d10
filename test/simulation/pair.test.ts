import assert from 'node:assert/strict';
import {simulatePair} from './pair.ts';

const SEEDS = Number(process.env.GLEANER_SIMULATION_PAIRS ?? 4);

describe('two deployments in one project', () => {
  it(`touch no node, budget or stray of each other in ${SEEDS} pairs of worlds`, async () => {
    let [sightings, made] = [0, 0];
    for (let seed = 0; seed < SEEDS; seed++) {
      const outcome = await simulatePair(seed, ['gleaner', 'gleaner-c']);
      assert.deepEqual(outcome.violations, [], `pair ${seed}`);
      sightings += outcome.sightings;
      made += Object.values(outcome.made).filter(count => count > 0).length;
    }
    assert.ok(sightings > 10 * SEEDS && made > SEEDS, `${sightings} sightings, ${made} fleets`);
  }).timeout(600_000);

  it('would touch the nodes of each other under one name', async () => {
    const outcomes = await Promise.all([0, 1, 2].map(seed => simulatePair(seed, ['team-a', 'team-a'])));
    assert.ok(outcomes.some(({violations}) => violations.some(text => /deletes .* of the other/.test(text))));
  }).timeout(600_000);
});
