/** docs/rules.md names a test for each of its rules, and each test is there. */
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {readPage} from '../support/doc-blocks.ts';
import {ROOT} from '../support/process.ts';

/** A list of exceptions is no rule. */
const NO_RULES = ['Not counted'];

describe('docs/rules.md', () => {
  const [rules = '', tests = ''] = readPage('docs/rules.md').split('## Which test holds each rule?');
  const rows = [...tests.matchAll(/^\| (.+) \| `(test\/\S+)` \| (.+) \|$/gm)].map(
    ([, rule = '', file = '', title = '']) => ({rule, file, title}),
  );

  it('names a test for each rule', () => {
    const named = new Set(rows.map(({rule}) => rule));
    const bold = [...rules.matchAll(/^- \*\*([^*]+?)\.?\*\*/gm)].map(([, rule = '']) => rule);
    assert.deepEqual(
      bold.filter(rule => !named.has(rule)),
      NO_RULES,
    );
  });

  it('names tests that are there', () => {
    const textOf = (file: string) => readFileSync(ROOT + file, 'utf8').replaceAll("\\'", "'");
    const missing = rows.filter(({file, title}) => !textOf(file).includes(title));
    assert.deepEqual(missing, []);
    assert.ok(rows.length > 70, String(rows.length));
  });
});
