/** Input that would destroy a dataset, leak a credential, or never end. */
import assert from 'node:assert/strict';
import {mkdirSync, symlinkSync} from 'node:fs';
import {createServer, type Server} from 'node:http';
import {crc32cOf} from '../../../../client/google/hash-file.ts';
import {resumableUploads} from '../../../../client/google/resumable.ts';
import {gleaner} from '../../../support/machine/command.ts';
import {Folder} from '../../../support/machine/folder.ts';
import * as home from '../../../support/machine/home.ts';
import {addressOf, listen, portOf} from '../../../support/machine/listen.ts';
import {Upload} from './an-upload.ts';

describe('gleaner streams create @full', () => {
  const folder = new Folder(afterEach);

  const create = (...args: string[]) => gleaner(['streams', 'create', ...args], {cwd: folder.path});

  it('gleaner streams create is complete for one of two that write into a folder at once, and refused for the other', async () => {
    folder.put('rows.jsonl', Array.from({length: 2000}, (_, row) => `{"text":"${row}"}\n`).join(''));
    const both = await Promise.all(
      ['300', '200'].map(streams =>
        home.gleaner(['streams', 'create', 'rows.jsonl', '--num-streams', streams, '--output-dir', 'out'], {
          cwd: folder.path,
        }),
      ),
    );
    const won = both.findIndex(({code}) => code === 0);
    assert.ok(won >= 0, both.map(({stderr}) => stderr).join('\n'));
    for (const {stderr} of both) assert.doesNotMatch(stderr, /\n\s+at /);
    const {streams} = JSON.parse(folder.text('out/checksums.json'));
    for (const {file, crc32c} of streams)
      assert.equal(await crc32cOf(folder.at(`out/${file}`), new AbortController().signal), crc32c);
    assert.equal(folder.streams('out').join(''), folder.text('rows.jsonl'));
  });

  for (const sources of [['in'], ['in/stream_000.jsonl'], ['in/*.jsonl']])
    it(`gleaner streams create refuses ${sources} in its own output folder, and changes nothing`, async () => {
      folder.put('in/stream_000.jsonl', '{"text":"a"}\n{"text":"b"}\n');
      const {code, stderr} = await create(...sources, '--num-streams', '2', '--output-dir', 'in', '--force');
      assert.equal(code, 1);
      assert.match(stderr, /lies in --output-dir .*: choose another folder/);
      assert.deepEqual(folder.streams('in'), ['{"text":"a"}\n{"text":"b"}\n']);
    });

  for (const source of ['in', 'in/*.jsonl'])
    it(`gleaner streams create names a link that leads nowhere among ${source}`, async () => {
      folder.put('in/a.jsonl', '{"text":"a"}\n');
      symlinkSync(folder.at('absent'), folder.at('in/b.jsonl'));
      const {code, stderr} = await create(source, '--num-streams', '1', '--output-dir', 'out');
      assert.equal(code, 1);
      assert.match(stderr, /b\.jsonl/);
      assert.doesNotMatch(stderr, /\n\s+at /);
    });

  it('gleaner streams create replaces unreadable checksums with --force', async () => {
    folder.put('a.jsonl', '{"text":"a"}\n');
    folder.put('out/checksums.json', 'garbage');
    const args = ['a.jsonl', '--num-streams', '1', '--output-dir', 'out'];
    assert.equal((await create(...args)).code, 1);
    const {code, stderr} = await create(...args, '--force');
    assert.equal(code, 0, stderr);
  });

  for (const {what, env, secret} of [
    {what: 'a token with a newline', env: {HF_TOKEN: 'hf_SECRET\nX'}, secret: /SECRET/},
    {
      what: 'a password in the address of the hub',
      env: {HF_ENDPOINT: 'https://user:PASSW@host'},
      secret: /PASSW/,
    },
    {what: 'a password without a user', env: {HF_ENDPOINT: 'https://:PASSW@127.0.0.1:1'}, secret: /PASSW/},
    {what: 'a password in an address without https', env: {HF_ENDPOINT: 'user:PASSW@host'}, secret: /PASSW/},
  ])
    it(`gleaner streams create prints nothing of ${what}`, async () => {
      const {code, stdout, stderr} = await gleaner(
        ['streams', 'create', 'org/name', '--num-streams', '1', '--output-dir', 'out'],
        {cwd: folder.path, env},
      );
      assert.equal(code, 1);
      assert.doesNotMatch(stdout + stderr, secret);
    });
});

describe('gleaner streams upload @full', () => {
  const to = new Upload();
  let foreign: Server;
  let requests: string[];
  before(async () => {
    foreign = createServer((request, response) => {
      requests.push(`${request.method} ${request.headers.authorization}`);
      request.resume().on('end', () => response.end());
    });
    await listen(foreign);
  });
  after(() => foreign.close());
  beforeEach(() => {
    requests = [];
  });

  it('gleaner streams upload sends nothing to the address of a session that is not of its bucket', async () => {
    to.large(9);
    const path = to.folder.at('streams/stream_000.jsonl');
    const session = `http://${addressOf(foreign)}/steal`;
    const content = {
      bucket: to.cloud.bucket,
      name: `datasets/${to.run}/stream_000.jsonl`,
      size_bytes: to.folder.text('streams/stream_000.jsonl').length,
      crc32c: await crc32cOf(path, new AbortController().signal),
    };
    to.folder.put(
      'streams/.upload/stream_000.jsonl.json',
      JSON.stringify({...content, session, pid: 4_194_000}),
    );
    assert.equal((await to.start()).uploaded, 1);
    assert.deepEqual(requests, []);
    assert.equal((await to.stored()).length, 1);
  });

  it('gleaner streams upload follows no redirect of a session to another server', async () => {
    const port = portOf(foreign);
    const bucket = createServer((request, response) => {
      const answer = () => response.writeHead(307, {location: `http://127.0.0.1:${port}/steal`}).end();
      request.resume().on('end', answer);
    });
    // A failed test leaves it open.
    const endpoint = `http://${await listen(bucket.unref())}`;
    const uploads = resumableUploads({project: 'p', bucket: 'b', endpoint, token: 'secret'});
    const content = {name: 'a', size_bytes: 4, crc32c: 'AAAAAA==', content_type: 'application/jsonl'};
    await assert.rejects(
      uploads.send(`${endpoint}/session`, content, 0, Buffer.from('mine')),
      /Failed to upload/,
    );
    assert.deepEqual(requests, []);
    bucket.close();
  });

  it('gleaner streams upload refuses sessions behind a link', async () => {
    to.large(9);
    mkdirSync(to.folder.at('victim'));
    symlinkSync(to.folder.at('victim'), to.folder.at('streams/.upload'));
    await assert.rejects(to.start(), /\.upload is not a folder of this user/);
  });

  it('gleaner streams upload refuses an empty stream before the first byte is sent', async () => {
    to.folder.put('streams/stream_000.jsonl', '{"text":"a"}\n');
    to.folder.put('streams/stream_001.jsonl', '');
    await assert.rejects(to.start(), /stream_001\.jsonl is empty/);
    assert.deepEqual(await to.stored(), []);
  });
});
