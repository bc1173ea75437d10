import assert from 'node:assert/strict';
import {breaks, findMistake, storedSeeds} from './found.ts';
import {CLASSES, MISTAKES} from './mistakes.ts';
import {simulate} from './world.ts';

describe('the planted mistakes', () => {
  for (const [name, mistakes] of Object.entries(CLASSES))
    it(`of class ${name} are at least ten`, () => {
      assert.ok(Object.keys(mistakes).length >= 10);
    });
});

describe('the simulator', () => {
  const seeds = storedSeeds();

  // A mistake without a stored seed is searched for in up to 3,000 worlds: at night, or by `npm run simulate -- --find-mistakes`.
  for (const name of Object.keys(MISTAKES))
    it(`finds ${name}${name in seeds ? '' : ' @long'}`, async () => {
      const seed = seeds[name];
      const isFound = seed !== undefined && (await breaks(seed, name));
      assert.ok(isFound || (await findMistake(name, seeds)) !== undefined, 'no world shows the mistake');
    }).timeout(600_000);

  it('finds nothing in the same worlds without their mistakes @long', async () => {
    for (const seed of new Set(Object.values(seeds)))
      assert.equal((await simulate(seed)).violation, undefined, `seed ${seed}`);
  }).timeout(600_000);
});
