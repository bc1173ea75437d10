import assert from 'node:assert/strict';
import {parquetWriteBuffer} from 'hyparquet-writer';
import {createStreams} from '../../../../cli/streams/create-streams.ts';
import type {SourceOptions} from '../../../../cli/streams/sources/formats.ts';
import {hubSettings} from '../../../../cli/streams/sources/hub.ts';
import {cardOf} from '../../../../cli/streams/sources/hub-card.ts';
import {chooseConverted, chooseNamed, chooseOwn} from '../../../../cli/streams/sources/hub-files.ts';
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
    await assert.rejects(
      textsOf({revision: 'main'}),
      /has no Parquet files, .* beside them: download its files/,
    );
  });

  it('takes the split that its README names, and the converted files where they are not Parquet', async () => {
    const readme = (path: string) =>
      Buffer.from(
        `---\nconfigs:\n- config_name: main\n  data_files:\n  - split: train\n    path: ${path}\n---\n`,
      );
    const files = hub.revisions.main?.files as Record<string, Uint8Array>;
    files['README.md'] = readme('data/test-*');
    assert.deepEqual(await textsOf(), ['t']);
    files['README.md'] = readme('rows.jsonl');
    files['rows.jsonl'] = new Uint8Array(1);
    hub.revisions['refs/convert/parquet'] = {
      commit: CONVERTED_COMMIT,
      files: {'main/train/0000.parquet': parquet('x')},
    };
    assert.deepEqual(await textsOf(), ['x']);
  });

  it('has the splits and the rows that its README states, or says so', async () => {
    const files: Record<string, Uint8Array> = {'rows.parquet': parquet('a', 'b')};
    hub.revisions.main = {commit: COMMIT, files};
    const stated = (split: string, rows: number) =>
      Buffer.from(`---\ndataset_info:\n  splits:\n  - name: ${split}\n    num_examples: ${rows}\n---\n`);
    files['README.md'] = stated('train', 2);
    const said: string[] = [];
    assert.deepEqual(await textsOf({}, said), ['a', 'b']);
    assert.doesNotMatch(said.join(), /states/);
    files['README.md'] = stated('train', 3);
    await textsOf({}, said);
    assert.match(said.join(), /README\.md states 3 rows of the split train, and its files have 2/);
    files['README.md'] = stated('held_out', 2);
    await assert.rejects(textsOf(), /no split "train" .* one of held_out/);
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

  for (const {name, status, headers, error} of [
    {name: 'a listing', status: 200, headers: {}, error: /org\/data: the hub sends more than 67 MB/},
    {name: 'an error', status: 500, headers: {}, error: /500 Internal Server Error.*after 3 attempts/},
  ])
    it(`ends an answer that is longer than it may be: ${name}`, async () => {
      for (let times = 0; times < 3; times++) hub.refusals.push({status, headers, isEndless: true});
      await assert.rejects(
        openDataset('org/data', {}, () => {}, hub.client()),
        error,
      );
    });

  it('ends an answer that is longer than it may be: a part of a file', async () => {
    const [source] = await openDataset('org/data', {split: 'test'}, () => {}, hub.client());
    hub.refusals.push({status: 206, headers: {'content-range': 'bytes 0-0/1'}, isEndless: true});
    await assert.rejects(source?.count(watch(), 1) ?? assert.fail(), /the hub sends (more than|no parts)/);
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
        chooseOwn(filesOf(...paths), {split, config}).files.map(({path}) => path),
        chosen,
      );
    });

  for (const {name, paths, split = 'train', chosen} of [
    {
      name: 'of two splits with one beginning',
      paths: ['data/train_gen-00000-of-00001-0a.parquet', 'data/train_sft-00000-of-00001-0b.parquet'],
      split: 'train_sft',
      chosen: ['data/train_sft-00000-of-00001-0b.parquet'],
    },
    {
      name: 'beside a split whose name goes on',
      paths: ['train.parquet', 'train_extra.parquet'],
      chosen: ['train.parquet'],
    },
    {
      name: 'with one name that has the word',
      paths: ['x_train.parquet', 'x_test.parquet'],
      chosen: ['x_train.parquet'],
    },
    {
      name: 'with another word of the split',
      paths: ['dev.parquet', 'train.parquet'],
      split: 'validation',
      chosen: ['dev.parquet'],
    },
    {
      name: 'of one configuration',
      paths: ['default/train/0.parquet', 'en/v1/train/0.parquet'],
      chosen: ['default/train/0.parquet'],
    },
  ])
    it(`are found ${name} by whole names`, () => {
      const found = chooseOwn(filesOf(...paths), {split, config: undefined});
      assert.deepEqual(
        found.files.map(({path}) => path),
        chosen,
      );
    });

  const [one, two, three] = [0, 1, 2].map(part => `data/train-0000${part}-of-00003.parquet`) as [
    string,
    string,
    string,
  ];
  for (const {name, paths, error} of [
    {
      name: 'two names of one word',
      paths: ['train_sft.parquet', 'train_gen.parquet'],
      error: /no split "train" .* train_sft, train_gen/,
    },
    {
      name: 'two splits with one beginning',
      paths: ['train_sft-00000-of-00001.parquet', 'train_gen-00000-of-00001.parquet'],
      error: /one of train_sft, train_gen/,
    },
    {
      name: 'folders that may be configurations',
      paths: ['en/v1/train-0.parquet', 'en/v2/train-0.parquet'],
      error: /--config with one of en\/v1, en\/v2/,
    },
    {name: 'a missing part', paths: [one, three], error: /lacks part 1 of 3, named data\/train/},
    {name: 'a missing last part', paths: [one, two], error: /lacks part 2 of 3/},
    {name: 'parts of two sets', paths: [one, 'data/train-00001-of-00002.parquet'], error: /of two sets/},
    {
      name: 'a part twice',
      paths: [one, two, three, two.replace('.parquet', '-0a.parquet')],
      error: /a part twice/,
    },
  ])
    it(`are refused for ${name}`, () => {
      assert.throws(() => chooseOwn(filesOf(...paths), {split: 'train', config: undefined}), error);
    });

  it('that the hub converted are refused for a missing part', () => {
    const files = filesOf('default/train/0000.parquet', 'default/train/0002.parquet');
    assert.throws(
      () => chooseConverted(files, [], {split: 'train', config: undefined}),
      /Part 1 .* is missing/,
    );
  });

  const card = (yaml: string) => cardOf('org/data', `---\n${yaml}\n---\n# Title\n`).configs;
  const CARD = `license: mit
configs:
- config_name: no
  data_files: extra/*.parquet
- config_name: 2024
  default: true
  data_files:
  - split: train
    path:
    - "data/b-*"
    - data/a.parquet
  - split: test
    path: data/train-*
- config_name: folder
  data_dir: extra
- config_name: all
  data_files: "*"`;
  const FILES = filesOf(
    'data/a.parquet',
    'data/b-0.parquet',
    'data/b-1.parquet',
    'data/train-0.parquet',
    'extra/train.parquet',
    'extra/rows.csv',
    'README.md',
    '.gitattributes',
    'top.parquet',
  );
  for (const {choose, chosen} of [
    {
      choose: {split: 'train', config: undefined},
      chosen: ['data/b-0.parquet', 'data/b-1.parquet', 'data/a.parquet'],
    },
    {choose: {split: 'test', config: undefined}, chosen: ['data/train-0.parquet']},
    {choose: {split: 'train', config: 'no'}, chosen: ['extra/train.parquet']},
    {choose: {split: 'train', config: 'all'}, chosen: ['top.parquet']},
    {choose: {split: 'train', config: 'folder'}, chosen: ['extra/train.parquet']},
  ])
    it(`are those of the README for ${JSON.stringify(choose)}`, () => {
      assert.deepEqual(
        chooseNamed(FILES, card(CARD), choose).files.map(({path}) => path),
        chosen,
      );
    });

  for (const {name, yaml, error} of [
    {
      name: 'a split that the README lacks',
      yaml: 'configs:\n- data_files:\n  - split: test\n    path: data/*',
      error: /no split "train" .* one of test/,
    },
    {
      name: 'a pattern without a file',
      yaml: 'configs:\n- data_files: rows/*',
      error: /README\.md names rows\/\* .* no file has such a name/,
    },
    {
      name: 'a pattern with two meanings',
      yaml: 'configs:\n- data_files: "**.parquet"',
      error: /names \*\*\.parquet .* files or folders/,
    },
    {
      name: 'a configuration twice',
      yaml: 'configs:\n- config_name: a\n  data_files: data/*\n- config_name: a\n  data_files: extra/*',
      error: /describes the configuration "a" twice/,
    },
    {
      name: 'metadata that is not YAML',
      yaml: 'configs: [',
      error: /Failed to read the metadata in README\.md of org\/data/,
    },
    {
      name: 'files of an unknown form',
      yaml: 'configs:\n- data_files: {train: x}',
      error: /configs\.0\.data_files has another form than the hub describes/,
    },
  ])
    it(`are refused for ${name}`, () => {
      assert.throws(() => chooseNamed(FILES, card(yaml), {split: 'train', config: undefined}), error);
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
      assert.throws(() => chooseConverted(files, [], choose), error);
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
