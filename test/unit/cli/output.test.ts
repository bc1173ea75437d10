import assert from 'node:assert/strict';
import {spawnSync} from 'node:child_process';
import {dollarText} from '../../../client/text/format.ts';
import {quoted} from '../../../client/text/output.ts';
import {jsonText, printable} from '../../../shared/contracts/printable.ts';

describe('The text of dollars', () => {
  for (const [usd, text] of [
    [0, '$0.00'],
    [1.236, '$1.24'],
    [0.01, '$0.01'],
    [0.00314, '$0.0031'],
    [0.00000042, '$0.00000042'],
    [12345.6, '$12,345.60'],
  ] as const)
    it(`the text of dollars is ${text} for ${usd}`, () => assert.equal(dollarText(usd), text));
});

/** Escape sequence, C1 control, bidi override, zero-width space, both line separators and a tag character. */
const HOSTILE = '\u001b]0;title\u0007 \u009b2J \u202e \u200b \u2028\u2029 \u{e0041}';
const UNSAFE = /[\p{Cc}\p{Cf}\u2028\u2029]/u;

describe('Output for a terminal', () => {
  it('Output for a terminal contains no control or format character of a name', () => {
    assert.doesNotMatch(printable(HOSTILE), UNSAFE);
    assert.equal(printable('größe 日本 ✓ \u{1f600}'), 'größe 日本 ✓ \u{1f600}');
  });

  it('Output for a terminal is JSON of the same value without control or format characters', () => {
    const text = jsonText({[HOSTILE]: [HOSTILE, '\u007f\u0085']});
    assert.doesNotMatch(text, UNSAFE);
    assert.deepEqual(JSON.parse(text), {[HOSTILE]: [HOSTILE, '\u007f\u0085']});
  });

  it('Output for a terminal quotes a text that a shell reads as several words', () => {
    assert.equal(quoted('/a/b-c_1'), '/a/b-c_1');
    assert.equal(quoted("x'; touch y; '"), "'x'\\''; touch y; '\\'''");
  });

  it('Output for a terminal is the same text in bash after quoting, also with hidden characters', () => {
    for (const text of [HOSTILE, 'a\nb', "it's\u200d `x` $(touch y) \\n", '\u0001f']) {
      const {stdout} = spawnSync('bash', ['-c', `printf %s ${quoted(text)}`], {
        encoding: 'utf8',
        env: {...process.env, LC_ALL: 'C.UTF-8'},
      });
      assert.equal(stdout, text);
      assert.doesNotMatch(quoted(text), UNSAFE);
    }
  });
});
