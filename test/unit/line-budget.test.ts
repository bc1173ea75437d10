import assert from 'node:assert/strict';
import {compareLines, countLines} from '../line-budget.ts';

describe('line budget', () => {
  const text = (lines: number) => Buffer.from('a\n'.repeat(lines));

  it('lines are counted by top folder, without locks, fixtures, golden files and bytes that are no text', () => {
    const lines = countLines([
      ['cli/a.ts', text(3)],
      ['cli/run/b.py', text(4)],
      ['README.md', text(5)],
      ['package-lock.json', text(100)],
      ['cli/run/x.lock', text(100)],
      ['test/fixtures/a.json', text(100)],
      ['test/worker/golden/a.json', text(100)],
      ['docs/a.png', Buffer.from('a\0b\n')],
      ['docs/run.schema.json', text(6)],
    ]);
    assert.deepEqual(lines, {cli: 7, '.': 5, docs: 6});
  });

  it('a folder at its limit passes, and one line more fails by name', () => {
    assert.deepEqual(compareLines({cli: 7}, {cli: 7}).problems, []);
    assert.match(compareLines({cli: 8}, {cli: 7}).problems.join(), /^cli has 1 lines more/);
  });

  it('a folder without a limit fails, and so does a limit without a folder', () => {
    assert.match(compareLines({cli: 1, tools: 1}, {cli: 1}).problems.join(), /^tools has no limit/);
    assert.match(compareLines({cli: 1}, {cli: 1, old: 9}).problems.join(), /^old has a limit/);
  });

  it('each folder has a row with its lines and its limit', () => {
    assert.deepEqual(compareLines({cli: 7}, {cli: 9}).rows, ['lines       7 of       9  cli']);
  });
});
