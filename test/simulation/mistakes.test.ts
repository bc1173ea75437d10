import assert from 'node:assert/strict';
import {CONDITIONS} from './conditions/conditions.ts';
import {CLASSES, MISTAKES} from './mistakes.ts';
import {spliceAll} from './planting/anchors.ts';
import {simulate} from './world.ts';

/** Worlds of each condition. A mistake that none of them shows needs a condition that shows it sooner, not more worlds. */
const WORLDS = Number(process.env.GLEANER_CONDITION_WORLDS ?? 5);

describe('the planted mistakes', () => {
  for (const [name, mistakes] of Object.entries(CLASSES))
    it(`of class ${name} are at least ten`, () => {
      assert.ok(Object.keys(mistakes).length >= 10);
    });
});

describe('the simulator', () => {
  for (const [name, condition] of Object.entries(CONDITIONS))
    it(`finds nothing in every fifth world with the condition ${name}`, async () => {
      for (let seed = 0; seed < WORLDS; seed += 5)
        assert.equal((await simulate(seed, {condition})).violation, undefined, `seed ${seed}`);
    });

  for (const [name, {shown_by, edits}] of Object.entries(MISTAKES)) {
    const condition = CONDITIONS[shown_by];
    it(`finds ${name} (${shown_by})`, async () => {
      const mistake = spliceAll(edits);
      for (let seed = 0; seed < WORLDS; seed++)
        if ((await simulate(seed, {condition, mistake})).violation !== undefined) return;
      assert.fail(`none of ${WORLDS} worlds shows it`);
    });
  }
});
