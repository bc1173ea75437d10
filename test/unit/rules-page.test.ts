/** docs/inside/rules.md links a file of tests for each of its rules, and docs/inside/security.md one for each threat. `docs.test.ts` checks the links. */
import assert from 'node:assert/strict';
import {readPage} from '../support/docs/doc-blocks.ts';

/** A list of exceptions is no rule. */
const NO_RULES = ['Not counted'];
const LINK = /\[[\w./-]+\]\(\.\.\/\.\.\/(test|terraform\/tests)\/[\w./-]+\)/;

describe('pages that link tests', () => {
  it('docs/inside/rules.md links a test for each rule', () => {
    const [rules = '', tests = ''] = readPage('docs/inside/rules.md').split('## Which test holds each rule?');
    const rows = tests.split('\n').filter(line => /^\| .*test/.test(line) && LINK.test(line));
    const named = new Set(rows.flatMap(row => (row.split(' | ')[1] ?? '').replace(/ \|$/, '').split('; ')));
    const bold = [...rules.matchAll(/^- \*\*([^*]+?)\.?\*\*/gm)].map(([, rule = '']) => rule);
    assert.ok(bold.length > 40, String(bold.length));
    assert.deepEqual(
      bold.filter(rule => !named.has(rule)),
      NO_RULES,
    );
  });

  it('docs/inside/security.md links a test for each threat', () => {
    const [, section = ''] = readPage('docs/inside/security.md').split('## Threats');
    const rows = (section.split('\n## ')[0] ?? '').split('\n').filter(line => line.startsWith('| '));
    const threats = rows.filter(line => !/ \| test \|$/.test(line));
    assert.ok(threats.length > 60, String(threats.length));
    assert.deepEqual(
      threats.filter(row => !LINK.test(row.split(' | ').at(-1) ?? '')),
      [],
    );
  });
});
