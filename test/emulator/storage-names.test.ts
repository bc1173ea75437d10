import assert from 'node:assert/strict';
import {existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync} from 'node:fs';
import {basename, join, resolve, sep} from 'node:path';
import fc from 'fast-check';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {BucketView} from '../../emulator/storage/view.ts';
import {put, Scratch, tokenUrl} from '../support/machine/a-cloud.ts';

/** Random path segments, among them segments with a meaning for paths, URLs and shells. */
const segment = fc.oneof(
  fc.constantFrom(
    '',
    '.',
    '..',
    '...',
    '%2e%2e',
    '%2F',
    ' ',
    '~',
    'con',
    '\\',
    'a'.repeat(300),
    '\0',
    '#',
    '?',
    '+',
    '%',
  ),
  fc.constantFrom(
    'o',
    'b',
    'compose',
    'rewriteTo',
    '$(touch x)',
    '-rf',
    'ä',
    'ä',
    '\u{1f600}',
    '\u202e',
    '\ufeff',
    '`',
    '"',
  ),
  fc.string({unit: 'grapheme', maxLength: 12}),
  fc.string({unit: 'binary', maxLength: 12}),
);
const objectName = fc
  .array(segment, {minLength: 1, maxLength: 6})
  .map(segments => segments.join('/'))
  .filter(name => {
    const isAllowed = name !== '.' && name !== '..' && !/[\r\n]/.test(name) && name.isWellFormed();
    return isAllowed && name !== '' && Buffer.byteLength(name) <= 1024;
  });

