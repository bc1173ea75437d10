import assert from 'node:assert/strict';
import {gunzipSync} from 'node:zlib';
import {Storage} from '@google-cloud/storage';
import {urlWithToken} from '../../emulator/guard.ts';
import {openObjects} from '../../shared/google/objects.ts';
import type {Objects} from '../../shared/ports.ts';
import {MemoryObjects} from '../support/memory.ts';
import {useLocalCloud} from './local-cloud.ts';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const text = (read: Uint8Array | undefined): string | undefined => read && new TextDecoder().decode(read);

let folders = 0;

/** What holds of every bucket. */
function itKeepsTheContract(open: () => Objects): void {
  let objects: Objects;
  let folder = '';

  beforeEach(() => {
    objects = open();
    folder = `contract-${folders++}/`;
  });

  async function names(prefix = folder, start?: string): Promise<string[]> {
    const found = await objects.list(prefix, start === undefined ? {} : {start});
    return found.map(({name}) => name.slice(folder.length));
  }

  it('do not touch an object that exists', async () => {
    const name = `${folder}a`;
    await objects.create(name, bytes('first'), {metadata: {by: 'us'}});
    const before = await objects.head(name);
    assert.equal(await objects.create(name, bytes('second'), {metadata: {by: 'them'}}), 'exists');
    assert.deepEqual(await objects.head(name), before);
    assert.equal(text(await objects.read(name, {max_bytes: 100})), 'first');
  });

  it('let only one of many create a name', async () => {
    const racing = Array.from({length: 10}, (_, n) =>
      objects.create(`${folder}a`, bytes(`${n}`.repeat(1000))),
    );
    const outcomes = await Promise.all(racing);
    assert.deepEqual(outcomes.sort(), ['created', ...Array(9).fill('exists')]);
    const winner = text(await objects.read(`${folder}a`, {max_bytes: 1000})) ?? '';
    assert.match(winner, /^(\d)\1{999}$/);
  });

  it('give a name that is made again a greater generation', async () => {
    await objects.create(`${folder}a`, bytes('1'));
    const first = await objects.head(`${folder}a`);
    await objects.delete(`${folder}a`);
    await objects.create(`${folder}a`, bytes('2'));
    const second = await objects.head(`${folder}a`);
    assert.ok(BigInt(second?.generation ?? 0) > BigInt(first?.generation ?? 0));
  });

  it('are undefined where there are none, and deleting those is no error', async () => {
    assert.equal(await objects.head(`${folder}none`), undefined);
    assert.equal(await objects.read(`${folder}none`, {max_bytes: 10}), undefined);
    await objects.delete(`${folder}none`);
    await objects.create(`${folder}a`, bytes('1'));
    await objects.delete(`${folder}a`);
    assert.equal(await objects.head(`${folder}a`), undefined);
  });

  it('are refused to a reader who allows fewer bytes', async () => {
    await objects.create(`${folder}a`, bytes('12345'));
    await assert.rejects(objects.read(`${folder}a`, {max_bytes: 4}), {
      name: 'ObjectTooLarge',
      message: new RegExp(`${folder}a.* 5 bytes .* 4$`),
    });
  });

  it('may be empty', async () => {
    await objects.create(`${folder}a`, bytes(''));
    assert.equal((await objects.head(`${folder}a`))?.size_bytes, 0);
    assert.equal((await objects.read(`${folder}a`, {max_bytes: 0}))?.byteLength, 0);
  });

  it('take only the part of a buffer that they are given', async () => {
    await objects.create(`${folder}a`, bytes('0123456789').subarray(3, 5));
    assert.equal(text(await objects.read(`${folder}a`, {max_bytes: 10})), '34');
  });

  it('come in the order of names, from the first that may come', async () => {
    for (const name of ['b/2', 'a', 'b/10', 'c', 'b/é', 'b/z', 'B'])
      await objects.create(folder + name, bytes('x'));
    assert.deepEqual(await names(), ['B', 'a', 'b/10', 'b/2', 'b/z', 'b/é', 'c']);
    assert.deepEqual(await names(`${folder}b/`), ['b/10', 'b/2', 'b/z', 'b/é']);
    assert.deepEqual(await names(`${folder}b/`, `${folder}b/2`), ['b/2', 'b/z', 'b/é']);
    assert.deepEqual(await names(`${folder}b/`, `${folder}b/20`), ['b/z', 'b/é']);
    assert.deepEqual(await names(`${folder}b/`, `${folder}a`), ['b/10', 'b/2', 'b/z', 'b/é']);
    assert.deepEqual(await names(`${folder}b/`, `${folder}c`), []);
    const two = await objects.list(`${folder}b/`, {start: `${folder}b/2`, limit: 2});
    assert.deepEqual(
      two.map(({name}) => name),
      [`${folder}b/2`, `${folder}b/z`],
    );
    const [listed] = await objects.list(`${folder}b/10`);
    assert.deepEqual(listed, await objects.head(`${folder}b/10`));
  });

  it('replace an object whole, with its metadata', async () => {
    const name = `${folder}a`;
    await objects.create(name, bytes('first'), {metadata: {by: 'us', more: 'x'}});
    const before = await objects.head(name);
    const outcome = await objects.replace(name, before?.generation ?? '', bytes('2nd'), {
      metadata: {by: 'them'},
    });
    assert.equal(outcome, 'replaced');
    const after = await objects.head(name);
    assert.deepEqual([after?.size_bytes, after?.metadata], [3, {by: 'them'}]);
    assert.ok(BigInt(after?.generation ?? 0) > BigInt(before?.generation ?? 0));
    assert.equal(text(await objects.read(name, {max_bytes: 100})), '2nd');
    assert.deepEqual(await names(), ['a']);
  });

  it('leave an object alone that is not of the generation to be replaced', async () => {
    const name = `${folder}a`;
    await objects.create(name, bytes('first'));
    const first = await objects.head(name);
    await objects.replace(name, first?.generation ?? '', bytes('second'));
    const second = await objects.head(name);
    assert.equal(await objects.replace(name, first?.generation ?? '', bytes('third')), 'changed');
    assert.deepEqual(await objects.head(name), second);
    assert.equal(text(await objects.read(name, {max_bytes: 100})), 'second');
  });

  it('make nothing where there is nothing to replace', async () => {
    assert.equal(await objects.replace(`${folder}none`, '1700000000000000', bytes('x')), 'changed');
    await objects.create(`${folder}a`, bytes('x'));
    const gone = await objects.head(`${folder}a`);
    await objects.delete(`${folder}a`);
    assert.equal(await objects.replace(`${folder}a`, gone?.generation ?? '', bytes('y')), 'changed');
    assert.deepEqual(await names(), []);
  });

  it('let only one of many replace a generation', async () => {
    await objects.create(`${folder}a`, bytes('first'));
    const {generation = ''} = (await objects.head(`${folder}a`)) ?? {};
    const racing = Array.from({length: 10}, (_, n) =>
      objects.replace(`${folder}a`, generation, bytes(`${n}`.repeat(1000))),
    );
    assert.deepEqual((await Promise.all(racing)).sort(), [...Array(9).fill('changed'), 'replaced']);
    const winner = text(await objects.read(`${folder}a`, {max_bytes: 1000})) ?? '';
    assert.match(winner, /^(\d)\1{999}$/);
  });

  for (const name of [
    'a b',
    'ü/é',
    'x%2Fy',
    '100%',
    '?a=b#c',
    'a+b',
    '\u{1f600}',
    "it's",
    '..x',
    'a//b',
    '(1)*!',
  ])
    it(`may be called ${name}`, async () => {
      assert.equal(await objects.create(folder + name, bytes(name)), 'created');
      assert.deepEqual(await names(), [name]);
      assert.equal((await objects.head(folder + name))?.name, folder + name);
      assert.equal(text(await objects.read(folder + name, {max_bytes: 100})), name);
      await objects.delete(folder + name);
      assert.deepEqual(await names(), []);
    });
}

