import assert from 'node:assert/strict';
import {Lines} from '../../../client/text/output-parts.ts';

describe('Lines of an output in parts', () => {
  it('lines of an output in parts are whole, however the parts cut lines and characters', () => {
    const bytes = Buffer.from('one\nzwölf\r\n 50 %\r100 %\n\ta\n\nlast');
    for (let cut = 0; cut <= bytes.length; cut++) {
      const found: string[] = [];
      const lines = new Lines(line => found.push(line));
      lines.add(bytes.subarray(0, cut));
      lines.add(bytes.subarray(cut));
      lines.end();
      assert.deepEqual(found, ['one', 'zwölf', '100 %', '    a', '', 'last'], `cut at ${cut}`);
    }
  });
});
