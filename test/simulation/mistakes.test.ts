import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {ROOT} from '../support/process.ts';
import {findMistake, storedSeeds} from './found.ts';
import {MISTAKES} from './mistakes.ts';

const CLASSES = ['lose', 'double', 'leak', 'overspend', 'stick', 'blame'] as const;

describe('the planted mistakes', () => {
  for (const each of CLASSES)
    it(`of class ${each} are at least ten`, () => {
      assert.ok(MISTAKES.filter(mistake => mistake.class === each).length >= 10);
    });

  it('quote text that its file has exactly once', () => {
    const wrong = MISTAKES.flatMap(({name, edits}) =>
      edits
        .filter(({file, find}) => readFileSync(`${ROOT}${file}`, 'utf8').split(find).length !== 2)
        .map(({file, find}) => `${name}: ${file} has no single ${find}`),
    );
    assert.deepEqual(wrong, []);
  });
});

describe('the simulator finds', () => {
  const seeds = storedSeeds();
  for (const {name} of MISTAKES)
    it(name, async () => {
      const found = await findMistake(name, seeds[name]);
      assert.ok(found !== undefined, 'no world shows the mistake');
    }).timeout(600_000);
});
