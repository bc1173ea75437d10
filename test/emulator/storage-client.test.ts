import assert from 'node:assert/strict';
import {createHash, randomBytes} from 'node:crypto';
import {existsSync, readFileSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {pipeline} from 'node:stream/promises';
import {type Bucket, Storage} from '@google-cloud/storage';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {Scratch, tokenUrl} from '../support/machine/a-cloud.ts';

describe('Cloud Storage through @google-cloud/storage', () => {
  const scratch = new Scratch(after);
  let cloud: LocalCloud;
  let bucket: Bucket;
  before(async () => {
    cloud = await scratch.cloud({storage_only: true});
    bucket = new Storage({apiEndpoint: tokenUrl(cloud), projectId: cloud.project}).bucket(cloud.bucket);
  });

  for (const {name, size, options} of [
    {name: 'in one request', size: 5_000, options: {resumable: false}},
    {name: 'of zero bytes', size: 0, options: {resumable: false}},
    {name: 'in one resumable piece', size: 3_000_000, options: {resumable: true}},
    {name: 'of zero bytes, resumable', size: 0, options: {resumable: true}},
    {name: 'in resumable chunks', size: 3_000_000, options: {resumable: true, chunkSize: 256 * 1024}},
  ]) {
    it(`returns the bytes of an upload ${name}, with checksums on both sides`, async () => {
      const bytes = randomBytes(size);
      const file = bucket.file(`up/${name}`);
      await file.save(bytes, {validation: 'crc32c', ...options});
      const [back] = await file.download({validation: 'crc32c'});
      assert.ok(back.equals(bytes));
      const [metadata] = await file.getMetadata();
      assert.equal(metadata.size, String(size));
      assert.equal(metadata.md5Hash, createHash('md5').update(bytes).digest('base64'));
    });
  }

  it('stores a byte stream of unknown length', async () => {
    const file = bucket.file('up/stream');
    await pipeline(
      (async function* () {
        for (let i = 0; i < 50; i++) yield Buffer.alloc(10_000, i);
      })(),
      file.createWriteStream({resumable: true}),
    );
    const [back] = await file.download();
    assert.equal(back.length, 500_000);
    assert.equal(back[499_999], 49);
  });

  it('delivers a refusal while the client still sends bytes', async () => {
    const name = 'refused early';
    const options = {resumable: false, preconditionOpts: {ifGenerationMatch: 0}};
    await bucket.file(name).save('first', options);
    for (let i = 0; i < 20; i++)
      await assert.rejects(bucket.file(name).save(Buffer.alloc(2_000_000, i), options), {code: 412});
  });

  it('answers 412 to the second creator of a name and keeps the first object', async () => {
    const file = bucket.file('once');
    for (const resumable of [false, true]) {
      const name = `once ${resumable}`;
      const options = {resumable, preconditionOpts: {ifGenerationMatch: 0}};
      await bucket.file(name).save('first', options);
      await assert.rejects(bucket.file(name).save('second', options), {code: 412});
      assert.equal(String((await bucket.file(name).download())[0]), 'first');
    }
    assert.deepEqual(await file.exists(), [false]);
  });

  it('gives each overwrite a higher generation and keeps only the newest generation', async () => {
    const file = bucket.file('over');
    await file.save('one', {resumable: false});
    const first = Number((await file.getMetadata())[0].generation);
    await file.save('two', {resumable: false});
    const second = Number((await file.getMetadata())[0].generation);
    assert.ok(second > first);
    await assert.rejects(bucket.file('over', {generation: first}).download(), {code: 404});
    assert.equal(String((await bucket.file('over', {generation: second}).download())[0]), 'two');
  });

  it('keeps custom metadata, merges a patch and removes a key with the value null', async () => {
    const file = bucket.file('meta');
    const metadata = {contentType: 'application/jsonl', metadata: {run: 'my-run', samples: '12'}};
    await file.save('x', {resumable: false, metadata});
    await file.setMetadata({metadata: {samples: '13', run: null, more: 'ja'}});
    const [read] = await file.getMetadata();
    assert.deepEqual(read.metadata, {samples: '13', more: 'ja'});
    assert.equal(read.contentType, 'application/jsonl');
    assert.equal(read.metageneration, '2');
  });

  it('lists objects by prefix, folder, page and offset, in byte order', async () => {
    const names = ['l/a', 'l/b/1', 'l/b/2', 'l/c', 'l/ä', 'l/\u{1f600}', 'l/\uffff', 'm/z'];
    for (const name of names) await bucket.file(name).save('x', {resumable: false});
    const listed = async (query: object) => (await bucket.getFiles(query))[0].map(file => file.name);
    assert.deepEqual(await listed({prefix: 'l/'}), [
      ...['l/a', 'l/b/1', 'l/b/2', 'l/c', 'l/ä', 'l/\uffff', 'l/\u{1f600}'],
    ]);
    assert.deepEqual(await listed({prefix: 'l/', startOffset: 'l/b/2', endOffset: 'l/ä'}), ['l/b/2', 'l/c']);
    const paged: string[] = [];
    const folders: string[] = [];
    let query: object | null = {prefix: 'l/', delimiter: '/', maxResults: 2, autoPaginate: false};
    let pages = 0;
    while (query) {
      const [files, next, answer] = (await bucket.getFiles(query)) as [
        {name: string}[],
        object,
        {prefixes?: string[]},
      ];
      paged.push(...files.map(file => file.name));
      folders.push(...(answer.prefixes ?? []));
      query = next;
      pages++;
    }
    assert.deepEqual(paged, ['l/a', 'l/c', 'l/ä', 'l/\uffff', 'l/\u{1f600}']);
    assert.deepEqual(folders, ['l/b/']);
    assert.equal(pages, 3);
    assert.deepEqual(await listed({prefix: 'nothing'}), []);
  });

  it('copies, moves and composes objects', async () => {
    const a = bucket.file('parts/a');
    const b = bucket.file('parts/b');
    await a.save('left-', {resumable: false, metadata: {metadata: {k: 'v'}}});
    await b.save('right', {resumable: false});
    await a.copy(bucket.file('parts/copy'));
    assert.deepEqual((await bucket.file('parts/copy').getMetadata())[0].metadata, {k: 'v'});
    await bucket.combine(['parts/a', 'parts/b'], 'parts/whole');
    assert.equal(String((await bucket.file('parts/whole').download())[0]), 'left-right');
    const [whole] = await bucket.file('parts/whole').getMetadata();
    assert.equal(whole.md5Hash, undefined);
    assert.equal(whole.componentCount, 2);
    await bucket.file('parts/copy').move('parts/moved');
    assert.deepEqual(await bucket.file('parts/copy').exists(), [false]);
    assert.deepEqual(await bucket.file('parts/moved').exists(), [true]);
  });

  it('deletes an object once and under conditions', async () => {
    const file = bucket.file('gone');
    await file.save('x', {resumable: false});
    await assert.rejects(file.delete({ifGenerationMatch: 1}), {code: 412});
    await file.delete();
    await assert.rejects(file.delete(), {code: 404});
    await file.delete({ignoreNotFound: true});
  });

  it('creates buckets and answers 404 with the name of an unknown bucket', async () => {
    const storage = new Storage({apiEndpoint: tokenUrl(cloud), projectId: cloud.project});
    assert.deepEqual(await bucket.exists(), [true]);
    assert.deepEqual(await storage.bucket('not-there').exists(), [false]);
    await assert.rejects(storage.bucket('not-there').file('x').save('x', {resumable: false}), /not-there/);
    await storage.createBucket('another-one');
    assert.deepEqual(
      (await storage.getBuckets())[0].map(({name}) => name),
      ['another-one', cloud.bucket],
    );
    await assert.rejects(storage.createBucket('another-one'), {code: 409});
  });

  it('shows objects as files', async () => {
    const shown = join(cloud.dir, 'buckets', cloud.bucket, 'view', 'a.txt');
    await bucket.file('view/a.txt').save('look', {resumable: false});
    assert.equal(readFileSync(shown, 'utf8'), 'look');
    await bucket.file('view/a.txt').save('look again', {resumable: false});
    assert.equal(readFileSync(shown, 'utf8'), 'look again');
    await bucket.file('view/a.txt').delete();
    assert.equal(existsSync(join(cloud.dir, 'buckets', cloud.bucket, 'view')), false);
  });

  it('stores 150 MiB with less than 100 MiB in memory', async () => {
    const path = join(scratch.dir(), 'large');
    writeFileSync(path, Buffer.alloc(150 << 20, 'gleaner'));
    const before = process.memoryUsage().arrayBuffers;
    let most = 0;
    const watch = setInterval(() => {
      most = Math.max(most, process.memoryUsage().arrayBuffers - before);
    }, 5);
    await bucket.upload(path, {destination: 'large', resumable: true, validation: false});
    clearInterval(watch);
    const [metadata] = await bucket.file('large').getMetadata();
    assert.equal(metadata.size, String(150 << 20));
    assert.ok(most < 100 << 20, `held ${most} bytes`);
  });
});
