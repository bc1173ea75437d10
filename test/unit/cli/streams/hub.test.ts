import assert from 'node:assert/strict';
import {parquetWriteBuffer} from 'hyparquet-writer';
import {createStreams} from '../../../../cli/streams/create-streams.ts';
import type {SourceOptions} from '../../../../cli/streams/sources/formats.ts';
import {hubSettings} from '../../../../cli/streams/sources/hub.ts';
import {chooseConverted, chooseOwn} from '../../../../cli/streams/sources/hub-files.ts';
import {openDataset} from '../../../../cli/streams/sources/hub-source.ts';
import {Folder} from '../../../support/folder.ts';
import {COMMIT, CONVERTED_COMMIT, FakeHub} from './a-hub.ts';

const parquet = (...text: string[]) =>
  new Uint8Array(
    parquetWriteBuffer({columnData: [{name: 'text', data: text, type: 'STRING'}], rowGroupSize: 2}),
  );
const filesOf = (...paths: string[]) => paths.map(path => ({path, size: 1, sha256: undefined}));

describe('A data set of Hugging Face', () => {
  let hub: FakeHub;
  beforeEach(async () => {
    hub = await FakeHub.start({
      main: {
        commit: COMMIT,
        files: {
          'README.md': new Uint8Array(1),
          'data/train-00001-of-00002.parquet': parquet('d', 'e'),
          'data/train-00000-of-00002.parquet': parquet('a', 'b', 'c'),
          'data/test-00000-of-00001.parquet': parquet('t'),
        },
      },
    });
  });
  afterEach(() => hub.end());

  const watch = () => ({stop: new AbortController().signal, moved: () => {}});
  const textsOf = async (options: SourceOptions = {}, said: string[] = []) => {
    const texts: unknown[] = [];
    for (const source of await openDataset('org/data', options, line => said.push(line), hub.client()))
      for await (const rows of source.rows(watch(), undefined))
        for (const row of rows) if ('cells' in row) texts.push(row.cells.get('text'));
    return texts;
  };

  it('gives the rows of one split in the order of its files', async () => {
    assert.deepEqual(await textsOf(), ['a', 'b', 'c', 'd', 'e']);
    assert.deepEqual(await textsOf({split: 'test'}), ['t']);
  });

  it('is read at the commit of its revision, in parts', async () => {
    hub.revisions['v1.0'] = {commit: 'c'.repeat(40), files: {'old.parquet': parquet('old')}};
    assert.deepEqual(await textsOf({revision: 'v1.0'}), ['old']);
    const [listing, ...reads] = hub.requests;
    assert.equal(listing?.url, '/api/datasets/org/data/revision/v1.0?blobs=true');
    assert.ok(reads.length > 0);
    for (const {url, range} of reads) {
      assert.equal(url, `/datasets/org/data/resolve/${'c'.repeat(40)}/old.parquet`);
      assert.match(range ?? '', /^bytes=\d+-\d+$/);
    }
  });

  it('states its commit and the size of each file', async () => {
    for (const hasSizes of [true, false]) {
      hub.hasSizes = hasSizes;
      const [source] = await openDataset('org/data', {split: 'test'}, () => {}, hub.client());
      const bytes = parquet('t').length;
      const name = 'hf://datasets/org/data/data/test-00000-of-00001.parquet';
      assert.deepEqual(await source?.identity(watch()), {source: name, commit: COMMIT, bytes});
    }
  });

  it('without Parquet files is read from the files that the hub converted, and says where they are a part', async () => {
    hub.revisions.main = {commit: COMMIT, files: {'data.jsonl': new Uint8Array(1)}};
    hub.revisions['refs/convert/parquet'] = {
      commit: CONVERTED_COMMIT,
      files: {'default/partial-train/0000.parquet': parquet('x'), 'default/test/0000.parquet': parquet('y')},
    };
    const said: string[] = [];
    assert.deepEqual(await textsOf({}, said), ['x']);
    assert.match(said.join(), /only the first part/);
    assert.ok(
      hub.requests.some(({url}) => url.includes(`/resolve/${CONVERTED_COMMIT}/default/partial-train/`)),
    );
    await assert.rejects(textsOf({revision: 'main'}), /no Parquet file in .* at main: download its files/);
  });

  it('is read with the token of the user', async () => {
    await openDataset('org/data', {}, () => {}, hub.client('hf_secret'));
    assert.equal(hub.requests[0]?.authorization, 'Bearer hf_secret');
  });

  it('sends the token to the hub alone, and not to the host of a redirect', async () => {
    const store = await FakeHub.start(hub.revisions);
    const [source] = await openDataset('org/data', {split: 'test'}, () => {}, hub.client('hf_secret'));
    const {pathname} = new URL(
      `/datasets/org/data/resolve/${COMMIT}/data/test-00000-of-00001.parquet`,
      hub.url,
    );
    hub.refusals.push({status: 302, headers: {location: store.url + pathname}});
    assert.equal(await source?.count(watch(), 10), 1);
    assert.deepEqual(
      store.requests.map(({authorization}) => authorization),
      [undefined],
    );
    await store.end();
  });

  it('is read in spite of errors that pass', async () => {
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
    it(`ends with advice where the hub answers ${status} because it ${name}`, async () => {
      for (let times = 0; times < 3; times++)
        hub.refusals.push({status, ...(headers ? {headers} : {}), ...(body ? {body} : {})});
      await assert.rejects(
        openDataset('org/data', {}, () => {}, hub.client(token)),
        error,
      );
    });

  it('ends with advice where no hub answers', async () => {
    const client = hub.client();
    await hub.end();
    await assert.rejects(
      openDataset('org/data', {}, () => {}, client),
      /ECONNREFUSED.*check the network and HF_ENDPOINT/,
    );
  });

  it('becomes streams that name the commit, and the same command finds them complete', async () => {
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
        [COMMIT, COMMIT],
      );
      assert.equal((await createStreams(['org/data'], options)).status, 'complete');
      // The branch has moved.
      const {files} = hub.revisions.main as {files: Record<string, Uint8Array>};
      hub.revisions.main = {commit: 'd'.repeat(40), files};
      await assert.rejects(createStreams(['org/data'], options), /has other streams/);
    } finally {
      delete process.env.HF_ENDPOINT;
      folder.end();
    }
  });
});

