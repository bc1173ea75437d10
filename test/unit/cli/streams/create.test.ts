import assert from 'node:assert/strict';
import {createHash} from 'node:crypto';
import {rmSync} from 'node:fs';
import fc from 'fast-check';
import {parquetWriteBuffer} from 'hyparquet-writer';
import {type CreateOptions, createStreams} from '../../../../cli/streams/create-streams.ts';
import {positionsOf} from '../../../../cli/streams/permutation.ts';
import {openSpool} from '../../../../cli/streams/spool.ts';
import {answers} from '../../../../client/json/index.ts';
import {Folder} from '../../../support/machine/folder.ts';

const USER = '{"role":"user","content":"hi"}';

describe('The creation of streams', () => {
  const folder = new Folder(afterEach);

  const create = (sources: string[], options: Partial<CreateOptions> = {}, say?: (line: string) => void) =>
    createStreams(
      sources.map(source => folder.at(source)),
      {num_streams: 1, output_dir: folder.at('out'), ...options},
      {say},
    );
  const rows = (count: number) => Array.from({length: count}, (_, index) => `{"text":"row ${index}"}`);

  it('the creation of streams puts every row of the range into exactly one stream, in order, under every combination of options', async () => {
    const some = (least: number, most: number) =>
      fc.option(fc.integer({min: least, max: most}), {nil: undefined});
    const choice = fc.record({
      files: fc.array(fc.integer({min: 0, max: 12}), {minLength: 1, maxLength: 3}),
      num_streams: fc.integer({min: 1, max: 6}),
      max_samples: some(1, 40),
      max_samples_per_stream: some(1, 8),
      start_index: some(0, 20),
      end_index: some(0, 40),
      shuffle_seed: some(0, 3),
    });
    let number = 0;
    await fc.assert(
      fc.asyncProperty(choice, async ({files, ...options}) => {
        const id = `case-${number++}`;
        const all = rows(files.reduce((sum, count) => sum + count, 0));
        let at = 0;
        const names = files.map((count, index) => {
          const lines = all.slice(at, at + count);
          at += count;
          folder.put(`${id}/${index}.jsonl`, lines.join('\n'));
          return `${id}/${index}.jsonl`;
        });
        const range = all.slice(options.start_index ?? 0, options.end_index);
        const {
          num_streams: streams,
          max_samples_per_stream: each = Infinity,
          max_samples = Infinity,
        } = options;
        const samples = Math.min(range.length, max_samples, each * streams);
        const made = create(names, {...options, output_dir: folder.at(`${id}/out`)});
        if (samples < streams) return assert.rejects(made, /cannot fill|have no rows/);
        await made;
        const contents = folder.streams(`${id}/out`).map(text => text.split('\n').slice(0, -1));
        const sizes = contents.map(lines => lines.length);
        const found = contents.flat();
        assert.equal(found.length, samples);
        assert.deepEqual(
          sizes,
          sizes.toSorted((a, b) => b - a),
          'the remainder is not in the first streams',
        );
        assert.ok((sizes[0] ?? 0) - (sizes.at(-1) ?? 0) <= 1);
        if (options.shuffle_seed === undefined) assert.deepEqual(found, range.slice(0, samples));
        assert.equal(new Set(found).size, samples);
        for (const line of found) assert.ok(range.includes(line), line);
      }),
      {numRuns: 40},
    );
  });

  it('the creation of streams shuffles by the seed: the same order again, and another one for another seed', async () => {
    folder.put('in.jsonl', rows(200).join('\n'));
    const order = async (shuffle_seed: number, output: string) => {
      await create(['in.jsonl'], {shuffle_seed, output_dir: folder.at(output)});
      return folder.streams(output);
    };
    const first = await order(1, 'a');
    assert.deepEqual(await order(1, 'b'), first);
    assert.notDeepEqual(await order(2, 'c'), first);
    assert.notEqual(first[0], `${rows(200).join('\n')}\n`);
  });

  it('the creation of streams keeps the bytes of JSON lines: spaces, escapes, large numbers and carriage returns', async () => {
    const lines = ['{ "text" : "\\u00e9" }', '{"n":12345678901234567890, "text":"x"}\r', '{"text":"é"}'];
    folder.put('in.jsonl', `\ufeff${lines[0]}\n\n${lines[1]}\n  \r\n${lines[2]}`);
    await create(['in.jsonl']);
    assert.deepEqual(folder.streams('out'), [`${lines.join('\n')}\n`]);
  });

  const leaving: {options: Partial<CreateOptions>; left_out: string[]; says: string[]}[] = [
    {options: {}, left_out: [], says: []},
    {
      options: {column: 'prompt'},
      left_out: ['id', 'text', 'a label'],
      says: ['Left out: id, text, a label. --keep copies columns'],
    },
    {
      options: {template: '{prompt}{text}', keep: ['id']},
      left_out: ['a label'],
      says: ['Left out: a label. --keep copies columns'],
    },
    {
      options: {column: 'prompt', keep: ['id', 'a label']},
      left_out: ['text'],
      says: ['Left out: text. --keep copies columns'],
    },
  ];
  for (const {options, left_out, says} of leaving)
    it(`the creation of streams says which columns it leaves out, with ${JSON.stringify(options)}`, async () => {
      folder.put('in.jsonl', '{"id":1,"prompt":"a","text":"b","a label":2}\n'.repeat(2));
      folder.put('more.csv', 'id,prompt,text,a label\n1,a,b,2\n');
      const columnData = ['id', 'prompt', 'text', 'a label'].map(name => ({name, data: ['a']}));
      folder.put('rest.parquet', new Uint8Array(parquetWriteBuffer({columnData})));
      const said: string[] = [];
      const say = (line: string) => void (/^Left out/.test(line) && said.push(line));
      const report = await create(['in.jsonl', 'more.csv', 'rest.parquet'], options, say);
      assert.deepEqual([report.left_out, said], [left_out, says]);
    });

  for (const {name, content, column, says} of [
    {
      name: 'columns of later rows, and ten names at most',
      content: `{"q":"x","a":1}\n{"q":"y",${[...'bcdefghijkl'].map(key => `"${key}":1`)}}`,
      column: 'q',
      says: ['Left out: a, b, c, d, e, f, g, h, i, j and 2 more. --keep copies columns'],
    },
    {
      name: 'no tools that come along',
      content: `{"chat":[${USER}],"tools":null}\n{"chat":[${USER}],"tools":[{"name":"f"}]}`,
      column: 'chat',
      says: [],
    },
  ])
    it(`the creation of streams says what it leaves out: ${name}`, async () => {
      folder.put('in.jsonl', content);
      const said: string[] = [];
      await create(['in.jsonl'], {column}, line => void (/^Left out/.test(line) && said.push(line)));
      assert.deepEqual(said, says);
    });

  it('the creation of streams writes checksums that are those of the files', async () => {
    folder.put('in.jsonl', rows(5).join('\n'));
    await create(['in.jsonl'], {num_streams: 2});
    const {streams, samples, sources} = JSON.parse(folder.text('out/checksums.json'));
    const contents = folder.streams('out');
    assert.deepEqual(
      streams.map(({sha256}: {sha256: string}) => sha256),
      contents.map(text => createHash('sha256').update(text).digest('hex')),
    );
    assert.deepEqual(
      streams.map((stream: {samples: number}) => stream.samples),
      [3, 2],
    );
    assert.equal(samples, 5);
    assert.equal(sources[0].sha256, createHash('sha256').update(rows(5).join('\n')).digest('hex'));
    assert.deepEqual(folder.names('out'), ['checksums.json', 'stream_000.jsonl', 'stream_001.jsonl']);
  });

  it('the creation of streams changes nothing in a complete folder', async () => {
    folder.put('in.jsonl', rows(5).join('\n'));
    await create(['in.jsonl']);
    const report = await create(['in.jsonl']);
    assert.equal(report.status, 'complete');
    assert.deepEqual(answers['streams create']?.parse(report), report);
  });

  for (const {name, change} of [
    {name: 'other options', change: {num_streams: 2}},
    {name: 'another order', change: {shuffle_seed: 1}},
  ])
    it(`the creation of streams refuses a folder with streams of ${name}, and replaces them with force`, async () => {
      folder.put('in.jsonl', rows(5).join('\n'));
      await create(['in.jsonl'], {num_streams: 3});
      const before = folder.streams('out');
      await assert.rejects(create(['in.jsonl'], change), /has other streams .* --force/);
      assert.deepEqual(folder.streams('out'), before);
      await create(['in.jsonl'], {...change, force: true});
      assert.equal(folder.streams('out').length, change.num_streams ?? 1);
    });

  it('the creation of streams writes a stream anew that was changed or deleted, with force', async () => {
    folder.put('in.jsonl', rows(4).join('\n'));
    await create(['in.jsonl'], {num_streams: 2});
    const before = folder.streams('out');
    folder.put('out/stream_001.jsonl', 'broken');
    await assert.rejects(create(['in.jsonl'], {num_streams: 2}), /has other streams/);
    assert.equal((await create(['in.jsonl'], {num_streams: 2, force: true})).status, 'created');
    assert.deepEqual(folder.streams('out'), before);
  });

  it('the creation of streams finishes the renaming of an interrupted process', async () => {
    folder.put('in.jsonl', rows(4).join('\n'));
    await create(['in.jsonl'], {num_streams: 2});
    const [first = '', second = ''] = folder.streams('out');
    const checksums = folder.text('out/checksums.json');
    rmSync(folder.path, {recursive: true});
    folder.put('in.jsonl', rows(4).join('\n'));
    folder.put('out/stream_000.jsonl', first);
    folder.put('out/.create/stream_001.jsonl', second);
    folder.put('out/.create/checksums.json', checksums);
    assert.equal((await create(['in.jsonl'], {num_streams: 2})).status, 'complete');
    assert.deepEqual(folder.streams('out'), [first, second]);
    assert.deepEqual(folder.names('out'), ['checksums.json', 'stream_000.jsonl', 'stream_001.jsonl']);
  });

  it('the creation of streams leaves no stream after a stop between two streams, and starts again', async () => {
    folder.put('in.csv', `text,prompt\n${'x,y\n'.repeat(5000)}`);
    const options = {num_streams: 50, output_dir: folder.at('out')};
    const stop = new AbortController();
    // The advice about the first record comes after the start of the writing.
    const say = () => stop.abort();
    const made = createStreams([folder.at('in.csv')], options, {say, stopped: stop.signal});
    await assert.rejects(made, {name: 'Interrupted'});
    assert.deepEqual(folder.names(), ['in.csv']);
    assert.equal((await create(['in.csv'], options)).status, 'created');
  });

  it('the creation of streams refuses a folder into which another process writes', async () => {
    folder.put('in.jsonl', rows(4).join('\n'));
    folder.put('out/.create/pid', String(process.ppid));
    await assert.rejects(create(['in.jsonl']), /process \d+ is writing streams/);
  });

  it('the creation of streams plans without writing', async () => {
    folder.put('in.jsonl', rows(5).join('\n'));
    const report = await create(['in.jsonl'], {num_streams: 2, dry_run: true});
    assert.deepEqual(
      report.streams.map(stream => stream.samples),
      [3, 2],
    );
    assert.deepEqual(folder.names(), ['in.jsonl']);
  });

  it('the creation of streams refuses records that no run reads by itself, unless a template of the run reads them', async () => {
    folder.put('in.csv', 'question,answer\na,b\n');
    await assert.rejects(create(['in.csv'], {}), /fields question, answer, .* --column or --template/);
    await create(['in.csv'], {check: false});
    assert.deepEqual(folder.streams('out').join(''), '{"question":"a","answer":"b"}\n');
  });
});

describe('The files of a shuffle', () => {
  for (const {lines, bytes} of [
    {lines: 1000, bytes: 1e9},
    {lines: 7, bytes: 1e12},
    {lines: 3000, bytes: 0},
  ])
    it(`the files of a shuffle give ${lines} lines back in the order of their places, for about ${bytes} bytes`, async () => {
      const folder = new Folder();
      const spool = await openSpool(folder.at('spool'), lines, bytes);
      const places = positionsOf(lines, 5);
      for (const [index, place] of places.entries()) await spool.write(Buffer.from(`line ${index}`), place);
      const found: string[] = [];
      for await (const batch of spool.read()) found.push(...batch.map(String));
      const wanted = [...places.keys()].toSorted((a, b) => (places[a] ?? 0) - (places[b] ?? 0));
      assert.deepEqual(
        found,
        wanted.map(index => `line ${index}`),
      );
      await spool.remove();
      assert.deepEqual(folder.names(), []);
      folder.end();
    });
});
