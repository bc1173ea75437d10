import assert from 'node:assert/strict';
import {mkdirSync, readdirSync, readFileSync, writeFileSync} from 'node:fs';
import {dirname} from 'node:path';
import {setTimeout as sleep} from 'node:timers/promises';
import {Downloads, partOf} from '../../client/google/downloads.ts';
import {openObjects} from '../../shared/google/objects.ts';
import {STORAGE_RETRIES, waitAfter} from '../../shared/google/retry.ts';
import type {Objects} from '../../shared/ports/ports.ts';
import {type FaultProxy, startFaultProxy} from '../support/fakes/fault-proxy.ts';
import {Folder} from '../support/machine/folder.ts';
import {useLocalCloud} from './local-cloud.ts';
import {bytes, text} from './objects-contract.ts';

const KIB = 1024;
const CONTENT = Buffer.from(Array.from({length: 300 * KIB}, (_, n) => n % 251));
const max_bytes = CONTENT.length;

let names = 0;

describe('Objects: faults of Cloud Storage', () => {
  const cloud = useLocalCloud({storage_only: true});
  let proxy: FaultProxy;
  let direct: Objects;
  let name = '';

  before(async () => {
    const {project, bucket, url, token} = cloud();
    proxy = await startFaultProxy(url);
    direct = openObjects({project, bucket, endpoint: url, token});
  });
  after(() => proxy.close());
  beforeEach(() => {
    name = `faults/${names++}`;
  });

  function impatient(limits: Partial<typeof STORAGE_RETRIES> = {}): Objects {
    const {project, bucket, token} = cloud();
    const retries = {...STORAGE_RETRIES, first_wait_ms: 2, ...limits};
    return openObjects({project, bucket, endpoint: proxy.url, token, retries});
  }

  const downloads = () => proxy.seen().filter(({operation}) => operation === 'download');

  it('a download that breaks off three times continues at its last byte', async () => {
    await direct.create(name, CONTENT);
    proxy.breakNext('download', Array(3).fill('return-broken-stream-after-90K'));
    assert.ok(CONTENT.equals((await impatient().read(name, {max_bytes})) ?? bytes('')));
    assert.deepEqual(
      downloads().map(({range, answer}) => [range, answer]),
      [
        ['', 'return-broken-stream-after-90K'],
        ['bytes=92160-', 'return-broken-stream-after-90K'],
        ['bytes=184320-', 'return-broken-stream-after-90K'],
        ['bytes=276480-', '206'],
      ],
    );
  });

  describe('into a file', () => {
    const folder = new Folder(afterEach);

    const downloadsWith = (attempts: number) => {
      const {project, bucket, token} = cloud();
      const retries = {...STORAGE_RETRIES, first_wait_ms: 2, attempts};
      return new Downloads({project, bucket, endpoint: proxy.url, token, retries});
    };
    const infoOf = async () => (await direct.head(name)) ?? assert.fail();

    it('a download by another process continues at the last byte of its part', async () => {
      await direct.create(name, CONTENT);
      const [info, path] = [await infoOf(), folder.at('deep/er/a.bin')];
      mkdirSync(dirname(path), {recursive: true});
      writeFileSync(partOf(path, info.generation), CONTENT.subarray(0, 92_160));
      proxy.breakNext('download', ['return-broken-stream-after-50K']);
      let moved = 0;
      assert.equal(await downloadsWith(5).write(info, path, more => (moved += more)), 'written');
      assert.ok(CONTENT.equals(readFileSync(path)));
      assert.equal(moved, CONTENT.length);
      const ranges = downloads().map(({range}) => range);
      assert.deepEqual(ranges, ['bytes=92160-', 'bytes=143360-']);
      assert.deepEqual(readdirSync(dirname(path)), ['a.bin']);
      assert.equal(await downloadsWith(5).write(info, path), 'exists');
      assert.equal(downloads().length, 2);
    });

    it('a damaged part is downloaded again from its beginning', async () => {
      await direct.create(name, CONTENT);
      const [info, path] = [await infoOf(), folder.at('a.bin')];
      writeFileSync(partOf(path, info.generation), 'damaged');
      assert.equal(await downloadsWith(5).write(info, path), 'written');
      assert.ok(CONTENT.equals(readFileSync(path)));
    });

    it('another file of that name is kept, and a failed download names the object', async () => {
      await direct.create(name, CONTENT);
      const [info, path] = [await infoOf(), folder.at('a.bin')];
      proxy.breakNext('download', ['return-503']);
      await assert.rejects(downloadsWith(1).write(info, path), /^ServiceError: Failed to download gs:.*503/);
      writeFileSync(path, 'mine');
      await assert.rejects(downloadsWith(5).write(info, path), /a\.bin is something else; move it away/);
      assert.equal(readFileSync(path, 'utf8'), 'mine');
    });
  });

  it('a download that breaks off more often than attempts are permitted continues while each attempt brings bytes', async () => {
    await direct.create(name, CONTENT);
    const breaks = Array(5).fill('return-broken-stream-after-50K');
    proxy.breakNext('download', breaks);
    const {attempts} = STORAGE_RETRIES;
    assert.ok(breaks.length >= attempts);
    assert.ok(CONTENT.equals((await impatient().read(name, {max_bytes})) ?? bytes('')));
    assert.equal(downloads().length, breaks.length + 1);
  });

  it('a download whose every answer begins at the first byte fails after the permitted attempts', async () => {
    await direct.create(name, CONTENT);
    proxy.breakNext('download', Array(9).fill('return-broken-stream-after-0K'));
    await assert.rejects(impatient().read(name, {max_bytes}), /after 5 attempts in/);
  });

  it('a download of an object that is replaced in its middle returns the new content', async () => {
    await direct.create(name, CONTENT);
    const {generation = ''} = (await direct.head(name)) ?? {};
    proxy.breakNext('download', ['return-broken-stream-after-90K']);
    const reading = impatient({first_wait_ms: 1000}).read(name, {max_bytes});
    while (downloads().length === 0) await sleep(5);
    assert.equal(await direct.replace(name, generation, bytes('new')), 'replaced');
    assert.equal(text(await reading), 'new');
    assert.deepEqual(
      downloads().map(({answer}) => answer),
      ['return-broken-stream-after-90K', '404', '200'],
    );
  });

  it('a download that breaks off does not disturb other requests of the process', async () => {
    await direct.create(name, CONTENT);
    proxy.breakNext('download', Array(3).fill('return-broken-stream-after-90K'));
    let isRead = false;
    const reading = impatient({first_wait_ms: 100})
      .read(name, {max_bytes})
      .finally(() => (isRead = true));
    const outcomes: string[] = [];
    while (!isRead) outcomes.push(await direct.create(`${name}/${outcomes.length}`, bytes('x')));
    await reading;
    assert.deepEqual(new Set(outcomes), new Set(['created']));
    assert.ok(outcomes.length > 0);
  });

  it('a download with an empty answer or with damaged bytes starts again', async () => {
    await direct.create(name, CONTENT);
    proxy.breakNext('download', ['return-broken-stream-after-0K', 'return-corrupted-data']);
    assert.ok(CONTENT.equals((await impatient().read(name, {max_bytes})) ?? bytes('')));
    const ranges = downloads().map(({range}) => range);
    assert.deepEqual(ranges, ['', '', '']);
  });

  it('a download that is damaged each time fails', async () => {
    await direct.create(name, CONTENT);
    proxy.breakNext('download', Array(STORAGE_RETRIES.attempts).fill('return-corrupted-data'));
    const message =
      /^Failed to read gs:.*: its bytes differ from its checksum, after 5 attempts in [\d.]+ s; try again later$/;
    await assert.rejects(impatient().read(name, {max_bytes}), {message});
  });

  it('a read during an outage names the object, the status and the number of attempts', async () => {
    await direct.create(name, CONTENT);
    proxy.breakNext('download', Array(STORAGE_RETRIES.attempts).fill('return-503'));
    const message = new RegExp(
      `^Failed to read gs://gleaner-local/${name}: A fault of the test: 503, after 5 attempts in [\\d.]+ s; try again later$`,
    );
    await assert.rejects(impatient().read(name, {max_bytes}), {message});
  });

  it('no attempt begins after the time of the policy', async () => {
    proxy.breakNext('get', Array(9).fill('return-503'));
    await assert.rejects(impatient({give_up_ms: 0}).head(name), /after 1 attempts/);
    assert.equal(proxy.left().length, 8);
  });

  const STALLS: {operation: 'list' | 'get' | 'download' | 'insert'; instruction: string}[] = [
    {operation: 'list', instruction: 'stall-for-9s'},
    {operation: 'get', instruction: 'stall-for-9s'},
    {operation: 'insert', instruction: 'stall-for-9s'},
    {operation: 'download', instruction: 'stall-for-9s'},
    {operation: 'download', instruction: 'stall-for-9s-after-90K'},
  ];
  for (const {operation, instruction} of STALLS)
    it(`a ${operation} without an answer is repeated after ${instruction}`, async () => {
      const objects = impatient({silence_ms: 600});
      if (operation !== 'insert') await direct.create(name, CONTENT);
      proxy.breakNext(operation, [instruction]);
      if (operation === 'insert') await objects.create(name, CONTENT);
      if (operation === 'list') assert.equal((await objects.list(name)).length, 1);
      assert.ok(CONTENT.equals((await objects.read(name, {max_bytes})) ?? bytes('')));
      assert.deepEqual(proxy.left(), []);
    });

  it('an upload without an answer at any attempt fails', async () => {
    proxy.breakNext('insert', ['stall-for-9s', 'stall-for-9s']);
    await assert.rejects(
      impatient({silence_ms: 200, attempts: 2}).create(name, bytes('x')),
      /no answer came within 0.\d+ s, after 2 attempts/,
    );
  });

  it('create answers "exists" where Cloud Storage denies the repeated create of an existing object', async () => {
    proxy.breakNext('insert', ['return-503-after-commit', 'return-403']);
    assert.equal(await impatient().create(name, bytes('x')), 'exists');
    assert.equal(text(await direct.read(name, {max_bytes: 1})), 'x');
  });

  it('create of a new object without the permission fails with advice', async () => {
    proxy.breakNext('insert', ['return-403']);
    await assert.rejects(impatient().create(name, bytes('x')), {
      message: `Failed to create gs://gleaner-local/${name}: A fault of the test: 403; grant the account this permission on gleaner-local, or set GLEANER_BUCKET to a bucket of this project`,
    });
    assert.equal(await direct.head(name), undefined);
  });

  it('replace of an object without the permission fails', async () => {
    await direct.create(name, bytes('x'));
    const {generation = ''} = (await direct.head(name)) ?? {};
    proxy.breakNext('insert', ['return-403']);
    await assert.rejects(impatient().replace(name, generation, bytes('y')), /403; grant the account/);
  });

  it('a wait is at least half of its longest, which doubles up to the limit', () => {
    const waits = [1, 2, 3, 4, 5, 6].map(attempt => [
      waitAfter(attempt, STORAGE_RETRIES, 0),
      waitAfter(attempt, STORAGE_RETRIES, 1),
    ]);
    assert.deepEqual(waits, [
      [250, 500],
      [500, 1000],
      [1000, 2000],
      [2000, 4000],
      [4000, 8000],
      [4000, 8000],
    ]);
  });
});
