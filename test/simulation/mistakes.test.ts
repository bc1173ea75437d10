import assert from 'node:assert/strict';
import {findMistake, storedSeeds} from './found.ts';
import {CLASSES, MISTAKES} from './mistakes.ts';

/** The gate has eight minutes: it plays no world from this seed on. */
const LATER = 10_000;

describe('the planted mistakes', () => {
  for (const [name, mistakes] of Object.entries(CLASSES))
    it(`of class ${name} are at least ten`, () => {
      assert.ok(Object.keys(mistakes).length >= 10);
    });
});

describe('the simulator finds', () => {
  const seeds = storedSeeds();
  // A mistake without a stored seed is searched for in up to 3,000 worlds: at night, or by `npm run simulate -- --find-mistakes`. Mistakes
  // that only later worlds show run at night too.
  const titleOf = (name: string): string => ((seeds[name] ?? LATER) < LATER ? name : `${name} @long`);
  for (const name of Object.keys(MISTAKES))
    it(titleOf(name), async () => {
      const found = await findMistake(name, seeds);
      assert.ok(found !== undefined, 'no world shows the mistake');
    }).timeout(600_000);
});
