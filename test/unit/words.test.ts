import assert from 'node:assert/strict';
import {findWords} from '../words.ts';

describe('the lint of words', () => {
  const cases: {name: string; text: string; words: string[]}[] = [
    {
      name: 'a word anywhere',
      text: 'const a = 1; // nobody asks, and Somebody answers',
      words: ['nobody', 'Somebody'],
    },
    {name: 'two words together', text: 'streams, of which two wait', words: ['of which']},
    {name: 'a comment that starts with a pronoun', text: '/** What a caller sees. */', words: ['What']},
    {name: 'a Python comment that starts with a pronoun', text: '    # It waits.', words: ['It']},
    {name: 'a comment that starts with a noun', text: '// Items wait. What comes later is free.', words: []},
    {name: 'a name that contains a word', text: 'nobodyWaits()', words: []},
  ];
  for (const {name, text, words} of cases)
    it(`the lint of words reads ${name}`, () => {
      assert.deepEqual(
        findWords(text).map(({word}) => word),
        words,
      );
    });

  it('the lint of words names the line', () => {
    assert.deepEqual(findWords('fine\n\nfor whoever reads'), [{line: 3, word: 'whoever'}]);
  });
});
