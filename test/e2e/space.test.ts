import assert from 'node:assert/strict';
import {spawnSync} from 'node:child_process';
import {mkdtempSync, rmdirSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {watchSpace} from '../../cli/local/space.ts';
import {gleaner} from '../support/command.ts';

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

  it('is reported when the disk is full', async () => {
    const {full, end} = watchSpace(dir);
    writeFileSync(join(dir, 'ballast'), Buffer.alloc(20 << 20));
    await assert.rejects(full, /is full \(\d MB free\): free some space and start again/);
    end();
  });
});