describe('Objects: Cloud Storage', () => {
  const cloud = useLocalCloud({storage_only: true});
  let objects: Objects;
  let folder = '';

  beforeEach(() => {
    const {project, bucket, url, token} = cloud();
    objects = openObjects({project, bucket, endpoint: url, token});
    folder = `test-${folders++}/`;
  });

  itKeepsTheContract(() => {
    const {project, bucket, url, token} = cloud();
    return openObjects({project, bucket, endpoint: url, token});
  });

  async function names(prefix = folder, start?: string): Promise<string[]> {
    const found = await objects.list(prefix, start === undefined ? {} : {start});
    return found.map(({name}) => name.slice(folder.length));
  }

  it('create an object with its metadata, whole', async () => {
    const name = `${folder}shard_0001.safetensors`;
    const metadata = {run: 'my-run', samples: '12', note: 'é, "quoted"'};
    const before = Date.now();
    assert.equal(await objects.create(name, bytes('123456789'), {metadata}), 'created');
    const info = await objects.head(name);
    assert.ok(info);
    const {generation, created_at, ...rest} = info;
    // CRC-32C of "123456789" is 0xE3069283, the check value of its definition.
    assert.deepEqual(rest, {name, size_bytes: 9, crc32c: '4waSgw==', metadata});
    assert.match(generation, /^\d+$/);
    assert.equal(new Date(created_at).toISOString(), created_at);
    assert.ok(Date.parse(created_at) >= before - 1000);
    assert.equal(text(await objects.read(name, {max_bytes: 9})), '123456789');
  });

  it('are read as they are stored, gzip or not', async () => {
    const {url, token, project, bucket} = cloud();
    const name = `${folder}stream_000.jsonl`;
    const storage = new Storage({apiEndpoint: urlWithToken(url, token), projectId: project});
    await storage.bucket(bucket).file(name).save('{"text":"a"}\n', {gzip: true, resumable: false});
    const read = await objects.read(name, {max_bytes: 1000});
    assert.equal(read?.byteLength, (await objects.head(name))?.size_bytes);
    assert.equal(gunzipSync(read ?? '').toString(), '{"text":"a"}\n');
  });

  it('come all, also when there are more than one answer holds', async () => {
    const wanted = Array.from({length: 1100}, (_, n) => String(n).padStart(4, '0'));
    for (let n = 0; n < wanted.length; n += 20)
      await Promise.all(wanted.slice(n, n + 20).map(name => objects.create(folder + name, bytes(name))));
    assert.deepEqual(await names(), wanted);
    const limit = 1050;
    const some = await objects.list(folder, {limit});
    assert.deepEqual(
      some.map(({name}) => name.slice(folder.length)),
      wanted.slice(0, limit),
    );
  }).timeout(60_000);

  it('of a bucket that does not exist are an error, not an absence', async () => {
    const {project, url, token} = cloud();
    const lost = openObjects({project, bucket: 'no-such-bucket', endpoint: url, token});
    const failed = /gs:\/\/no-such-bucket\//;
    await assert.rejects(lost.list('a/'), failed);
    await assert.rejects(lost.head('a'), failed);
    await assert.rejects(lost.read('a', {max_bytes: 1}), failed);
    await assert.rejects(lost.create('a', bytes('x')), failed);
    await assert.rejects(lost.replace('a', '1', bytes('x')), failed);
    await assert.rejects(lost.delete('a'), failed);
  });
});

describe('Objects: in memory', () => {
  itKeepsTheContract(() => new MemoryObjects(Date.now, () => {}));
});
