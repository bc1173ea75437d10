import assert from 'node:assert/strict';
import {spawnSync} from 'node:child_process';
import {mkdirSync} from 'node:fs';
import {gleaner} from '../../../support/machine/command.ts';
import {Folder} from '../../../support/machine/folder.ts';

describe('The creation of streams on a full disk @full', () => {
  let folder: Folder;
  let disk: string;
  before(function () {
    folder = new Folder();
    disk = folder.at('disk');
    mkdirSync(disk);
    if (spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=8m', 'tmpfs', disk]).status !== 0) {
      console.log('  skipped: only root can mount a small disk');
      this.skip();
    }
  });
  after(() => {
    spawnSync('umount', [disk]);
    folder.end();
  });

  for (const more of [[], ['--shuffle-seed', '1']])
    it(`the creation of streams on a full disk names the folder, says what to do, and leaves no folder ${more.join(' ')}`, async () => {
      const source = folder.put('in.jsonl', `{"text":"${'x'.repeat(99_988)}"}\n`.repeat(120));
      const output = folder.at('disk/out');
      const args = ['streams', 'create', source, '--num-streams', '4', '--output-dir', output, ...more];
      const {code, stdout, stderr} = await gleaner(args);
      assert.deepEqual([code, stdout], [1, '']);
      assert.match(stderr, /gleaner: Failed to write into .*\/disk\/out: the disk is full; free some space/);
      assert.deepEqual(folder.names('disk'), []);
    });
});