describe('The files of a split', () => {
  const own: {name: string; paths: string[]; split?: string; config?: string; chosen: string[]}[] = [
    {
      name: 'in the folder data',
      paths: ['data/test-0.parquet', 'data/train-0.parquet'],
      chosen: ['data/train-0.parquet'],
    },
    {
      name: 'of one configuration',
      paths: ['main/train-0.parquet', 'socratic/train-0.parquet'],
      config: 'main',
      chosen: ['main/train-0.parquet'],
    },
    {
      name: 'in folders of splits',
      paths: ['train/0.parquet', 'validation/0.parquet'],
      split: 'validation',
      chosen: ['validation/0.parquet'],
    },
    {
      name: 'without any split',
      paths: ['part-0.parquet', 'part-1.parquet'],
      chosen: ['part-0.parquet', 'part-1.parquet'],
    },
    {
      name: 'with a name that contains a split in a word',
      paths: ['trained-0.parquet', 'retrain.parquet'],
      chosen: ['trained-0.parquet', 'retrain.parquet'],
    },
    {
      name: 'of a split with its own name',
      paths: ['data/easy-0.parquet', 'data/train-0.parquet'],
      split: 'easy',
      chosen: ['data/easy-0.parquet'],
    },
  ];
  for (const {name, paths, split = 'train', config, chosen} of own)
    it(`are found ${name}`, () => {
      assert.deepEqual(
        chooseOwn(filesOf(...paths), {split, config}).map(({path}) => path),
        chosen,
      );
    });

  for (const {name, choose, error} of [
    {
      name: 'an unknown split',
      choose: {split: 'x', config: 'a'},
      error: /no split "x" .* with one of train, test/,
    },
    {
      name: 'no configuration of several',
      choose: {split: 'train', config: undefined},
      error: /--config with one of a, b/,
    },
    {
      name: 'an unknown configuration',
      choose: {split: 'train', config: 'c'},
      error: /no configuration "c" .* with one of a, b/,
    },
  ]) {
    const files = filesOf('a/train/0.parquet', 'a/test/0.parquet', 'b/train/0.parquet');
    it(`are refused for ${name}`, () => {
      assert.throws(() => chooseConverted(files, choose), error);
      assert.throws(() => chooseOwn(files, choose), error);
    });
  }
});

describe('The settings of the hub', () => {
  it('are the public hub without a token by default', () => {
    const {endpoint, token} = hubSettings({});
    assert.deepEqual([endpoint, token], ['https://huggingface.co', undefined]);
  });

  it('never send a token over plain HTTP to another machine', () => {
    for (const HF_ENDPOINT of ['http://mirror.example', 'ftp://x', 'http://127.0.0.1.example'])
      assert.throws(() => hubSettings({HF_ENDPOINT}), /no https:\/\/ address/);
    assert.equal(hubSettings({HF_ENDPOINT: 'http://127.0.0.1:80/'}).endpoint, 'http://127.0.0.1:80');
  });
});
