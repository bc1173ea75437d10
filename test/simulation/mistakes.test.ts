import assert from 'node:assert/strict';
import {findMistake, storedSeeds} from './found.ts';
import {MISTAKES} from './mistakes.ts';

describe('the simulation finds a planted mistake', () => {
  const seeds = storedSeeds();
  for (const {name} of MISTAKES)
    it(`the simulation finds ${name}`, async () => {
      const found = await findMistake(name, seeds[name]);
      assert.ok(found !== undefined, 'no world shows it');
    }).timeout(600_000);
});
