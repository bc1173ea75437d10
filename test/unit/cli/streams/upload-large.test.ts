import assert from 'node:assert/strict';
import {type ChildProcess, spawn} from 'node:child_process';
import {existsSync, readdirSync, statSync} from 'node:fs';
import {join} from 'node:path';
import {crc32cOf} from '../../../../client/google/hash-file.ts';
import {gleaner} from '../../../support/machine/home.ts';
import {GLEANER} from '../../../support/machine/process.ts';
import {until} from '../../../support/machine/until.ts';
import {Upload} from './an-upload.ts';

describe('The upload of a large stream @full', () => {
  const to = new Upload();

  it('the upload of a large stream stores the stream from pieces', async () => {
    to.large(20);
    assert.equal((await to.start()).uploaded, 1);
    const [[, content] = []] = await to.stored();
    assert.equal(content, to.folder.text('streams/stream_000.jsonl'));
    assert.deepEqual(to.folder.names('streams'), ['stream_000.jsonl']);
  });

  /** The cloud of the test has no model to check. */
  const upload = () => ['streams', 'upload', to.folder.at('streams'), '--run', to.run, '--no-check'];
  const start = (): ChildProcess =>
    spawn(process.execPath, [GLEANER, ...upload(), '--port', to.port], {stdio: 'ignore'});
  const exit = (child: ChildProcess) => new Promise<number | null>(done => child.once('exit', done));
  /** Waits until the cloud has a piece of an upload. */
  const piece = () =>
    until('a piece is stored', () => {
      const uploads = join(to.cloud.dir, 'uploads');
      return (
        existsSync(uploads) && readdirSync(uploads).some(file => statSync(join(uploads, file)).size > 8e6)
      );
    });
  const status = (session: string, bytes: number) =>
    fetch(session, {
      method: 'PUT',
      headers: {'content-range': `bytes */${bytes}`, authorization: `Bearer ${to.cloud.token}`},
    });

  for (const {signal, code} of [
    {signal: 'SIGKILL', code: null},
    {signal: 'SIGINT', code: 130},
  ] as const)
    it(`the upload of a large stream goes on where it was after ${signal}`, async () => {
      to.large(60);
      const child = start();
      const ended = exit(child);
      await piece();
      child.kill(signal);
      assert.equal(await ended, code);
      assert.deepEqual(await to.stored(), []);
      const {session} = JSON.parse(to.folder.text('streams/.upload/stream_000.jsonl.json'));
      const before = await status(session, 60e6);
      assert.equal(before.status, 308);
      assert.match(before.headers.get('range') ?? '', /^bytes=0-\d{7,}$/);
      assert.equal((await to.start()).uploaded, 1);
      // The same session made the object.
      assert.equal((await status(session, 60e6)).status, 200);
      assert.equal((await to.objects().list(`datasets/${to.run}/`))[0]?.size_bytes, 60e6);
      assert.deepEqual(to.folder.names('streams'), ['stream_000.jsonl']);
    });

  it('the upload of a large stream begins again where the cloud has forgotten the session', async () => {
    to.large(9);
    const crc32c = await crc32cOf(to.folder.at('streams/stream_000.jsonl'));
    const record = {
      bucket: to.cloud.bucket,
      name: `datasets/${to.run}/stream_000.jsonl`,
      size_bytes: 9e6,
      crc32c,
    };
    const session = `${to.cloud.url}/upload/storage/v1/b/${to.cloud.bucket}/o?uploadType=resumable&upload_id=gone`;
    to.folder.put(
      'streams/.upload/stream_000.jsonl.json',
      JSON.stringify({...record, session, pid: 999_999}),
    );
    assert.equal((await to.start()).uploaded, 1);
  });
  it('the upload of a large stream of two processes at once stores every stream once, and both succeed', async () => {
    to.large(9);
    for (let index = 1; index < 9; index++)
      to.folder.put(`streams/stream_00${index}.jsonl`, `{"text":"${index}"}\n`);
    const args = [...upload(), '--json', '--port', to.port];
    const answers = (await Promise.all([gleaner(args), gleaner(args)])).map(({code, stdout}) => ({
      code,
      ...JSON.parse(stdout),
    }));
    const codes = answers.map(({code}) => code);
    assert.deepEqual(codes, [0, 0]);
    assert.equal(answers[0].uploaded + answers[1].uploaded, 9);
    assert.equal(answers[0].already_there + answers[1].already_there, 9);
    assert.equal((await to.stored()).length, 9);
  });
});
