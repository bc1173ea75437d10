/** Values that readers of data sets change: text, order and precision stay, in every format. */
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {readFileSync} from 'node:fs';
import {gzipSync} from 'node:zlib';
import {parquetWriteBuffer} from 'hyparquet-writer';
import {type CreateOptions, createStreams} from '../../../../cli/streams/create-streams.ts';
import {JsonError, jsonKind, jsonValue} from '../../../../cli/streams/sources/json-text.ts';
import {Folder} from '../../../support/machine/folder.ts';
import {ROOT} from '../../../support/machine/process.ts';

const ONE_LINE = [
  ...[' spaces ', '\ufeffmark', '\ufeff\ufeffmarks', 'a "quote"'],
  ...["l'été 😀", '1.0', '00123', '-0', 'null', 'NaN'],
];
const TEXTS = [
  ...ONE_LINE,
  'tab\there',
  'semi;colon, comma|bar',
  '\u2028line\u0085',
  '\u0000\u001f',
  'two\nlines',
  'two\r\nlines',
  '\\n',
];
/** Source texts of JSON. */
const VALUES = [
  ...['1.0', '-0.0', '1e400', '0.10', '1E5', '12345678901234567890', '-9007199254740993', 'null', 'true'],
  ...['"\\u00e9\\ud83d\\ude00\\/"', '"\\ud800"', '"\ufeff"', '[1, 2.50, []]', 'NaN', '-Infinity', '{}'],
  '{"z":1.0,"10":{"10":"ten","2":[1E2]},"2":"two","__proto__":1}',
];

const quoted = (value: string) => `"${value.replaceAll('"', '""')}"`;
const parquet = (columnData: object[]) => new Uint8Array(parquetWriteBuffer({columnData} as never));

