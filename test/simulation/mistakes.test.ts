import assert from 'node:assert/strict';
import {findMistake, storedSeeds} from './found.ts';
import {CLASSES, MISTAKES} from './mistakes.ts';

describe('the planted mistakes', () => {
  for (const [name, mistakes] of Object.entries(CLASSES))
    it(`of class ${name} are at least ten`, () => {
      assert.ok(Object.keys(mistakes).length >= 10);
    });
});

describe('the simulator finds', () => {
  const seeds = storedSeeds();
  // A mistake without a stored seed is searched for in up to 3,000 worlds: at night, or by `npm run simulate -- --find-mistakes`.
  const titleOf = (name: string): string => (name in seeds ? name : `${name} @long`);
  for (const name of Object.keys(MISTAKES))
    it(titleOf(name), async () => {
      const found = await findMistake(name, seeds);
      assert.ok(found !== undefined, 'no world shows the mistake');
    }).timeout(600_000);
});
