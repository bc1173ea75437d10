import assert from 'node:assert/strict';
import {spawnSync} from 'node:child_process';
import {existsSync, mkdirSync} from 'node:fs';
import {join} from 'node:path';
import {lockFolder} from '../../../emulator/state/database.ts';
import * as command from '../../support/machine/command.ts';
import {Folder} from '../../support/machine/folder.ts';
import {gleaner} from '../../support/machine/home.ts';

const KEPT = '.gleaner/demo/kept';

/** Writes results of an earlier demo into the default folder below `place`. */
function leaveDemo(folder: Folder, place = '.'): void {
  lockFolder(folder.at(join(place, '.gleaner/demo'))).release();
  folder.put(join(place, '.gleaner/demo/cloud.db'), '');
  folder.put(join(place, KEPT), 'a shard');
}

describe('gleaner demo @full', () => {
  const folder = new Folder();
  const run = (args: string[], env = {}) => gleaner(args, {cwd: folder.path, env});
  beforeEach(() => leaveDemo(folder));
  afterEach(() => folder.end());

  for (const [config, says] of [
    ['{bad', /^gleaner: m\/config\.json is not JSON: .*\n$/],
    ['null', /^gleaner: m\/config\.json is not valid: expected an object, got null\n$/],
    ['{"hidden_size": "many"}', /^gleaner: m\/config\.json is not valid: hidden_size: expected a number/],
  ] as const)
    it(`gleaner demo keeps the results of an earlier demo when config.json of the model is ${config}`, async () => {
      folder.put('m/config.json', config);
      const {code, stderr} = await command.gleaner(['demo', '--model', 'm'], {cwd: folder.path});
      assert.equal(code, 1);
      assert.match(stderr, says);
      assert.ok(existsSync(folder.at(KEPT)));
    });

  it('gleaner demo keeps the results of an earlier demo when the Python environment fails, and prints plain lines', async () => {
    const {code, stdout, stderr} = await run(['demo'], {XDG_CACHE_HOME: '/dev/null'});
    assert.equal(code, 1);
    assert.match(stderr, /^gleaner: Failed to prepare Python \(exit 1\): .*\/dev\/null.*\n$/);
    assert.ok(existsSync(folder.at(KEPT)));
    assert.match(stdout, /^Preparing the Python environment .* … 0 s$/m);
    assert.match(stdout, /^mkdir: .*[^0-9s]$/m);
  });

  it('gleaner demo keeps the results of an earlier demo on a full disk', async function () {
    const disk = folder.at('disk');
    mkdirSync(disk);
    if (spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=24m', 'tmpfs', disk]).status !== 0) {
      console.log('  skipped: only root can mount a small disk');
      this.skip();
    }
    try {
      leaveDemo(folder, 'disk');
      const {code, stderr} = await command.gleaner(['demo'], {cwd: disk});
      assert.equal(code, 1);
      assert.match(stderr, /^gleaner: The folder .* is full \(\d\d MB free, a worker needs 700\)/);
      assert.ok(existsSync(join(disk, KEPT)));
    } finally {
      spawnSync('umount', [disk]);
    }
  });

  for (const file of ['some-file', '/dev/null'])
    it(`gleaner demo answers --dir ${file}, which is not a folder, with one line`, async () => {
      folder.put('some-file', '');
      const {code, stderr} = await command.gleaner(['demo', '--dir', file], {cwd: folder.path});
      assert.equal(code, 1);
      assert.match(stderr, /^gleaner: Failed to read .*: ENOTDIR: .*; choose a folder with --dir\n$/);
    });
});