describe('Hard values', () => {
  const folder = new Folder(afterEach);

  const linesOf = async (
    name: string,
    content: string | Uint8Array,
    options: Partial<CreateOptions> = {},
  ) => {
    await createStreams([folder.put(name, content)], {
      num_streams: 1,
      output_dir: folder.at('out'),
      check: false,
      ...options,
    });
    return folder.streams('out').join('').split('\n').slice(0, -1);
  };

  const textFiles: Record<string, (texts: string[]) => string | Uint8Array> = {
    'a.jsonl': texts => texts.map(text => `{"text":${JSON.stringify(text)}}`).join('\r\n'),
    'packed.jsonl': texts => gzipSync(texts.map(text => `{"text":${JSON.stringify(text)}}\n`).join('')),
    'array.json': texts => `[${texts.map(text => `\n {"text": ${JSON.stringify(text)}}`).join()}\n]`,
    'a.csv': texts => `id,text\n${texts.map((text, id) => `${id},${quoted(text)}`).join('\n')}`,
    'mixed.csv': texts =>
      `id;text\r\n${texts.map((text, id) => `${id};${quoted(text)}${id % 2 ? '\n' : '\r\n'}`).join('')}`,
    'a.tsv': texts => `\ufeffid\ttext\n${texts.map((text, id) => `${id}\t${quoted(text)}`).join('\n')}`,
    'a.parquet': texts => parquet([{name: 'text', data: texts, type: 'STRING'}]),
  };
  for (const [name, write] of Object.entries(textFiles))
    it(`Hard values are the same texts in ${name}`, async () => {
      const lines = await linesOf(name, write(TEXTS), {column: 'text'});
      assert.deepEqual(
        lines.map(line => JSON.parse(line)),
        TEXTS.map(text => ({text})),
      );
    });

  it('Hard values are the same texts in lines of text', async () => {
    const lines = await linesOf('a.txt', `\ufeff${ONE_LINE.join('\r\n')}`);
    assert.deepEqual(
      lines,
      ONE_LINE.map(text => JSON.stringify({text})),
    );
  });

  const rows = VALUES.map(value => `{"id":"${'x'}","v":${value}}`);
  const valueFiles: Record<string, {content: string; options?: Partial<CreateOptions>}> = {
    'lines.jsonl': {content: rows.join('\n')},
    'array.json': {content: `[${rows.join(',\n')}]`},
    'field.json': {content: `{"version":1,"rows":[${rows.join()}]}`, options: {field: 'rows'}},
  };
  it("keep their source text in every layout of JSON, which Python's json reads as it reads the source", async () => {
    const pairs: [string, string][] = [];
    for (const [name, {content, options}] of Object.entries(valueFiles)) {
      const lines = await linesOf(name, content, {...options, column: 'id', keep: ['v'], force: true});
      assert.deepEqual(
        lines,
        VALUES.map(value => `{"text":"x","v":${value}}`),
        name,
      );
      pairs.push(...lines.map((line, at): [string, string] => [VALUES[at] ?? '', line]));
      // Without a column, the lines are the rows.
      assert.deepEqual(await linesOf(name, content, {...options, force: true}), rows, name);
    }
    const script = `import json, sys
exact = dict(parse_float=str, parse_int=str, parse_constant=str, object_pairs_hook=list)
for value, line in json.load(sys.stdin):
    assert json.loads(line, **exact)[1][1] == json.loads(value, **exact), (value, line)`;
    execFileSync('python3', ['-c', script], {input: JSON.stringify(pairs)});
  });

  it("are JSON where Python's json, with the rule of the worker, reads an object", () => {
    const objects = [
      '{"a":1.0,"b":[1,2,{"c":null}],"d":"x\\u00e9\\n"}',
      '{"text":"é😀","n":NaN,"i":-Infinity,"e":1E5,"k" : true }',
      '{"a":{"b":{"c":[[],{}]}},"a2":-0,"c":0.5e+3}',
    ];
    // Each text lacks a character of an object, or has another one in its place.
    const texts = objects.flatMap(object =>
      [...object].flatMap((_, at) =>
        ['', '"', ',', '0', '-', 'a', '}', '\n', '\ufeff'].map(
          other => object.slice(0, at) + other + object.slice(at + 1),
        ),
      ),
    );
    const script = `import json, sys
def once(pairs):
    if len(dict(pairs)) < len(pairs): raise ValueError
    return dict(pairs)
def verdict(text):
    try: return isinstance(json.loads(text, object_pairs_hook=once), dict)
    except ValueError: return False
json.dump([verdict(text) for text in json.load(sys.stdin)], sys.stdout)`;
    const python = JSON.parse(
      execFileSync('python3', ['-c', script], {input: JSON.stringify(texts)}).toString(),
    );
    const isObject = (text: string) => {
      try {
        return jsonKind(jsonValue(text)) === 'object';
      } catch (error) {
        assert.ok(error instanceof JsonError);
        return false;
      }
    };
    for (const [at, text] of texts.entries()) assert.equal(isObject(text), python[at], JSON.stringify(text));
    assert.ok(python.includes(true) && python.includes(false));
  });

  it('Hard values of Parquet are those of pyarrow', async () => {
    const file = `${ROOT}test/fixtures/hard-values.parquet`;
    await createStreams([file], {num_streams: 1, output_dir: folder.at('out')});
    assert.deepEqual(folder.streams('out'), [readFileSync(file.replace(/parquet$/, 'jsonl'), 'utf8')]);
  });

  for (const {template, texts} of [
    {template: '{text} costs {price}', texts: ['\ufeffThe first line costs 4.35', ' costs 1.10']},
    {template: '{day} {t_ms}{{', texts: ['2024-02-29 01:02:03{', '0001-01-01 23:59:59{']},
    {template: '{at_us}', texts: ['2023-11-14T22:13:20.123456', '0001-01-01T00:00:00']},
    {
      template: '{json} {map}',
      texts: [
        '{"z":1.0,"10":12345678901234567890,"2":{"10":[],"2":null}} {"z":1,"10":null,"2":4611686018427387904}',
        '1.0 {}',
      ],
    },
    {
      template: '{f64} {struct}',
      texts: ['1.0 {"z":1.0,"10":"ten","2":[2]}', '-0.0 {"z":null,"10":null,"2":null}'],
    },
  ])
    it(`Hard values are written as people write them in the template ${template}`, async () => {
      const options = {num_streams: 1, output_dir: folder.at('out'), template, max_samples: 2};
      await createStreams([`${ROOT}test/fixtures/hard-values.parquet`], options);
      const lines = (folder.streams('out')[0] ?? '').split('\n').slice(0, -1);
      assert.deepEqual(
        lines.map(line => JSON.parse(line).text),
        texts,
      );
    });
});
