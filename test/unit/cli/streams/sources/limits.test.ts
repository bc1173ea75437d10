/** Files that unpack to more than they should. On a parser without limits each takes minutes, or all memory. */
import assert from 'node:assert/strict';
import {gzipSync} from 'node:zlib';
import {openSources} from '../../../../../cli/streams/sources/resolve.ts';
import type {Watch} from '../../../../../cli/streams/sources/row.ts';
import {CliError} from '../../../../../client/text/errors.ts';
import {Folder} from '../../../../support/machine/folder.ts';

const watch: Watch = {stop: new AbortController().signal, moved: () => {}};

const MIB = 1 << 20;
const CASES: {name: string; file: string; bytes: () => string | Buffer; says: RegExp}[] = [
  {
    name: 'a packed line that has no end',
    file: 'a.jsonl.gz',
    bytes: () => gzipSync(Buffer.alloc(3 * MIB, 'x')),
    says: /a\.jsonl\.gz, line 1: it has more than 1 MiB, .* raise --max-row-mib \(up to 500\)/,
  },
  {
    name: 'a packed record of CSV that has no end',
    file: 'a.csv.gz',
    bytes: () => gzipSync(`a,b\n1,"${'x'.repeat(3 * MIB)}`),
    says: /a\.csv\.gz, row 1: it has more than 1 MiB/,
  },
  {
    name: 'a packed element of an array that has no end',
    file: 'a.json.gz',
    bytes: () => gzipSync(`[{"a":1},{"a":"${'x'.repeat(3 * MIB)}`),
    says: /a\.json\.gz, row 2: it has more than 1 MiB/,
  },
  {
    name: 'a packed object, by its unpacked bytes',
    file: 'a.json.gz',
    bytes: () => gzipSync(`{"a":"${'x'.repeat(3 * MIB)}"}`),
    says: /is one object of more than 1 MiB, .* raise --max-row-mib/,
  },
];

describe('a source that is too large', () => {
  const folder = new Folder(afterEach);

  for (const {name, file, bytes, says} of CASES)
    it(`a source that is too large is refused with its name and the limit: ${name}`, async () => {
      folder.put(file, bytes());
      const read = async () => {
        for (const source of await openSources([folder.at(file)], {max_row_mib: 1}, () => {}))
          for await (const rows of source.rows(watch, undefined)) for (const row of rows) void row;
      };
      await assert.rejects(read(), error => {
        assert.ok(error instanceof CliError, (error as Error).stack);
        assert.ok(error.message.startsWith(folder.path), error.message);
        assert.match(error.message, says);
        return true;
      });
    });
});
