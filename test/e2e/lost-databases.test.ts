import assert from 'node:assert/strict';
import {existsSync, readFileSync, renameSync, rmSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {DatabaseSync} from 'node:sqlite';
import {gleaner, SPEC, TestHome, texts} from '../support/machine/home.ts';

const SUFFIXES = ['', '-wal', '-shm'];

describe('a local cloud with a complete run whose database is lost or damaged @long', () => {
  let home: TestHome;
  before(async () => {
    home = await TestHome.start(1);
    await home.drop('datasets/my-run/run.json', SPEC);
    await home.drop('datasets/my-run/stream_000.jsonl', texts(20, 'a'));
    assert.equal((await home.runEnds('my-run'))?.run.status, 'completed');
  });
  after(() => home.remove());

  for (const file of ['state.db', 'cloud.db'])
    for (const damage of ['deleted', 'damaged', 'no database'])
      it(`verifies the run after ${file} was lost (${damage}) and its sentence was followed`, async () => {
        const stored = (await home.objects.list('')).map(({name, generation}) => [name, generation]);
        await home.stop();
        const whole = new DatabaseSync(join(home.dir, file));
        whole.exec('pragma wal_checkpoint(truncate)');
        whole.close();
        const paths = SUFFIXES.map(suffix => join(home.dir, `${file}${suffix}`)).filter(path =>
          existsSync(path),
        );
        const [path = ''] = paths;
        if (damage === 'deleted') for (const each of paths) rmSync(each);
        if (damage === 'damaged') writeFileSync(path, readFileSync(path).fill(0xa5, 4096));
        if (damage === 'no database') writeFileSync(path, 'no database\n'.repeat(1000));
        let says = '';
        if (damage !== 'deleted') {
          const stopped = await gleaner(['rebuild', '--dry-run', '--dir', home.dir]);
          assert.equal(stopped.code, 1);
          assert.match(stopped.stderr, new RegExp(`${file}.*away`));
          assert.doesNotMatch(stopped.stderr, /^ {4}at /m);
          const refused = await gleaner(['local', 'up', '--port', '0', '--dir', home.dir]);
          says = refused.stderr;
          assert.equal(refused.code, 1);
          assert.match(says, new RegExp(`^gleaner: Failed to use .*${file}: it is damaged`, 'm'));
          assert.doesNotMatch(says, /^ {4}at /m);
          for (const each of paths) renameSync(each, `${each}.moved`);
        }
        await home.up();
        if (file === 'state.db') {
          assert.ok(damage === 'deleted' || says.includes('gleaner rebuild'));
          const rebuilt = await gleaner(['rebuild', '--dir', home.dir]);
          assert.equal(rebuilt.code, 0, rebuilt.stderr);
        }
        const {ok, anchored, problems} = await home.verify('my-run');
        assert.deepEqual({ok, anchored, problems}, {ok: true, anchored: true, problems: []});
        const found = (await home.objects.list('')).map(({name, generation}) => [name, generation]);
        const names = new Set(found.map(String));
        assert.deepEqual(
          stored.filter(each => !names.has(String(each)) && !/manifest|system/.test(String(each))),
          [],
        );
      });
});
