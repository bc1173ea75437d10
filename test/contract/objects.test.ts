import assert from 'node:assert/strict';
import {gunzipSync} from 'node:zlib';
import {Storage} from '@google-cloud/storage';
import {urlWithToken} from '../../emulator/http/guard.ts';
import {openObjects} from '../../shared/google/objects.ts';
import type {Objects} from '../../shared/ports/ports.ts';
import {FakeBucket} from '../world/bucket.ts';
import {callAtOnce} from '../world/call.ts';
import {useLocalCloud} from './local-cloud.ts';
import {bytes, itKeepsTheContract, text} from './objects-contract.ts';

let folders = 0;

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

  /** Uploads small objects without the client, whose calls take several times as long. */
  async function upload(all: readonly string[]): Promise<void> {
    const {bucket, url, token} = cloud();
    for (const name of all) {
      const query = new URLSearchParams({uploadType: 'media', name});
      const to = `${url}/upload/storage/v1/b/${bucket}/o?${query}`;
      const headers = {authorization: `Bearer ${token}`};
      const answer = await fetch(to, {method: 'POST', headers, body: 'x'});
      assert.equal(answer.status, 200, await answer.text());
    }
  }

  it('create stores an object with its metadata', async () => {
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

  it('read returns the stored bytes of a gzip object', async () => {
    const {url, token, project, bucket} = cloud();
    const name = `${folder}stream_000.jsonl`;
    const storage = new Storage({apiEndpoint: urlWithToken(url, token), projectId: project});
    await storage.bucket(bucket).file(name).save('{"text":"a"}\n', {gzip: true, resumable: false});
    const read = await objects.read(name, {max_bytes: 1000});
    assert.equal(read?.byteLength, (await objects.head(name))?.size_bytes);
    assert.equal(gunzipSync(read ?? '').toString(), '{"text":"a"}\n');
  });

  it('a list returns every object, over several pages @full', async () => {
    const wanted = Array.from({length: 1100}, (_, n) => String(n).padStart(4, '0'));
    await upload(wanted.map(name => folder + name));
    assert.deepEqual(await names(), wanted);
    const limit = 1050;
    const some = await objects.list(folder, {limit});
    assert.deepEqual(
      some.map(({name}) => name.slice(folder.length)),
      wanted.slice(0, limit),
    );
  });

  it('a missing bucket is an error, not a missing object', async () => {
    const {project, url, token} = cloud();
    const lost = openObjects({project, bucket: 'no-such-bucket', endpoint: url, token});
    const failed = /gs:\/\/no-such-bucket\/.*; create the bucket no-such-bucket, or correct GLEANER_BUCKET$/;
    await assert.rejects(lost.list('a/'), failed);
    await assert.rejects(lost.head('a'), failed);
    await assert.rejects(lost.read('a', {max_bytes: 1}), failed);
    await assert.rejects(lost.create('a', bytes('x')), failed);
    await assert.rejects(lost.replace('a', '1', bytes('x')), failed);
    await assert.rejects(lost.delete('a'), failed);
  });
});

describe('Objects: in memory', () => {
  itKeepsTheContract(() => new FakeBucket(Date.now).through(callAtOnce));
});
