import assert from 'node:assert/strict';
import {spawnSync} from 'node:child_process';
import {mkdirSync, mkdtempSync, readdirSync, rmdirSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {watchSpace} from '../../cli/local/space.ts';
import {gleaner} from '../support/machine/command.ts';
import {GLEANER} from '../support/machine/process.ts';

describe('The folder of a local cloud on a small disk', () => {
  let dir: string;
  before(function () {
    dir = mkdtempSync(join(tmpdir(), 'gleaner-disk-'));
    if (spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=24m', 'tmpfs', dir]).status !== 0) {
      console.log('  skipped: only root can mount a small disk');
      this.skip();
    }
  });
  after(() => {
    spawnSync('umount', [dir]);
    rmdirSync(dir);
  });

  it('is refused at the start with its free space', async () => {
    for (const args of [['local', 'up', '--port', '0'], ['demo']]) {
      const {code, stderr} = await gleaner([...args, '--dir', join(dir, 'home')]);
      assert.equal(code, 1);
      assert.match(stderr, /home is full \(\d\d MB free, a worker needs 700\): free some space/);
    }
  });

  it('removes what dead attempts left before it counts the free space', async () => {
    const jobs = join(dir, 'home', 'vms', '7', 'jobs');
    for (const folder of ['a-e1/artifacts', 'tmp-1', 'programs'])
      mkdirSync(join(jobs, folder), {recursive: true, mode: 0o700});
    for (const file of ['a-e1/artifacts/x', 'a-e1/.y', 'tmp-1/z', 'programs/kept'])
      writeFileSync(join(jobs, file), Buffer.alloc(4 << 20));
    const {stderr} = await gleaner(['local', 'up', '--adopt', '--port', '0', '--dir', join(dir, 'home')]);
    assert.match(stderr, /home is full \((19|20) MB free/);
    assert.deepEqual(readdirSync(join(jobs, 'a-e1')), []);
    assert.deepEqual(readdirSync(jobs).sort(), ['a-e1', 'programs', 'tmp-1']);
    rmSync(join(dir, 'home'), {recursive: true});
  });

  it('is reported when the disk is full', async () => {
    const {full, end} = watchSpace(dir);
    writeFileSync(join(dir, 'ballast'), Buffer.alloc(20 << 20));
    await assert.rejects(full, /is full \(\d MB free\): free some space and start again/);
    end();
  });
});

describe('A local cloud in a shell that lets a process open few files', () => {
  it('is refused at the start with the limit and the command that raises it', () => {
    const dir = mkdtempSync(join(tmpdir(), 'gleaner-files-'));
    const command = 'ulimit -n 64 && exec "$@"';
    const start = [process.execPath, GLEANER, 'local', 'up', '--port', '0', '--dir', join(dir, 'cloud')];
    const {status, stderr} = spawnSync('bash', ['-c', command, 'bash', ...start], {encoding: 'utf8'});
    rmSync(dir, {recursive: true});
    assert.match(stderr, /lets a process open 64 files, and a local cloud needs 256: raise .*`ulimit -n`/);
    assert.equal(status, 1);
  });
});
