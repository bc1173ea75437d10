/** Promises of the SQLite store beyond the contract: several processes, kills, limits on waiting, speed. */
import assert from 'node:assert/strict';
import {type ChildProcess, spawn} from 'node:child_process';
import {once} from 'node:events';
import {createInterface} from 'node:readline';
import {DatabaseSync} from 'node:sqlite';
import {setTimeout as sleep} from 'node:timers/promises';
import {fileURLToPath} from 'node:url';
import {openSqliteStore} from '../../shared/embedded/sqlite-store.ts';
import {Folder} from '../support/machine/folder.ts';

const WORKER = fileURLToPath(new URL('./sqlite-worker.ts', import.meta.url));

describe('the SQLite store', () => {
  const folder = new Folder();
  let file = '';
  let children: ChildProcess[] = [];

  beforeEach(() => {
    file = folder.at('new/folder/store.db');
    children = [];
  });

  afterEach(async () => {
    for (const child of children) await kill(child);
    folder.end();
  });

  function start(mode: string): ChildProcess {
    const child = spawn(process.execPath, [WORKER, mode, file], {stdio: ['ignore', 'pipe', 'inherit']});
    children.push(child);
    return child;
  }

  it('three processes that create a store and increment at once lose no increment', async () => {
    const ended = [start('increment'), start('increment'), start('increment')].map(child =>
      once(child, 'close'),
    );
    assert.deepEqual(await Promise.all(ended), [
      [0, null],
      [0, null],
      [0, null],
    ]);
    const store = openSqliteStore(file);
    assert.deepEqual(await store.get('counters/c'), {n: 300});
    await store.close();
  });

  it('a store is consistent and has every acknowledged commit after each kill -9', async () => {
    let kept = 0;
    for (let round = 0; round < 8; round++) {
      const child = start('pairs');
      const heard = lines(child, line => {
        kept = Number(line);
      });
      while (kept === 0) await sleep(1);
      await sleep(20 + Math.random() * 60);
      await kill(child);
      await heard;
      const store = openSqliteStore(file);
      const [left, right] = [await store.get('pairs/left'), await store.get('pairs/right')];
      await store.close();
      assert.equal(left?.n, right?.n);
      assert.ok(Number(left?.n) >= kept, `${left?.n} of ${kept} acknowledged commits`);
    }
    assert.deepEqual(new DatabaseSync(file).prepare('pragma integrity_check').all(), [
      Object.assign(Object.create(null), {integrity_check: 'ok'}),
    ]);
  });

  it('a writer continues once a process is killed in mid-commit, and that commit is lost whole', async () => {
    const store = openSqliteStore(file);
    await store.transaction(async tx => tx.set('runs/r', {n: 1}));
    const child = start('halfway');
    await once(child.stdout ?? child, 'data');
    assert.deepEqual(await store.get('runs/r'), {n: 1}, 'a reader does not wait for a writer');

    const waiting = store.transaction(async tx => {
      const run = await tx.get('runs/r');
      tx.set('runs/r', {n: Number(run?.n) + 1});
    });
    const first = await Promise.race([waiting.then(() => 'committed'), sleep(300).then(() => 'waiting')]);
    assert.equal(first, 'waiting', 'a writer waits without blocking its process');
    await kill(child);
    await waiting;
    assert.deepEqual(await store.get('runs/r'), {n: 2});
    assert.deepEqual(await store.query('halves'), []);
    await store.close();
  });

  it('a transaction fails with Contention when other writers win every time', async () => {
    const noPause = (): number => 0;
    const [ours, theirs] = [openSqliteStore(file, noPause), openSqliteStore(file)];
    let runs = 0;
    const losing = ours.transaction(async tx => {
      runs++;
      await tx.get('runs/r');
      await theirs.transaction(async other => other.set('runs/r', {n: runs}));
      tx.set('runs/ours', {});
    });
    await assert.rejects(losing, {name: 'Contention', message: /other writers won \d+ times/});
    assert.ok(runs > 1);
    assert.equal(await ours.get('runs/ours'), undefined);
    await ours.close();
    await theirs.close();
  });

  for (const how of ['answers', 'throws'])
    it(`work that ${how} after inconsistent reads runs again`, async () => {
      const [ours, theirs] = [openSqliteStore(file), openSqliteStore(file)];
      const both = (n: number) =>
        theirs.transaction(async tx => {
          tx.set('pairs/left', {n});
          tx.set('pairs/right', {n});
        });
      await both(1);
      let runs = 0;
      const seen = await ours.transaction(async tx => {
        const left = await tx.get('pairs/left');
        if (++runs === 1) await both(2);
        const right = await tx.get('pairs/right');
        if (how === 'throws' && left?.n !== right?.n) throw new Error('a state that never was');
        return [left, right];
      });
      assert.deepEqual(seen, [{n: 2}, {n: 2}]);
      await ours.close();
      await theirs.close();
    });

  it('a document that was deleted and created again counts as changed', async () => {
    const [ours, theirs] = [openSqliteStore(file), openSqliteStore(file)];
    await ours.transaction(async tx => tx.set('runs/r', {n: 1}));
    const seen: unknown[] = [];
    await ours.transaction(async tx => {
      seen.push((await tx.get('runs/r'))?.n);
      if (seen.length === 1) {
        await theirs.transaction(async other => other.delete('runs/r'));
        await theirs.transaction(async other => other.create('runs/r', {n: 2}));
      }
      tx.set('runs/saw', {n: Number(seen.at(-1))});
    });
    assert.deepEqual(await ours.get('runs/saw'), {n: 2});
    await ours.close();
    await theirs.close();
  });

  it('queries on 100,000 documents use an index @full', async () => {
    const store = openSqliteStore(file);
    for (let batch = 0; batch < 10; batch++)
      await store.transaction(async tx => {
        for (let n = 0; n < 10_000; n++)
          tx.create(`runs/r/streams/${batch}-${n}`, {status: n === 7 ? 'pending' : 'completed', n});
      });
    const pending = await store.query('runs/r/streams', {
      where: [{field: 'status', op: '==', value: 'pending'}],
    });
    assert.equal(pending.length, 10);
    assert.equal(await store.count('runs/r/streams'), 100_000);
    await store.close();
    const plan = new DatabaseSync(file)
      .prepare("explain query plan select data from documents where collection = 'c' order by id limit 1")
      .all();
    assert.match(String(plan.map(step => step.detail)), /^SEARCH documents USING INDEX/);
  });

  it('an error names the file that cannot be opened, and the cause', () => {
    const text = folder.put('text', 'not a database, whatever its name says'.repeat(100));
    assert.throws(() => openSqliteStore(text), /Failed to open the store .*text: .*not a database/);
    assert.throws(
      () => openSqliteStore(folder.path),
      new RegExp(`Failed to open the store ${folder.path}: `),
    );
  });

  it('an error names the file on a full disk, and committed documents stay', async () => {
    // A limit on file sizes with an ignored signal looks like a full disk to a writer.
    const limited = 'trap \'\' XFSZ; ulimit -f 4096; exec "$0" "$@"';
    const child = spawn('bash', ['-c', limited, process.execPath, WORKER, 'fill', file], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    children.push(child);
    const said: string[] = [];
    await lines(child, line => said.push(line));
    const [kept = '', failure = '', after = ''] = said;
    assert.match(failure, new RegExp(`^Error: Failed to use the store ${file}: .*(disk|full)`));
    assert.equal(after, kept);
    const store = openSqliteStore(file);
    assert.equal(String(await store.count('pages')), kept);
    await store.close();
  });

  it('a sweep deletes expired documents of the collections with a TTL, and reaches every document', async () => {
    const store = openSqliteStore(file);
    const [past, future] = ['2026-01-01T00:00:00.000Z', '2026-03-01T00:00:00.000Z'];
    const documents = {
      'events/old': past,
      'execs/command/hosts/old': past,
      'jobs/old': past,
      'events/new': future,
      'jobs/open': null,
      'runs/old': past,
    };
    await store.transaction(async tx => {
      for (const [path, expire_at] of Object.entries(documents)) tx.set(path, {expire_at});
    });
    const sweep = () => store.sweepExpired('jobs', '2026-02-01T00:00:00.000Z', 4);
    assert.deepEqual([await sweep(), await sweep(), await sweep()], [3, 0, 0]);
    const read = await Promise.all(Object.keys(documents).map(path => store.get(path)));
    assert.deepEqual(read.map(Boolean), [false, false, false, true, true, true]);
    await store.transaction(async tx => tx.set('events/new', {expire_at: past}));
    assert.equal((await sweep()) + (await sweep()), 1);
    await store.close();
  });

  it('a file of another layout is refused', async () => {
    await openSqliteStore(file).close();
    new DatabaseSync(file).exec('pragma user_version = 99');
    assert.throws(() => openSqliteStore(file), /layout is 99.*use another file/);
  });
});

async function lines(child: ChildProcess, heard: (line: string) => void): Promise<void> {
  if (!child.stdout) return;
  for await (const line of createInterface({input: child.stdout})) heard(line);
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'close');
  child.kill('SIGKILL');
  await ended;
}
