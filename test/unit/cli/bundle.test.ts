import assert from 'node:assert/strict';
import {chmodSync, mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {list} from 'tar';
import {packFolder} from '../../../cli/python/bundle.ts';

describe('A packed folder', () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'gleaner-bundle-'));
  });
  afterEach(() => rmSync(folder, {recursive: true, force: true}));

  it('opens private files to every user, and keeps what can be executed', async () => {
    for (const [name, mode] of Object.entries({'main.py': 0o600, 'run.sh': 0o700})) {
      writeFileSync(join(folder, name), '');
      chmodSync(join(folder, name), mode);
    }
    const [archive, modes] = [join(folder, 'packed.tar.gz'), new Map<string, number | undefined>()];
    writeFileSync(archive, (await packFolder(folder)).bytes);
    list({file: archive, sync: true, onReadEntry: ({path, mode}) => void modes.set(path, mode)});
    assert.deepEqual(Object.fromEntries(modes), {'./main.py': 0o644, './run.sh': 0o755});
  });
});
