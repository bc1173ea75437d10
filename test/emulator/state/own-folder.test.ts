import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {chmodSync, chownSync, cpSync, existsSync, readdirSync, renameSync} from 'node:fs';
import {join} from 'node:path';
import {Scratch, tokenUrl} from '../../support/machine/a-cloud.ts';
import {gleaner} from '../../support/machine/command.ts';
import {Folder} from '../../support/machine/folder.ts';
import {until} from '../../support/machine/until.ts';

const LOCAL = '.gleaner/local';
const OTHER_USER = 65_534;

describe('The folder of a local cloud', () => {
  const scratch = new Scratch(afterEach);
  const folder = new Folder(afterEach);

  /** Folder of an ended cloud with a TPU whose startup script writes the file `ran`. */
  const withTpu = async (dir: string): Promise<void> => {
    const cloud = await scratch.cloud({dir});
    const script = `#!/bin/sh\ntouch '${folder.at('ran')}'\nsleep 1000`;
    await fetch(`${tokenUrl(cloud)}/v2/projects/gleaner-local/locations/us-central1-a/nodes?nodeId=vm`, {
      method: 'POST',
      body: JSON.stringify({
        acceleratorType: 'v5litepod-1',
        runtimeVersion: 'v2-alpha-tpuv5-lite',
        metadata: {'startup-script': script},
      }),
    });
    await until('the script ran', () => existsSync(folder.at('ran')));
    await cloud.close();
    execFileSync('rm', [folder.at('ran')]);
  };
  const git = (...args: string[]) =>
    execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@example.com', ...args], {stdio: 'pipe'});

  it('of a cloned repository is continued by no command, and its startup scripts do not run', async () => {
    const [repository, clone] = [folder.at('repository'), folder.at('clone')];
    await withTpu(join(repository, LOCAL));
    git('init', '--quiet', repository);
    git('-C', repository, 'add', '--force', '.');
    git('-C', repository, 'commit', '--quiet', '--message', 'a cloud');
    git('clone', '--quiet', repository, clone);
    chmodSync(join(clone, LOCAL), 0o700);
    chmodSync(join(clone, LOCAL, 'mark'), 0o600);
    const before = readdirSync(clone, {recursive: true});
    for (const args of [['local', 'up', '--port', '0'], ['status'], ['demo', '--dir', LOCAL]]) {
      const {code, stderr} = await gleaner(args, {cwd: clone});
      assert.equal(code, 1, args.join(' '));
      assert.match(
        stderr,
        /Refused to use .*clone\/\.gleaner\/local: no local cloud of yours wrote the files.*; move or delete the folder.*--adopt/,
      );
    }
    await assert.rejects(scratch.cloud({dir: join(clone, LOCAL), storage_only: true}), {code: 'dir-foreign'});
    assert.deepEqual(readdirSync(clone, {recursive: true}), before);
    assert.equal(existsSync(folder.at('ran')), false);
  });

  const move = (from: string, to: string) => {
    renameSync(from, to);
    return to;
  };
  const copy = (from: string, to: string, except = 'nothing') => {
    cpSync(from, to, {recursive: true, filter: file => !file.endsWith(`/${except}`)});
    return to;
  };
  const open = (dir: string, name: string, mode: number) => {
    chmodSync(join(dir, name), mode);
    return dir;
  };
  const changes: [name: string, change: (dir: string) => string, says: RegExp][] = [
    ['is a copy of another one', dir => copy(dir, `${dir}-2`), /--adopt/],
    ['has moved', dir => move(dir, `${dir}-2`), /--adopt/],
    ['has taken the place of another one', dir => copy(move(dir, `${dir}-2`), dir, 'mark'), /--adopt/],
    ['has a mark that other users may read', dir => open(dir, 'mark', 0o644), /--adopt/],
    ['is open to other users', dir => open(dir, '.', 0o755), /other users may enter it; run `chmod 700 /],
  ];
  for (const [name, change, says] of changes)
    it(`is refused if it ${name}`, async () => {
      const dir = folder.at('cloud');
      await (await scratch.cloud({dir})).close();
      await assert.rejects(scratch.cloud({dir: change(dir)}), {code: 'dir-foreign', message: says});
    });

  it('is refused if it belongs to another user', async function () {
    if (process.geteuid?.() !== 0) return this.skip();
    const dir = scratch.dir();
    chownSync(dir, OTHER_USER, OTHER_USER);
    await assert.rejects(scratch.cloud({dir}), {code: 'dir-foreign', message: /belongs to another user/});
  });

  it('is continued after it has moved if its user adopts it, and afterwards without asking', async () => {
    const dir = folder.at('before');
    await withTpu(dir);
    renameSync(dir, folder.at('after'));
    const adopted = await scratch.cloud({dir: folder.at('after'), adopt: true});
    await until('the script ran again', () => existsSync(folder.at('ran')));
    await adopted.close();
    await scratch.cloud({dir: folder.at('after')});
  });
});