describe('An object name', () => {
  const scratch = new Scratch(after);
  let parent: string;
  let cloud: LocalCloud;
  before(async () => {
    parent = scratch.dir();
    cloud = await scratch.cloud({storage_only: true, dir: join(parent, 'a', 'b')});
  });

  const path = (name: string) =>
    `${tokenUrl(cloud)}/storage/v1/b/${cloud.bucket}/o/${encodeURIComponent(name)}`;
  const upload = (name: string, body: string) => put(cloud, name, body);
  const names = async (): Promise<string[]> => {
    const found: string[] = [];
    for (let token = ''; ; ) {
      const list = await fetch(
        `${tokenUrl(cloud)}/storage/v1/b/${cloud.bucket}/o?maxResults=7&pageToken=${token}`,
      );
      const page = (await list.json()) as {items?: {name: string}[]; nextPageToken?: string};
      found.push(...(page.items ?? []).map(item => item.name));
      if (!page.nextPageToken) return found;
      token = page.nextPageToken;
    }
  };

  it('of every allowed form can be written, read, listed and deleted, and changes no file outside the folder', async () => {
    // The folder exists after the first name that is a path.
    const view = join(cloud.dir, 'buckets', cloud.bucket);
    const shown = () => (existsSync(view) ? readdirSync(view) : []);
    await fc.assert(
      fc.asyncProperty(fc.uniqueArray(objectName, {minLength: 1, maxLength: 12}), async written => {
        for (const [i, name] of written.entries()) {
          const answer = await upload(name, `bytes ${i}`);
          assert.equal(answer.status, 200, await answer.text());
        }
        for (const [i, name] of written.entries()) {
          assert.equal(await (await fetch(`${path(name)}?alt=media`)).text(), `bytes ${i}`);
          const resource = (await (await fetch(path(name))).json()) as {name: string};
          assert.equal(resource.name, name);
        }
        const sorted = written.toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
        assert.deepEqual(await names(), sorted);
        for (const name of written) assert.equal((await fetch(path(name), {method: 'DELETE'})).status, 204);
        assert.deepEqual(await names(), []);
        assert.deepEqual(shown(), []);
        assert.deepEqual(readdirSync(join(cloud.dir, 'blobs')), []);
      }),
      {numRuns: 60},
    );
    assert.deepEqual([readdirSync(parent), readdirSync(join(parent, 'a'))], [['a'], ['b']]);
  });

  it('is folded at the delimiter of a list, in pages of every size', async () => {
    const short = fc.array(fc.constantFrom('a', 'b', '/', 'ä', '//'), {minLength: 1, maxLength: 6});
    await fc.assert(
      fc.asyncProperty(
        fc.uniqueArray(
          short.map(parts => parts.join('')),
          {minLength: 1, maxLength: 20},
        ),
        fc.constantFrom('', 'a', 'a/', '/', 'b/a'),
        fc.integer({min: 1, max: 5}),
        async (written, prefix, maxResults) => {
          for (const name of written) await upload(name, 'x');
          const expected = {items: new Set<string>(), prefixes: new Set<string>()};
          for (const name of written.filter(candidate => candidate.startsWith(prefix))) {
            const cut = name.indexOf('/', prefix.length);
            if (cut < 0) expected.items.add(name);
            else expected.prefixes.add(name.slice(0, cut + 1));
          }
          const listed = {items: [] as string[], prefixes: [] as string[]};
          for (let token: string | undefined = ''; token !== undefined; ) {
            const query: string = new URLSearchParams({
              ...{prefix, delimiter: '/', maxResults: String(maxResults), pageToken: token},
            }).toString();
            const answer = await fetch(`${tokenUrl(cloud)}/storage/v1/b/${cloud.bucket}/o?${query}`);
            const page = (await answer.json()) as {
              items?: {name: string}[];
              prefixes?: string[];
              nextPageToken?: string;
            };
            const size = (page.items?.length ?? 0) + (page.prefixes?.length ?? 0);
            assert.ok(size <= maxResults && (size > 0 || token === ''));
            listed.items.push(...(page.items ?? []).map(item => item.name));
            listed.prefixes.push(...(page.prefixes ?? []));
            token = page.nextPageToken;
          }
          for (const name of written) await fetch(path(name), {method: 'DELETE'});
          assert.deepEqual(listed.items.toSorted(), [...expected.items].toSorted());
          assert.deepEqual(listed.prefixes.toSorted(), [...expected.prefixes].toSorted());
        },
      ),
      {numRuns: 60},
    );
  });

  it('has a file in the view exactly when it is a path inside its bucket', () => {
    const dir = scratch.dir();
    const view = new BucketView(dir);
    const root = join(dir, 'buckets', 'a-bucket') + sep;
    fc.assert(
      fc.property(objectName, name => {
        const file = view.path('a-bucket', name);
        if (file === undefined) return;
        assert.ok(resolve(file) === file && file.startsWith(root), file);
        assert.equal(file.slice(root.length), name);
      }),
      {numRuns: 3000},
    );
    assert.equal(view.path('a-bucket', '../x'), undefined);
    assert.equal(view.path('a-bucket', 'a/../../x'), undefined);
    assert.equal(view.path('a-bucket', '/etc/passwd'), undefined);
    assert.equal(view.path('..', 'x'), undefined);
  });

  it('that is a folder of another object is stored although only one of them is a file in the view', async () => {
    await upload('both', 'file');
    await upload('both/inside', 'deeper');
    await upload('both/', 'folder');
    for (const [name, text] of Object.entries({both: 'file', 'both/inside': 'deeper', 'both/': 'folder'})) {
      assert.equal(await (await fetch(`${path(name)}?alt=media`)).text(), text);
    }
    assert.equal(readFileSync(join(cloud.dir, 'buckets', cloud.bucket, 'both'), 'utf8'), 'file');
  });

  it('is deleted when a person removes its file from the view, and has the bytes of a file in its place', async () => {
    await Promise.all(['run/a', 'run/b', 'run/c'].map(name => upload(name, name)));
    const view = join(cloud.dir, 'buckets', cloud.bucket, 'run');
    rmSync(join(view, 'a'));
    rmSync(join(view, 'b'));
    writeFileSync(join(view, 'b'), 'edited');
    assert.deepEqual(
      (await names()).filter(name => name.startsWith('run/')),
      ['run/b', 'run/c'],
    );
    assert.equal((await fetch(path('run/a'))).status, 404);
    assert.equal(await (await fetch(`${path('run/b')}?alt=media`)).text(), 'edited');
    assert.equal((await upload('run/a', 'again')).status, 200);
    rmSync(view, {recursive: true});
    for (const name of ['run/a', 'run/b', 'run/c']) assert.equal((await fetch(path(name))).status, 404);
  });

  it('gets its file in the view back after a restart', async () => {
    const dir = scratch.dir();
    const first = await scratch.cloud({storage_only: true, dir});
    const bucket = join(dir, 'buckets', first.bucket);
    for (const name of ['kept/a', 'kept/b']) {
      await fetch(
        `${tokenUrl(first)}/upload/storage/v1/b/${first.bucket}/o?uploadType=media&name=${encodeURIComponent(name)}`,
        {method: 'POST', body: name},
      );
    }
    await first.close();
    rmSync(join(bucket, 'kept/a'));
    rmSync(join(bucket, 'kept/b'));
    writeFileSync(join(bucket, 'kept/b'), 'forged');
    writeFileSync(join(bucket, 'stray'), 'not an object');
    await scratch.cloud({storage_only: true, dir});
    assert.equal(readFileSync(join(bucket, 'kept/a'), 'utf8'), 'kept/a');
    assert.equal(readFileSync(join(bucket, 'kept/b'), 'utf8'), 'kept/b');
    assert.equal(existsSync(join(bucket, 'stray')), false);
    const [when = ''] = readdirSync(join(dir, 'not-objects'));
    const aside = join(dir, 'not-objects', when, basename(bucket), 'stray');
    assert.equal(readFileSync(aside, 'utf8'), 'not an object');
    assert.equal(statSync(join(bucket, 'kept/a')).nlink, 2);
  });
});
