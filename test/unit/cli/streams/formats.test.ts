import assert from 'node:assert/strict';
import {gzipSync} from 'node:zlib';
import {parquetWriteBuffer} from 'hyparquet-writer';
import {type CreateOptions, createStreams} from '../../../../cli/streams/create-streams.ts';
import {Folder} from '../../../support/machine/folder.ts';

const parquet = (columns: object[], rowGroupSize = 1000) =>
  new Uint8Array(parquetWriteBuffer({columnData: columns, rowGroupSize} as never));
const bytes = (text: string, encoding: BufferEncoding = 'utf8') => Buffer.from(text, encoding);

describe('Datasets as records of streams', () => {
  const folder = new Folder(afterEach);

  const recordsOf = async (name: string, content: Uint8Array, options: Partial<CreateOptions> = {}) => {
    const file = folder.put(name, content);
    // The format alone is the subject, not the field that a run reads.
    await createStreams([file], {num_streams: 1, output_dir: folder.at('out'), check: false, ...options});
    return folder
      .streams('out')
      .join('')
      .split('\n')
      .slice(0, -1)
      .map(line => JSON.parse(line));
  };

  const pair = (cell: number) => [[[cell]], [[cell]]];
  const good: {name: string; file: string; content: Uint8Array; options?: object; records: object[]}[] = [
    {
      name: 'CSV with quotes, commas and newlines in values',
      file: 'a.csv',
      content: bytes('\ufeffq,a\r\n"one ""two"", three","line\nbreak"\r\n,last'),
      records: [
        {q: 'one "two", three', a: 'line\nbreak'},
        {q: '', a: 'last'},
      ],
    },
    {name: 'packed CSV', file: 'a.csv.gz', content: gzipSync('q\n1\n'), records: [{q: '1'}]},
    {name: 'tabs', file: 'a.tsv', content: bytes('q\ta\n1,5\t2\n'), records: [{q: '1,5', a: '2'}]},
    {
      name: 'text without its blank lines and carriage returns',
      file: 'a.txt',
      content: bytes('\ufeffone\r\n\r\n  two\nthree'),
      records: [{text: 'one'}, {text: '  two'}, {text: 'three'}],
    },
    {
      name: 'packed JSON lines',
      file: 'a.jsonl.gz',
      content: gzipSync('{"text":"é"}'),
      records: [{text: 'é'}],
    },
    {
      name: 'a JSON array over many lines',
      file: 'a.json',
      content: bytes('\ufeff [\n {"text": "a ] } \\" , b",\n "x": [1, {"y": null}]}\n ,{}]\n'),
      records: [{text: 'a ] } " , b', x: [1, {y: null}]}, {}],
    },
    {
      name: 'JSON lines under the name .json',
      file: 'a.json',
      content: bytes('{"text":"a"}\n{"text":"b"}\n'),
      records: [{text: 'a'}, {text: 'b'}],
    },
    {
      name: 'Parquet of several row groups with nulls, 64-bit integers and dates',
      file: 'a.parquet',
      content: parquet(
        [
          {name: 'text', data: ['a', null, 'c', 'd', 'e'], type: 'STRING', nullable: true},
          {name: 'n', data: [1n, 2n, 3n, 4n, 9007199254740993n], type: 'INT64'},
        ],
        2,
      ),
      records: [
        {text: 'a', n: 1},
        {text: null, n: 2},
        {text: 'c', n: 3},
        {text: 'd', n: 4},
        // JSON.parse rounds.
        {text: 'e', n: 9007199254740992},
      ],
    },
    {
      name: 'a nested column of Parquet',
      file: 'a.parquet',
      content: parquet([{name: 'm', data: [{role: 'user', content: ['é', 'b']}], type: 'JSON'}]),
      records: [{m: {role: 'user', content: ['é', 'b']}}],
    },
    {
      name: 'a column of text',
      file: 'a.csv',
      content: bytes('q,a\n1,2\n'),
      options: {column: 'a'},
      records: [{text: '2'}],
    },
    {
      name: 'a column of messages',
      file: 'a.jsonl',
      content: bytes('{"chat":[{"role":"user","content":"hi"}],"x":1}'),
      options: {column: 'chat'},
      records: [{messages: [{role: 'user', content: 'hi'}]}],
    },
    {
      name: 'a column of token ids',
      file: 'a.jsonl',
      content: bytes('{"ids":[1,2,3]}'),
      options: {column: 'ids'},
      records: [{tokens: [1, 2, 3]}],
    },
    {
      name: 'a column of messages with their tools, and columns to keep',
      file: 'a.jsonl',
      content: bytes(
        '{"chat":[{"role":"user","content":"hi"}],"id":7,"tools":[{"name":"f"}],"chat_template_kwargs":{"x":1},"y":0}',
      ),
      options: {column: 'chat', keep: ['id', 'tools']},
      records: [
        {
          messages: [{role: 'user', content: 'hi'}],
          tools: [{name: 'f'}],
          chat_template_kwargs: {x: 1},
          id: 7,
        },
      ],
    },
    {
      name: 'a column of chats of ShareGPT, with what changes their text',
      file: 'a.jsonl',
      content: bytes(
        '{"chat":[{"from":"system","value":"s"},{"from":"tool","value":"t"}],"continue_final_message":true,"tools":null}',
      ),
      options: {column: 'chat'},
      records: [
        {
          conversations: [
            {from: 'system', value: 's'},
            {from: 'tool', value: 't'},
          ],
          continue_final_message: true,
        },
      ],
    },
    ...[undefined, 'conversations'].map(column => ({
      name: `chats of ShareGPT as JSON in CSV, with their system${column ? ' by --column' : ''}`,
      file: 'a.csv',
      content: bytes(
        `conversations,system,tools\n"[{""from"":""human"",""value"":""hi""}]",[1],"[{""name"":""f""}]"\n`,
      ),
      options: {column},
      records: [{conversations: [{from: 'human', value: 'hi'}], system: '[1]', tools: [{name: 'f'}]}],
    })),
    ...[undefined, 'messages'].map(column => ({
      name: `JSON lines with messages as text${column ? ' by --column' : ''}`,
      file: 'a.jsonl',
      content: bytes('{"messages":"[{\\"role\\":\\"user\\",\\"content\\":\\"hi\\"}]","tools":""}'),
      options: {column},
      records: [{messages: [{role: 'user', content: 'hi'}]}],
    })),
    {
      name: 'a record of ShareGPT in a JSON file',
      file: 'a.json',
      content: bytes('{"conversations":[{"from":"human","value":"hi"}],"notes":[{"by":"me"}]}'),
      records: [{conversations: [{from: 'human', value: 'hi'}], notes: [{by: 'me'}]}],
    },
    {
      name: 'a column of messages with a call of tools and no content',
      file: 'a.jsonl',
      content: bytes('{"chat":[{"role":"assistant","tool_calls":[{"id":"1"}]}]}'),
      options: {column: 'chat'},
      records: [{messages: [{role: 'assistant', tool_calls: [{id: '1'}]}]}],
    },
    {
      name: 'a column of messages with the text of their tools in Parquet',
      file: 'a.parquet',
      content: parquet([
        {name: 'chat', data: [[{role: 'user', content: 'hi'}]], type: 'JSON'},
        {name: 'tools', data: ['[{"name":"f"}]'], type: 'STRING'},
        {name: 'other', data: [1], type: 'INT32'},
      ]),
      options: {column: 'chat'},
      records: [{messages: [{role: 'user', content: 'hi'}], tools: [{name: 'f'}]}],
    },
    {
      name: 'a record with lists in a JSON file',
      file: 'a.json',
      content: bytes('{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yo"}]}'),
      records: [
        {
          messages: [
            {role: 'user', content: 'hi'},
            {role: 'assistant', content: 'yo'},
          ],
        },
      ],
    },
    {
      name: 'a record of token ids in a JSON file',
      file: 'a.json',
      content: bytes('{"tokens":[1,2,3]}'),
      records: [{tokens: [1, 2, 3]}],
    },
    {
      name: 'CSV with columns of numbers as names, in order',
      file: 'a.csv',
      content: bytes('10,2,__proto__\na,b,c\n'),
      options: {template: '{__proto__}{10}', keep: ['2']},
      records: [{text: 'ca', '2': 'b'}],
    },
    {
      name: 'a template with brackets and values that are no text',
      file: 'a.jsonl',
      content: bytes('{"q":"why","n":[1,2]}'),
      options: {template: '{{{q}}} {n}\n'},
      records: [{text: '{why} [1,2]\n'}],
    },
    {
      name: 'examples as ARC tasks whose last example is the test',
      file: 'a.jsonl',
      content: bytes(`\n${JSON.stringify({examples: [pair(1), pair(2), {input: [[3]], output: [[4]]}]})}`),
      options: {column: 'examples', as: 'arc'},
      records: [
        {
          task_id: 'task_00000000',
          train: [
            {input: [[1]], output: [[1]]},
            {input: [[2]], output: [[2]]},
          ],
          test: [{input: [[3]]}],
        },
      ],
    },
  ];
  for (const {name, file, content, options, records} of good)
    it(`Datasets as records of streams are read from ${name}`, async () =>
      assert.deepEqual(await recordsOf(file, content, options), records));

  it('number the ARC tasks by their rows, whatever the range is', async () => {
    const lines = Array.from({length: 12}, () => JSON.stringify({examples: [pair(1), pair(2)]}));
    const options = {column: 'examples', as: 'arc' as const, start_index: 10};
    const tasks = await recordsOf('a.jsonl', bytes(lines.join('\n')), options);
    assert.deepEqual(
      tasks.map(task => task.task_id),
      ['task_0000000a', 'task_0000000b'],
    );
  });

  it('Datasets as records of streams are read from the files of a folder or pattern, in the order of their names', async () => {
    for (const name of ['b', 'a', 'c']) folder.put(`in/${name}.txt`, name);
    folder.put('in/.hidden.txt', 'no');
    for (const [index, source] of ['in', 'in/*.txt'].entries()) {
      await createStreams([folder.at(source)], {num_streams: 1, output_dir: folder.at(`out${index}`)});
      assert.deepEqual(folder.streams(`out${index}`), ['{"text":"a"}\n{"text":"b"}\n{"text":"c"}\n']);
    }
  });

  it('Datasets as records of streams are read from the folders inside of a folder, and skipped files are named', async () => {
    for (const name of ['b.txt', 'sub/a.txt', 'README.md', '.hidden.txt', 'sub/deep/c.txt'])
      folder.put(`in/${name}`, name);
    const said: string[] = [];
    const say = (line: string) => said.push(line);
    const output = (name: string) => ({num_streams: 1, output_dir: folder.at(name)});
    await createStreams([folder.at('in')], output('out0'), {say});
    assert.deepEqual(folder.streams('out0'), ['{"text":"b.txt"}\n']);
    assert.match(
      said.join('\n'),
      /skipped 2 files \(\.hidden\.txt, README\.md\) and 1 folder \(sub\); --recursive/,
    );
    await createStreams([folder.at('in')], {...output('out1'), recursive: true}, {say});
    assert.deepEqual(folder.streams('out1'), [
      '{"text":"b.txt"}\n{"text":"sub/a.txt"}\n{"text":"sub/deep/c.txt"}\n',
    ]);
  });

  for (const {name, content, options, says} of [
    {
      name: 'a.jsonl',
      content: '{"prompt":"p","messages":[]}',
      options: {},
      says: /a run takes prompt: .*--column/,
    },
    {name: 'a.txt', content: 'a', options: {}, says: /each line .* is a sample/},
  ])
    it(`Datasets as records of streams say of ${name} what is taken: ${says.source}`, async () => {
      const said: string[] = [];
      const output = {num_streams: 1, output_dir: folder.at('out'), check: false, ...options};
      await createStreams([folder.put(name, content)], output, {say: line => said.push(line)});
      assert.match(said.join('\n'), says);
    });

  it('Datasets as records of streams are refused from a folder with files of different formats', async () => {
    folder.put('in/a.txt', 'a');
    folder.put('in/a.csv', 'a');
    const made = createStreams([folder.at('in')], {num_streams: 1, output_dir: folder.at('out')});
    await assert.rejects(made, /mixes files of different formats/);
  });
});
