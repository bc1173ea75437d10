import assert from 'node:assert/strict';
import {chmodSync, writeFileSync} from 'node:fs';
import {list} from 'tar';
import {packFolder} from '../../../cli/python/bundle.ts';
import {Folder} from '../../support/machine/folder.ts';

describe('A packed folder', () => {
  const folder = new Folder(afterEach);

  it('a packed folder opens private files to every user, and keeps what can be executed', async () => {
    for (const [name, mode] of Object.entries({'main.py': 0o600, 'run.sh': 0o700})) {
      chmodSync(folder.put(name, ''), mode);
    }
    const [archive, modes] = [folder.at('packed.tar.gz'), new Map<string, number | undefined>()];
    writeFileSync(archive, (await packFolder(folder.path)).bytes);
    list({file: archive, sync: true, onReadEntry: ({path, mode}) => void modes.set(path, mode)});
    assert.deepEqual(Object.fromEntries(modes), {'./main.py': 0o644, './run.sh': 0o755});
  });
});
