import assert from 'node:assert/strict';
import {parquetWriteBuffer} from 'hyparquet-writer';
import {createStreams} from '../../../../cli/streams/create-streams.ts';
import type {SourceOptions} from '../../../../cli/streams/sources/formats.ts';
import {hubSettings} from '../../../../cli/streams/sources/hub.ts';
import {openDataset} from '../../../../cli/streams/sources/hub-source.ts';
import {Folder} from '../../../support/machine/folder.ts';
import {COMMIT, CONVERTED_COMMIT, FakeHub} from './a-hub.ts';

const parquet = (...text: string[]) =>
  new Uint8Array(
    parquetWriteBuffer({columnData: [{name: 'text', data: text, type: 'STRING'}], rowGroupSize: 2}),
  );

describe('A data set of Hugging Face', () => {
  let hub: FakeHub;
  beforeEach(async () => {
    hub = await FakeHub.start({
      'refs/convert/parquet': {
        commit: CONVERTED_COMMIT,
        files: {
          'default/train/0001.parquet': parquet('d', 'e'),
          'default/train/0000.parquet': parquet('a', 'b', 'c'),
          'default/test/0000.parquet': parquet('t'),
        },
      },
      main: {
        commit: COMMIT,
        files: {
          'README.md': new Uint8Array(1),
          'data/train-0.parquet': parquet('own 0'),
          'data/train-1.parquet': parquet('own 1'),
          'data/rows.csv': new Uint8Array(1),
        },
      },
    });
  });
  afterEach(() => hub.end());

  const watch = () => ({stop: new AbortController().signal, moved: () => {}});
  const open = (options: SourceOptions = {}, said: string[] = [], path?: string) =>
    openDataset({id: 'org/data', path}, options, line => said.push(line), hub.client());
  const textsOf = async (...given: Parameters<typeof open>) => {
    const texts: unknown[] = [];
    for (const source of await open(...given))
      for await (const rows of source.rows(watch(), undefined))
        for (const row of rows) if ('cells' in row) texts.push(row.cells.get('text'));
    return texts;
  };
  const convert = (...paths: string[]) => {
    const files = Object.fromEntries(paths.map(path => [path, parquet(path)]));
    hub.revisions['refs/convert/parquet'] = {commit: CONVERTED_COMMIT, files};
  };

  it('a data set of Hugging Face gives the converted rows of one split in the order of its files', async () => {
    assert.deepEqual(await textsOf(), ['a', 'b', 'c', 'd', 'e']);
    assert.deepEqual(await textsOf({split: 'test'}), ['t']);
    // As checksums.json names it.
    assert.deepEqual(await textsOf({split: 'test', revision: 'refs/convert/parquet'}), ['t']);
  });

  it('a data set of Hugging Face gives the rows of the files that are named, at the commit of a revision', async () => {
    assert.deepEqual(await textsOf({}, [], 'data/train-1.parquet'), ['own 1']);
    assert.deepEqual(await textsOf({}, [], 'data/*'), ['own 0', 'own 1']);
    hub.revisions['v1.0'] = {commit: 'c'.repeat(40), files: {'old.parquet': parquet('old')}};
    hub.requests.length = 0;
    assert.deepEqual(await textsOf({revision: 'v1.0'}, [], 'old.parquet'), ['old']);
    const [listing, ...reads] = hub.requests;
    assert.equal(listing?.url, '/api/datasets/org/data/revision/v1.0?blobs=true');
    assert.ok(reads.length > 0);
    for (const {url, range} of reads) {
      assert.equal(url, `/datasets/org/data/resolve/${'c'.repeat(40)}/old.parquet`);
      assert.match(range ?? '', /^bytes=\d+-\d+$/);
    }
  });

  it('a data set of Hugging Face states its commit and the size of each file', async () => {
    const [source] = await open({split: 'test'});
    const bytes = parquet('t').length;
    const name = 'hf://datasets/org/data/default/test/0000.parquet';
    assert.deepEqual(await source?.identity(watch()), {source: name, commit: CONVERTED_COMMIT, bytes});
  });

  for (const {name, converted, options = {}, path, error} of [
    {
      name: 'the hub has converted the first part alone',
      converted: ['default/partial-train/0000.parquet'],
      error:
        /has no whole split "train" .*: name its .* hf:\/\/datasets\/org\/data\/PATH.* data\/train-0\.parquet, data\/train-1\.parquet$/,
    },
    {
      name: 'the converted branch has another layout',
      converted: ['a.parquet'],
      error: /name its Parquet files/,
    },
    {name: 'its revision has another layout', options: {revision: 'main'}, error: /name its Parquet files/},
    {name: 'a path that names no file', path: 'x*', error: /no Parquet file x\*: name .* data\/train-0/},
    {
      name: 'a missing part',
      converted: ['default/train/0000.parquet', 'default/train/0002.parquet'],
      error: /Part 1 of the split "train" is missing/,
    },
    {name: 'an unknown split', options: {split: 'x'}, error: /no split "x": .* with one of test, train/},
    {
      name: 'an unknown configuration',
      options: {config: 'c'},
      error: /no configuration "c": .* one of default/,
    },
    {
      name: 'no configuration of several',
      converted: ['a/train/0000.parquet', 'b/train/0000.parquet'],
      error: /several configurations: .*--config with one of a, b/,
    },
  ])
    it(`a data set of Hugging Face is refused for ${name}`, async () => {
      if (converted) convert(...converted);
      await assert.rejects(open(options, [], path), error);
    });

  it('a data set of Hugging Face without the converted branch is refused, and its files are listed', async () => {
    delete hub.revisions['refs/convert/parquet'];
    await assert.rejects(open(), /name its Parquet files as the source hf:.*data\/train-1\.parquet/);
    hub.revisions.main = {commit: COMMIT, files: {'rows.jsonl': new Uint8Array(1)}};
    await assert.rejects(open(), /no Parquet file of its own: download its files \(rows\.jsonl\)/);
  });

  it('a data set of Hugging Face is read with the token of the user', async () => {
    await openDataset({id: 'org/data'}, {}, () => {}, hub.client('hf_secret'));
    assert.equal(hub.requests[0]?.authorization, 'Bearer hf_secret');
  });

  it('a data set of Hugging Face sends the token to the hub alone, and not to the host of a redirect', async () => {
    const store = await FakeHub.start(hub.revisions);
    const [source] = await openDataset({id: 'org/data'}, {split: 'test'}, () => {}, hub.client('hf_secret'));
    const {pathname} = new URL(
      `/datasets/org/data/resolve/${CONVERTED_COMMIT}/default/test/0000.parquet`,
      hub.url,
    );
    hub.refusals.push({status: 302, headers: {location: store.url + pathname}});
    assert.equal(await source?.count(watch(), 10), 1);
    const authorizations = store.requests.map(({authorization}) => authorization);
    assert.deepEqual(authorizations, [undefined]);
    await store.end();
  });

  it('a data set of Hugging Face is read in spite of errors that pass', async () => {
    hub.refusals.push({status: 503}, {status: 429});
    assert.deepEqual(await textsOf({split: 'test'}), ['t']);
  });

  for (const {name, status, headers, body, token, error} of [
    {
      name: 'is private or absent',
      status: 401,
      body: '{"error":"Invalid username or password."}',
      error: /401 Invalid username.*set HF_TOKEN/,
    },
    {name: 'does not accept the token', status: 401, token: 'bad', error: /does not accept HF_TOKEN/},
    {
      name: 'is gated',
      status: 403,
      headers: {'x-error-message': 'Access to dataset org/data is restricted'},
      error: /is restricted; accept the conditions .* HF_TOKEN/,
    },

    {name: 'does not exist', status: 404, error: /There is no file and no data set/},
    {name: 'fails again and again', status: 500, error: /500 .*after 3 attempts.*try again later/},
  ])
    it(`a data set of Hugging Face ends with advice where the hub answers ${status} because it ${name}`, async () => {
      for (let times = 0; times < 3; times++)
        hub.refusals.push({status, ...(headers ? {headers} : {}), ...(body ? {body} : {})});
      await assert.rejects(
        openDataset({id: 'org/data'}, {}, () => {}, hub.client(token)),
        error,
      );
    });

  for (const {name, status, headers, error} of [
    {name: 'a listing', status: 200, headers: {}, error: /org\/data: the hub sends more than 67 MB/},
    {name: 'an error', status: 500, headers: {}, error: /500 Internal Server Error.*after 3 attempts/},
  ])
    it(`a data set of Hugging Face ends an answer that is longer than it may be: ${name}`, async () => {
      for (let times = 0; times < 3; times++) hub.refusals.push({status, headers, isEndless: true});
      await assert.rejects(
        openDataset({id: 'org/data'}, {}, () => {}, hub.client()),
        error,
      );
    });

  it('a data set of Hugging Face ends an answer that is longer than it may be: a part of a file', async () => {
    const [source] = await openDataset({id: 'org/data'}, {split: 'test'}, () => {}, hub.client());
    hub.refusals.push({status: 206, headers: {'content-range': 'bytes 0-0/1'}, isEndless: true});
    await assert.rejects(source?.count(watch(), 1) ?? assert.fail(), /the hub sends (more than|no parts)/);
  });

  it('a data set of Hugging Face ends with advice where no hub answers', async () => {
    const client = hub.client();
    await hub.end();
    await assert.rejects(
      openDataset({id: 'org/data'}, {}, () => {}, client),
      /ECONNREFUSED.*check the network and HF_ENDPOINT/,
    );
  });

  it('a data set of Hugging Face becomes streams that name the commit, and the same command finds them complete', async () => {
    const folder = new Folder();
    process.env.HF_ENDPOINT = hub.url;
    try {
      const options = {num_streams: 2, output_dir: folder.at('out')};
      await createStreams(['org/data'], options);
      assert.deepEqual(folder.streams('out'), [
        '{"text":"a"}\n{"text":"b"}\n{"text":"c"}\n',
        '{"text":"d"}\n{"text":"e"}\n',
      ]);
      const {sources} = JSON.parse(folder.text('out/checksums.json'));
      assert.deepEqual(
        sources.map((source: {commit: string}) => source.commit),
        [CONVERTED_COMMIT, CONVERTED_COMMIT],
      );
      assert.equal((await createStreams(['org/data'], options)).status, 'complete');
      // The branch has moved.
      const {files} = hub.revisions['refs/convert/parquet'] as {files: Record<string, Uint8Array>};
      hub.revisions['refs/convert/parquet'] = {commit: 'd'.repeat(40), files};
      await assert.rejects(createStreams(['org/data'], options), /has other streams/);
    } finally {
      delete process.env.HF_ENDPOINT;
      folder.end();
    }
  });
});

describe('The settings of the hub', () => {
  it('the settings of the hub are the public hub without a token by default', () => {
    const {endpoint, token} = hubSettings({});
    assert.deepEqual([endpoint, token], ['https://huggingface.co', undefined]);
  });

  it('the settings of the hub never send a token over plain HTTP to another machine', () => {
    for (const HF_ENDPOINT of ['http://mirror.example', 'ftp://x', 'http://127.0.0.1.example'])
      assert.throws(() => hubSettings({HF_ENDPOINT}), /not an https:\/\/ address/);
    assert.equal(hubSettings({HF_ENDPOINT: 'http://127.0.0.1:80/'}).endpoint, 'http://127.0.0.1:80');
  });
});
