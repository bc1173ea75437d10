import assert from 'node:assert/strict';
import {existsSync, readFileSync} from 'node:fs';
import {fileURLToPath} from 'node:url';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

type Row = {threat: string; file: string; title: string};

/** Rows of the table of threats: threat, defence, and the file and title of a test. */
function rowsOf(text: string): Row[] {
  const [, section = ''] = text.split('## Threats');
  const table = (section.split('\n## ')[0] ?? '').split('\n');
  const lines = table.filter(line => line.startsWith('| ') && !/ \| test \|$/.test(line));
  return lines.map(line => {
    const cells = line.slice(2, -2).split(' | ');
    const [threat = ''] = cells;
    const test = cells.at(-1) ?? '';
    const [, file = '', title = ''] = /^`([^`]+)`: (.+)$/.exec(test) ?? [];
    return {threat, file, title};
  });
}

/** Tests that the table names and that do not exist. */
function missing(rows: Row[]): Row[] {
  return rows.filter(({file, title}) => {
    if (file === '' || !existsSync(ROOT + file)) return true;
    const text = readFileSync(ROOT + file, 'utf8');
    return !(file.endsWith('.py') ? text.includes(`def ${title}(`) : text.includes(title));
  });
}

describe('the table of threats', () => {
  const rows = rowsOf(readFileSync(`${ROOT}docs/security.md`, 'utf8'));

  it('names a test of this repository in each row', () => {
    assert.ok(rows.length > 20, String(rows.length));
    assert.deepEqual(missing(rows), []);
  });

  it('would not pass with a test that does not exist', () => {
    const file = 'test/unit/security-doc.test.ts';
    const planted = [
      '| a threat | a defence | `test/unit/no-such.test.ts`: a title |',
      '| a threat | a defence | `test/worker/test_api.py`: test_nothing |',
      '| a threat | a defence | none |',
    ];
    for (const line of planted) {
      const found = rowsOf(`## Threats\n\n| threat | defence | test |\n|---|---|---|\n${line}\n`);
      assert.equal(missing(found).length, 1, line);
    }
    assert.deepEqual(missing([{threat: '', file, title: 'the table of threats'}]), []);
  });
});
