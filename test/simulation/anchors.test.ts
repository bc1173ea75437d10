import assert from 'node:assert/strict';
import {MISTAKES} from './mistakes.ts';
import {readTexts, Sources} from './planting/anchors.ts';
import {EDITS} from './planting/code.ts';

describe('the edits of the control plane', () => {
  it('have one place each', () => {
    const sources = new Sources(readTexts());
    const mistakes = Object.values(MISTAKES).map(({edits}) => edits);
    for (const edit of [...mistakes, ...Object.values(EDITS)].flat()) sources.splice(edit);
  });
});

describe('an edit', () => {
  const edit = {in: 'three', find: '[1, $X]', replace: '[$X]'};

  it('replaces its place and keeps what the pattern names', () => {
    const text = 'const three: number[] = [1, 2];';
    const splice = new Sources(new Map([['a.ts', text]])).splice(edit);
    assert.equal(text.slice(0, splice.start) + splice.text + text.slice(splice.end), text.replace('1, ', ''));
  });

  it('without a place throws', () => {
    const texts = new Map([['a.ts', 'const three: number[] = [2, 2];']]);
    assert.throws(() => new Sources(texts).find(edit), /three has 0 places of /);
  });

  it('with two places shows both, unless the name decides', () => {
    const texts = new Map([
      ['a.ts', 'const one = [1, 2];'],
      ['b.ts', 'const two = [1, 2];'],
    ]);
    assert.throws(() => new Sources(texts).find(edit), /2 places of .*\n {2}a.ts: .*\n {2}b.ts: /);
    for (const name of ['two', 'b.ts'])
      assert.equal(new Sources(texts).find({...edit, in: name}).file, 'b.ts');
  });
});
