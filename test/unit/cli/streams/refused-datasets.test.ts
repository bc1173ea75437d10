import assert from 'node:assert/strict';
import {gzipSync} from 'node:zlib';
import {parquetWriteBuffer} from 'hyparquet-writer';
import {type CreateOptions, createStreams} from '../../../../cli/streams/create-streams.ts';
import {Folder} from '../../../support/machine/folder.ts';

const parquet = (columns: object[], rowGroupSize = 1000) =>
  new Uint8Array(parquetWriteBuffer({columnData: columns, rowGroupSize} as never));
const bytes = (text: string, encoding: BufferEncoding = 'utf8') => Buffer.from(text, encoding);

/** As pyarrow writes it, of `text: string, took: duration[us], in: list<struct<t: duration[s]>>, n: int64`. */
const ARROW_SCHEMA = [
  '/////2ABAAAQAAAAAAAKAAwABgAFAAgACgAAAAABBAAMAAAACAAIAAAABAAIAAAABAAAAAQAAAAAAQAAvAAAADwAAAAEAAAA',
  'IP///wAAAQIQAAAAHAAAAAQAAAAAAAAAAQAAAG4AAAAIAAwACAAHAAgAAAAAAAABQAAAAFT///8AAAEMFAAAABgAAAAEAAAA',
  'AQAAABAAAAACAAAAaW4AAET///98////AAABDRQAAAAcAAAABAAAAAEAAAAUAAAABAAAAGl0ZW0AAAAAcP///6j///8AAAES',
  'EAAAABQAAAAEAAAAAAAAAAEAAAB0AAAA1v///wAAAADQ////AAABEhAAAAAcAAAABAAAAAAAAAAEAAAAdG9vawAABgAIAAYA',
  'BgAAAAAAAgAQABQACAAGAAcADAAAABAAEAAAAAAAAQUQAAAAHAAAAAQAAAAAAAAABAAAAHRleHQAAAAABAAEAAQAAAAAAAAA',
].join('');

/** The same of `n: int64, took: duration[us]`, where `n` has metadata and no list of children, as other writers leave it out. */
const ARROW_METADATA = [
  '//////AAAAAQAAAAAAAKAAwABgAFAAgACgAAAAABBAAMAAAACAAIAAAABAAIAAAABAAAAAIAAABYAAAAFAAAABAAFAAIAAYA',
  'BwAMAAAAEAAQAAAAAAABEhAAAAAcAAAABAAAAAAAAAAEAAAAdG9vawAABgAGAAQABgAAAAIAEgAYAAgABgAHAAwAAAAAABQA',
  'EgAAAAAAAQIUAAAATAAAAAgAAAAQAAAAAAAAAAEAAABuAAAAAQAAAAwAAAAIAAwABAAIAAgAAAAQAAAABAAAAAEAAAB2AAAA',
  'AQAAAGsAAAAIAAwACAAHAAgAAAAAAAABQAAAAAAAAAA=',
].join('');

const withArrowSchema = (column: object, value = ARROW_SCHEMA) =>
  new Uint8Array(
    parquetWriteBuffer({columnData: [column], kvMetadata: [{key: 'ARROW:schema', value}]} as never),
  );

const pair = (cell: number) => [[[cell]], [[cell]]];

