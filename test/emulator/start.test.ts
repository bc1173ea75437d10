import assert from 'node:assert/strict';
import {existsSync, mkdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs';
import {createServer} from 'node:net';
import {join} from 'node:path';
import {DatabaseSync} from 'node:sqlite';
import {type LocalCloud, LocalCloudError} from '../../emulator/cloud.ts';
import {openSqliteStore} from '../../shared/embedded/sqlite-store.ts';
import {openObjects} from '../../shared/google/objects.ts';
import {cloudState, Scratch, tokenUrl} from '../support/machine/a-cloud.ts';
import {until} from '../support/machine/until.ts';

describe('A local cloud', () => {
  const scratch = new Scratch(afterEach);

  const refusal = (code: LocalCloudError['code'], says: RegExp) => (error: unknown) => {
    assert.ok(error instanceof LocalCloudError, String(error));
    assert.equal(error.code, code);
    assert.match(error.message, says);
    return true;
  };

  it('names a port that is in use, and unlocks its folder', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await new Promise(done => other.once('listening', done));
    const {port} = other.address() as {port: number};
    const dir = scratch.dir();
    await assert.rejects(
      scratch.cloud({dir, port}),
      refusal('port-in-use', new RegExp(`127.0.0.1:${port}.*--port`)),
    );
    other.close();
    await scratch.cloud({dir});
  });

  it('names the process that uses its folder', async () => {
    const first = await scratch.cloud();
    const message = new RegExp(`process ${process.pid}, ${first.url}.*--dir`);
    await assert.rejects(scratch.cloud({dir: first.dir}), refusal('dir-in-use', message));
    await assert.rejects(scratch.cloud({dir: first.dir, storage_only: true}), refusal('dir-in-use', message));
    await first.close();
    await scratch.cloud({dir: first.dir});
  });

  it('names a folder that is a file or cannot be created', async () => {
    const file = join(scratch.dir(), 'file');
    writeFileSync(file, '');
    await assert.rejects(
      scratch.cloud({dir: file}),
      refusal('dir-unusable', /it is a file; choose a folder with --dir/),
    );
    await assert.rejects(scratch.cloud({dir: '/proc/none'}), refusal('dir-unusable', /\/proc\/none/));
  });

  for (const file of ['cloud.db', 'state.db'])
    it(`names ${file} where it is not a database, and what to do`, async () => {
      const {dir, close} = await scratch.cloud();
      await close();
      for (const suffix of ['-wal', '-shm']) rmSync(join(dir, `${file}${suffix}`), {force: true});
      writeFileSync(join(dir, file), 'this is not a database, whatever its name says. '.repeat(20));
      const says = new RegExp(`${file}: it is damaged .*move .*-wal and .*-shm away.*local up`);
      await assert.rejects(scratch.cloud({dir}), refusal('dir-unusable', says));
      if (file === 'state.db')
        assert.throws(() => openSqliteStore(join(dir, file)), /^ServiceError: .*gleaner rebuild/);
    });

  it('refuses a folder of an earlier version, and changes nothing there', async () => {
    const {dir, close} = await scratch.cloud({storage_only: true});
    await close();
    const database = new DatabaseSync(join(dir, 'cloud.db'));
    database.exec('PRAGMA user_version = 0');
    const says = new RegExp(`${dir}: an earlier version of Gleaner wrote it; .*--dir, or move this one away`);
    await assert.rejects(scratch.cloud({dir}), refusal('dir-unusable', says));
    assert.equal(database.prepare('PRAGMA user_version').get()?.user_version, 0);
    database.close();
  });

  it('finds its objects again with all that was stored of them, where cloud.db was lost', async () => {
    const first = await scratch.cloud();
    const open = ({project, url, token, bucket}: LocalCloud) =>
      openObjects({project, bucket, endpoint: url, token});
    await open(first).create('a/b', Buffer.from('one'), {
      metadata: {sha256: 'x'},
      content_type: 'text/plain',
    });
    await open(first).create('a/b/c', Buffer.from('two'));
    await open(first).create('gone', Buffer.from('gone'));
    await open(first).delete('gone');
    const before = await open(first).list('');
    await first.close();
    for (const suffix of ['', '-wal', '-shm']) rmSync(join(first.dir, `cloud.db${suffix}`), {force: true});
    const second = await scratch.cloud({dir: first.dir});
    assert.deepEqual(await open(second).list(''), before);
    assert.equal(before.length, 2);
    assert.equal(readFileSync(join(second.dir, 'buckets', second.bucket, 'a/b'), 'utf8'), 'one');
    assert.ok(scratch.log.some(line => line.includes('recovered 2 objects')));
    await open(second).create('new', Buffer.from('new'));
    assert.equal((await open(second).list('')).length, 3);
  });

  it('names the error in the file of the triggers', async () => {
    const dir = scratch.dir();
    const triggers = join(dir, 'triggers.json');
    await assert.rejects(scratch.cloud({dir, triggers}), refusal('bad-triggers', /triggers\.json/));
    writeFileSync(triggers, '{"functions":[{"name":"x","trigger":{"kind":"moon"}}]}');
    await assert.rejects(scratch.cloud({dir, triggers}), refusal('bad-triggers', /kind/));
  });

  it('restarts on its earlier port, or on another port when that port is in use', async () => {
    const first = await scratch.cloud();
    await first.close();
    const second = await scratch.cloud({dir: first.dir});
    assert.equal(second.port, first.port);
    assert.equal(second.pubsub_endpoint, first.pubsub_endpoint);
    await second.close();
    const other = createServer().listen(first.port, '127.0.0.1');
    await new Promise(done => other.once('listening', done));
    const third = await scratch.cloud({dir: first.dir});
    assert.notEqual(third.port, first.port);
    other.close();
  });

  it('lists its addresses, files and state for a client with its token', async () => {
    const cloud = await scratch.cloud({project: 'my-project', bucket: 'my-bucket'});
    const {url, dir, pubsub_endpoint} = cloud;
    assert.deepEqual(await cloudState(cloud), {
      ...{url, dir, pubsub_endpoint, project: 'my-project', bucket: 'my-bucket'},
      store_file: join(dir, 'state.db'),
      ...{tpus: [], queued_resources: [], scheduler: 'ENABLED', faults: []},
      ...{deliveries_pending: 0, dead_letters: []},
    });
  });

  it('injects faults over HTTP, and lists the known names in the answer to an unknown name', async () => {
    const cloud = await scratch.cloud();
    const fault = async (body: string) => {
      const answer = await fetch(`${tokenUrl(cloud)}/_local/faults`, {method: 'POST', body});
      return {status: answer.status, text: await answer.text()};
    };
    assert.match((await fault('{"kind":"stockout","target":"us-central1-a"}')).text, /no more capacity/);
    for (const [body, says] of [
      ['{"kind":"flood"}', /Unknown fault \\"flood\\"; `gleaner local fault help` lists/],
      ['{"kind":"stockout","target":"mars-north1-a"}', /mars-north1-a.*us-central1-a/],
      ['{"kind":"preempt","target":"nothing"}', /Unknown TPU \\"nothing\\"/],
      ['{"kind":"drop","target":"rain"}', /Unknown target \\"rain\\".*object, control, tpu/],
      ['{"kind":"drop","target":"object=2"}', /Bad rate \\"2\\"/],
      ['{"kind":"drop","target":"object="}', /Bad rate \\"\\"/],
      ['{"kind":"slow-create","target":"all=-1"}', /Bad amount \\"-1\\"/],
      ['{"kind":"clear","target":"everything"}', /Cannot clear \\"everything\\"/],
      ['{"kind":7}', /kind/],
      ['nonsense', /Failed to parse/],
    ] as const) {
      const answer = await fault(body);
      assert.equal(answer.status, 400, body);
      assert.match(answer.text, says);
    }
    assert.match((await fault('{"kind":"clear","target":"all"}')).text, /cleared 1 fault"/);
  });

  it('keeps lasting faults over a restart', async () => {
    const first = await scratch.cloud();
    await first.fault('drop', 'object=0.5');
    await first.close();
    const second = await scratch.cloud({dir: first.dir});
    const {faults} = await cloudState<{faults: object[]}>(second);
    assert.deepEqual(faults, [{kind: 'drop', target: 'object', amount: 0.5}]);
  });

  it('shuts down on request and ends its function host', async () => {
    const {cloud, seen} = await scratch.cloudWithFunctions();
    await fetch(`${tokenUrl(cloud)}/upload/storage/v1/b/${cloud.bucket}/o?uploadType=media&name=datasets/a`, {
      method: 'POST',
      body: 'a',
    });
    const host = await until('the function host got a call', () => seen()[0]?.pid);
    await fetch(`${tokenUrl(cloud)}/_local/shutdown`, {method: 'POST'});
    await cloud.closed;
    await assert.rejects(fetch(`${cloud.url}/_local`));
    assert.throws(() => process.kill(host, 0), {code: 'ESRCH'});
    await cloud.close();
  });

  it('has only Cloud Storage with the option storage_only', async () => {
    const cloud = await scratch.cloud({storage_only: true});
    assert.equal((await fetch(`${tokenUrl(cloud)}/storage/v1/b/${cloud.bucket}`)).status, 200);
    assert.equal((await fetch(`${tokenUrl(cloud)}/v1/projects/${cloud.project}/topics`)).status, 404);
    await assert.rejects(cloud.fault('stockout', 'all'), refusal('bad-fault', /storage only/));
  });

  it('removes the files of interrupted uploads and of deleted VMs, and keeps open resumable uploads', async () => {
    const first = await scratch.cloud();
    const upload = `${tokenUrl(first)}/upload/storage/v1/b/${first.bucket}/o`;
    await fetch(`${upload}?uploadType=media&name=kept`, {method: 'POST', body: 'kept'});
    const begun = await fetch(`${upload}?uploadType=resumable&name=later`, {method: 'POST'});
    const location = begun.headers.get('location') ?? '';
    await fetch(location, {method: 'PUT', body: 'half', headers: {'content-range': 'bytes 0-3/8'}});
    await first.close();
    writeFileSync(join(first.dir, 'blobs', '123'), 'an orphan');
    writeFileSync(join(first.dir, 'uploads', 'draft-x'), 'half of somet');
    mkdirSync(join(first.dir, 'vms', '42'), {recursive: true});

    const second = await scratch.cloud({dir: first.dir});
    assert.equal(existsSync(join(first.dir, 'blobs', '123')), false);
    assert.equal(existsSync(join(first.dir, 'uploads', 'draft-x')), false);
    assert.equal(existsSync(join(first.dir, 'vms', '42')), false);
    const answer = await fetch(location, {
      method: 'PUT',
      body: ' and',
      headers: {'content-range': 'bytes 4-7/8'},
    });
    assert.equal(answer.status, 200);
    const read = async (name: string) => (await fetch(`${tokenUrl(second)}/${second.bucket}/${name}`)).text();
    assert.equal(await read('later'), 'half and');
    assert.equal(await read('kept'), 'kept');
    await until(
      'the file of the upload is gone',
      () => !existsSync(join(first.dir, 'uploads', location.split('upload_id=')[1] ?? '')),
    );
  });
});
