/** Files that claim more than they hold. On a parser without limits each takes minutes, or all memory. */
import assert from 'node:assert/strict';
import {gzipSync} from 'node:zlib';
import {parquetWriteBuffer} from 'hyparquet-writer';
import {LIMITS} from '../../../../cli/streams/limits.ts';
import {openParquet, parquetRows} from '../../../../cli/streams/sources/parquet.ts';
import {openSources} from '../../../../cli/streams/sources/resolve.ts';
import type {Watch} from '../../../../cli/streams/sources/row.ts';
import {CliError} from '../../../../cli/terminal/errors.ts';
import {Folder} from '../../../support/folder.ts';
import {parquetFile} from './parquet-bytes.ts';

const LEAF = [{name: 'root', children: 1}, {name: 'text'}];
const TEXT = {name: 'text', isOptional: true};
const OPTIONAL = [{name: 'root', children: 1}, TEXT];
const DEEP = 3000;
const nested = Array.from({length: DEEP}, (_, level) => ({name: `c${level}`, children: 1}));
const watch: Watch = {stop: new AbortController().signal, moved: () => {}};

const MIB = 1 << 20;
const CASES: {name: string; file: string; bytes: () => string | Buffer; says: RegExp}[] = [
  {
    name: 'a schema with two billion children',
    file: 'a.parquet',
    bytes: () =>
      parquetFile({schema: [{name: 'root', children: 2 ** 31 - 1}, {name: 'text'}], rows: 1, values: 1}),
    says: /claims a column with 2147483647 columns inside/,
  },
  {
    name: 'a schema of 3,000 levels',
    file: 'a.parquet',
    bytes: () => parquetFile({schema: [...nested, {name: 'text'}], rows: 1, values: 1}),
    says: /nested deeper than 100 levels/,
  },
  {
    name: '400 million rows without a byte',
    file: 'a.parquet',
    bytes: () => parquetFile({schema: LEAF, rows: 4e8, values: 1}),
    says: /claims 400000000 rows in /,
  },
  {
    name: 'ten million rows, and a page with one value',
    file: 'a.parquet',
    bytes: () => parquetFile({schema: LEAF, rows: 1e7, values: 1}),
    says: /claims 10000000 rows, and column "text" has 1 values/,
  },
  {
    name: 'a page with 400 million nulls',
    file: 'a.parquet',
    // Definition levels: four bytes of their length, and one run of zeros.
    bytes: () =>
      parquetFile({
        schema: OPTIONAL,
        rows: 5,
        values: 4e8,
        page: [6, 0, 0, 0, 0x80, 0xa0, 0xbc, 0xfd, 0x05, 0],
      }),
    says: /claims 400000000 values in 10 bytes of a page of 10 bytes/,
  },
  {
    name: 'a page that unpacks to two GiB',
    file: 'a.parquet',
    bytes: () =>
      parquetFile({schema: LEAF, rows: 1, values: 1, unpacked: 2 ** 31 - 1, codec: 2, page: [1, 2, 3]}),
    says: /claims 1 values in 2147483647 bytes of a page of 3 bytes/,
  },
  {
    name: 'a million values, each 90 levels deep',
    file: 'a.parquet',
    bytes: () =>
      parquetFile({
        schema: [...nested.slice(0, 90), TEXT],
        rows: MIB,
        values: MIB,
        page: [5, 0, 0, 0, 0x80, 0x80, 0x80, 0x01, 0],
      }),
    says: /needs memory for more than 67108864 values/,
  },
  {
    name: 'a header of CSV with 60,000 columns',
    file: 'a.csv',
    bytes: () => `${Array.from({length: 60_000}, (_, column) => `c${column}`).join()}\n`,
    says: /has 60000 columns, and the most is 20000/,
  },
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

describe('a source that claims more than it holds', () => {
  const folder = new Folder();
  afterEach(() => folder.end());

  for (const {name, file, bytes, says} of CASES)
    it(`is refused with its name and the limit: ${name}`, async () => {
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

  it('is read where it is only large: all nulls, one page, and a row below the limit', async () => {
    const rows = 1_048_576;
    const run = [0x80, 0x80, 0x80, 0x01, 0]; // 1,048,576 times level 0
    folder.put('a.parquet', parquetFile({schema: OPTIONAL, rows, values: rows, page: [5, 0, 0, 0, ...run]}));
    folder.put('a.jsonl', `${JSON.stringify({text: 'x'.repeat(MIB / 2)})}\n`);
    let found = 0;
    for (const source of await openSources(
      [folder.at('a.parquet'), folder.at('a.jsonl')],
      {max_row_mib: 1},
      () => {},
    ))
      for await (const some of source.rows(watch, undefined)) found += some.length;
    assert.equal(found, rows + 1);
    assert.ok(LIMITS.free_units >= rows);
  });

  it('is left at a signal within a row group of many columns', async () => {
    const columnData = Array.from({length: 40}, (_, column) => ({name: `c${column}`, data: ['x']}));
    const bytes = parquetWriteBuffer({columnData});
    const file = {
      byteLength: bytes.byteLength,
      slice: async (from: number, to?: number) => bytes.slice(from, to),
    };
    const stop = new AbortController();
    const read = async () => {
      const parquet = await openParquet('a.parquet', file);
      setImmediate(() => stop.abort());
      for await (const rows of parquetRows(parquet, {...watch, stop: stop.signal}, undefined)) void rows;
    };
    await assert.rejects(read(), {name: 'AbortError'});
  });
});