describe('Datasets with an error', () => {
  const folder = new Folder(afterEach);

  const create = (name: string, content: string | Uint8Array, options: Partial<CreateOptions> = {}) =>
    createStreams([folder.put(name, content)], {
      num_streams: 1,
      output_dir: folder.at('out'),
      check: false,
      ...options,
    });

  const bad: {name: string; file: string; content: string | Uint8Array; options?: object; error: RegExp}[] = [
    {
      name: 'a line that is not JSON',
      file: 'a.jsonl',
      content: '{"text":"a"}\n\n{"text":',
      error: /a\.jsonl, line 3: it is not JSON/,
    },
    {name: 'a line that is no object', file: 'a.jsonl', content: '[1]', error: /line 1: it is a list/},
    {
      name: 'a line that is not UTF-8',
      file: 'a.jsonl',
      content: bytes('{"text":"\xe9"}', 'latin1'),
      error: /line 1: it is not UTF-8/,
    },
    {name: 'CSV that is not UTF-8', file: 'a.csv', content: bytes('a\n\xe9', 'latin1'), error: /not UTF-8/},
    {
      name: 'CSV with a missing value',
      file: 'a.csv',
      content: 'a,b\n1\n',
      error: /expect 2, got 1 on line 2; put .*--delimiter/,
    },
    {name: 'CSV with an open quote', file: 'a.csv', content: 'a\n"x\n', error: /Quote Not Closed/},
    {
      name: 'CSV with a quote inside of a value',
      file: 'a.csv',
      content: 'a\n6" x\n',
      error: /Invalid Opening Quote: .* at line 2.*twice/,
    },
    {
      name: 'CSV with text behind a quote',
      file: 'a.csv',
      content: 'a\n"x"y\n',
      error: /Invalid Closing Quote: .* at line 2/,
    },
    {
      name: 'rows in a list below the key that --field names',
      file: 'a.json',
      content: '{"data":{"rows":[{"text":"a"}]}}',
      options: {field: 'data'},
      error: /no list as "data", but the kind object.* a file of their own/,
    },
    {
      name: 'two objects on one line',
      file: 'a.json',
      content: '{"text":"a"} {"text":"b"}',
      error: /text follows .*; correct it/,
    },
    {name: 'a column twice', file: 'a.csv', content: 'a,a\n1,2', error: /the column "a" twice/},
    {name: 'Parquet without a byte', file: 'a.parquet', content: '', error: /a\.parquet is empty/},
    {name: 'a file that is not Parquet', file: 'a.parquet', content: 'not at all', error: /is not Parquet/},
    {name: 'a cut array', file: 'a.json', content: '[{"a":1},{"b"', error: /after row 1: .*cut off/},
    {name: 'text after an array', file: 'a.json', content: '[{}] x', error: /text follows/},
    {name: 'no JSON at all', file: 'a.json', content: 'hello', error: /starts with neither/},
    {
      name: 'packed rows that are cut off',
      file: 'a.jsonl',
      content: gzipSync('{"text":"a"}').subarray(0, 20),
      error: /Failed to read .*gzip is damaged or cut off .*copy it again/,
    },
    {name: 'an unknown extension', file: 'a.bin', content: 'x', error: /unknown extension: give --format/},
    {
      name: 'an absent column',
      file: 'a.jsonl',
      content: '{"q":"1","a":"2"}',
      options: {column: 'x'},
      error: /line 1: it has no column "x"; its columns are q, a/,
    },
    {
      name: 'an absent column of Parquet',
      file: 'a.parquet',
      content: parquet([{name: 'q', data: ['1'], type: 'STRING'}]),
      options: {template: '{x}'},
      error: /no column "x".*: its columns are q/,
    },
    {
      name: 'a null in a template',
      file: 'a.jsonl',
      content: '{"q":null}',
      options: {template: '{q}'},
      error: /column "q" is null/,
    },
    {
      name: 'a template without a column',
      file: 'a.txt',
      content: 'x',
      options: {template: '{{q}}'},
      error: /--template names no column/,
    },
    {
      name: 'an open bracket',
      file: 'a.txt',
      content: 'x',
      options: {template: '{text} {'},
      error: /character 8/,
    },
    {
      name: 'a column of numbers',
      file: 'a.jsonl',
      content: '{"n":1.5}',
      options: {column: 'n'},
      error: /column "n": it is a number/,
    },
    {
      name: 'one example of an ARC task',
      file: 'a.jsonl',
      content: JSON.stringify({e: [pair(1)]}),
      options: {column: 'e', as: 'arc'},
      error: /1 of at least 2 examples/,
    },
    {
      name: 'a cell above 9',
      file: 'a.jsonl',
      content: JSON.stringify({e: [pair(1), pair(10)]}),
      options: {column: 'e', as: 'arc'},
      error: /example 2 has a cell that is not a digit/,
    },
    {
      name: 'NaN in Parquet',
      file: 'a.parquet',
      content: parquet([{name: 's', data: [1, Number.NaN], type: 'DOUBLE'}]),
      error: /row 2: column "s" is NaN, which JSON cannot hold/,
    },
    {
      name: 'a doubled column of Parquet',
      file: 'a.parquet',
      content: parquet([
        {name: 's', data: [1], type: 'INT32'},
        {name: 's', data: [2], type: 'INT32'},
      ]),
      error: /a\.parquet has the column "s" twice: rename one of them/,
    },
    {
      name: 'text of Parquet that is not UTF-8',
      file: 'a.parquet',
      content: parquet([{name: 't', data: [bytes('ok'), bytes('caf\xe9', 'latin1')], type: 'BYTE_ARRAY'}]),
      error: /row 2: column "t" holds bytes that are not UTF-8 text \(636166e9\)/,
    },
    {
      name: 'a fixed-size binary',
      file: 'a.parquet',
      content: new Uint8Array(
        parquetWriteBuffer({
          columnData: [{name: 'uid', data: [bytes('abcd')]}],
          schema: [
            {name: 'root', num_children: 1},
            {name: 'uid', type: 'FIXED_LEN_BYTE_ARRAY', type_length: 4, repetition_type: 'REQUIRED'},
          ],
        } as never),
      ),
      error: /column "uid" has the type fixed-size binary, whose bytes are not text/,
    },
    {
      name: 'a duration',
      file: 'a.parquet',
      content: withArrowSchema({name: 'took', data: [1_500_000n], type: 'INT64'}),
      error: /column "took" has the type duration, whose unit would be lost/,
    },
    {
      name: 'a duration inside of a list',
      file: 'a.parquet',
      content: withArrowSchema({name: 'in', data: [[{t: 1}]], type: 'JSON'}),
      error: /column "in" has the type duration/,
    },
    {
      name: 'a lone surrogate in the text that a run reads',
      file: 'a.jsonl',
      content: '{"text":"\\ud83d\\ude00 \\\\ud83d","x":"\\ud83d"}\n{"text":"\\ud83d\\uD83D\\ude00"}',
      options: {check: true},
      error: /line 2: text has a lone surrogate, \\ud83d, .*correct the text, or give --no-check/,
    },
    ...[
      {turn: '{"from":"bot","value":"b"}', says: 'has an unknown "from": "bot" .known: system, human, '},
      {turn: '{"from":"gpt","value":null}', says: 'has no value that is a string'},
      {turn: '{"role":"user","content":"b"}', says: 'is not an object with from and value alone, as other'},
    ].flatMap(({turn, says}) =>
      [undefined, 'conversations'].map(column => ({
        name: `the turn ${turn} of a chat of ShareGPT${column ? ' in a column' : ''}`,
        file: 'a.jsonl',
        content: `{"conversations":[{"role":"user","content":"a"}]}\n{"conversations":[{"from":"human","value":"a"},${turn}]}`,
        options: {column, check: true},
        error: new RegExp(`a.jsonl, line 2: conversations\\[1\\] ${says}`),
      })),
    ),
    ...[
      {system: '"s"', says: /conversations\[0\] is a second system message beside system: correct it/},
      {system: '1', says: /conversations has a system beside it that is not a string/},
    ].map(({system, says}) => ({
      name: `the system ${system} beside a chat of ShareGPT with one`,
      file: 'a.jsonl',
      content: `{"conversations":[{"from":"system","value":"a"}],"system":${system}}`,
      options: {check: true},
      error: says,
    })),
    {
      name: 'a lone surrogate in messages',
      file: 'a.json',
      content: '[{"chat":[{"role":"user","content":"\\uDE00"}]}]',
      options: {column: 'chat', check: true},
      error: /row 1: messages has a lone surrogate, \\uDE00/,
    },
    {
      name: 'a key twice, deep inside',
      file: 'a.jsonl',
      content: '{"text":"a"}\n{"text":"b","x":[{"k":1,"\\u006b":2}]}',
      error: /line 2: .*the key "k" is there twice/,
    },
    {
      name: 'a raw newline in a text',
      file: 'a.json',
      content: '[{"t":"a\nb"}]',
      error: /a newline without its escape/,
    },
    {
      name: 'an object with a list of objects',
      file: 'a.json',
      content: '{"version":"1","data":[{"text":"a"},{"text":"b"}]}',
      error: /the list of objects in data: name the list with --field data/,
    },
    {
      name: 'two lists of objects of one length',
      file: 'a.json',
      content: '{"train":[{"text":"a"}],"other":[{"text":"b"}]}',
      error: /in train, other: name the list with --field train/,
    },
    ...Object.entries({
      columns: '{"text":{"0":"a","1":"b"}}',
      index: '{"0":{"text":"a"},"1":{"text":"b"}}',
      list: '{"text":\n["a","b"],"n":[1,2]}',
      split: '{"columns":["a","b"],"index":[0,1],"data":[["x","y"],["z","w"]]}',
      table: '{"schema":{"fields":[]},"data":[{"index":0,"text":"a"}]}',
    }).map(([layout, content]) => ({
      name: `the layout ${layout} of pandas`,
      file: 'a.json',
      content,
      error: new RegExp(`in the layout '${layout}', .* orient='records', lines=True`),
    })),
    ...['sep=|\na|b\n', '"sep=;"\r\na;b\r\n'].map(content => ({
      name: `CSV with the line ${JSON.stringify(content.split(/\r?\n/)[0])}`,
      file: 'a.csv',
      content,
      error: /begins with the line sep= of Excel: delete that line, .* --delimiter/,
    })),
    ...['a,b\r1,"2"\r', 'a,b\n1,2\r3,4\n'].map(content => ({
      name: `CSV with lone carriage returns: ${JSON.stringify(content)}`,
      file: 'a.csv',
      content,
      error: /a\.csv(, line 3,)? has a carriage return alone, .* with tr /,
    })),
    {
      name: 'an absent key',
      file: 'a.json',
      content: '{"data":[]}',
      options: {field: 'rows'},
      error: /no key "rows" .*: its keys are data/,
    },
    {
      name: 'a key of an array',
      file: 'a.json',
      content: '[{"text":"a"}]',
      options: {field: 'rows'},
      error: /is an array, .*leave --field out/,
    },
    {
      name: 'CSV with two possible delimiters',
      file: 'a.csv',
      content: 'a,b;c\n1,2;3\n',
      error: /may have "," or ";" between its columns: .*--delimiter/,
    },
    {
      name: 'a delimiter without CSV',
      file: 'a.jsonl',
      content: '{"text":"a"}',
      options: {delimiter: ';'},
      error: /--delimiter is for CSV/,
    },
    {
      name: 'a kept column that would be the text',
      file: 'a.jsonl',
      content: '{"chat":[{"role":"user","content":"hi"}],"text":"no"}',
      options: {column: 'chat', keep: ['text']},
      error: /--keep text would replace a field of the record, which has messages/,
    },
    {
      name: 'kept columns of whole rows',
      file: 'a.jsonl',
      content: '{"text":"a","id":1}',
      options: {keep: ['id']},
      error: /--keep is for --column and --template/,
    },
    {
      name: 'no field that a run reads',
      file: 'a.csv',
      content: 'q,a\n1,2\n',
      options: {check: true},
      error: /The first record of .*a\.csv has the fields q, a, and none that a run reads by itself/,
    },
    {name: 'no row', file: 'a.csv', content: 'text\n', error: /The sources have no rows/},
  ];
  for (const {name, file, content, options, error} of bad)
    it(`Datasets with an error are refused for ${name}, and no folder is left`, async () => {
      await assert.rejects(create(file, content, {output_dir: folder.at('out/inner'), ...options}), error);
      assert.deepEqual(folder.names(), [file]);
    });

  for (const [name, schema] of Object.entries({
    'beside a duration': ARROW_SCHEMA,
    'of a column with metadata': ARROW_METADATA,
    'of a file with an Arrow schema that is cut off': ARROW_SCHEMA.slice(0, 96),
  }))
    it(`Datasets with an error keep the numbers ${name}`, async () => {
      await create('a.parquet', withArrowSchema({name: 'n', data: [1n], type: 'INT64'}, schema));
      assert.deepEqual(folder.streams('out'), ['{"n":1}\n']);
    });

  it('Datasets with an error are refused for a duration beside a column with metadata', () =>
    assert.rejects(
      create('a.parquet', withArrowSchema({name: 'took', data: [1n], type: 'INT64'}, ARROW_METADATA)),
      /column "took" has the type duration/,
    ));

  it('Datasets with an error are refused for a folder of save_to_disk, with the line of Python that writes Parquet', async () => {
    folder.put('saved/dataset_dict.json', '{"splits": ["train"]}');
    for (const name of ['state.json', 'dataset_info.json', 'data-00000-of-00001.arrow'])
      folder.put(`saved/train/${name}`, '{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}');
    const of = (name: string) =>
      createStreams([folder.at(name)], {num_streams: 1, output_dir: folder.at('out'), recursive: true});
    await assert.rejects(of('saved'), /each split .*load_from_disk\(".*saved"\)\["train"\].to_parquet/);
    for (const name of ['saved/train', 'saved/train/*', 'saved/train/data-00000-of-00001.arrow'])
      await assert.rejects(
        of(name),
        /saved\/train was written by save_to_disk.*load_from_disk\(".*saved\/train"\).to_parquet/,
      );
  });
});
