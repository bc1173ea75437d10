import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {once} from 'node:events';
import {mkdirSync, readdirSync, symlinkSync} from 'node:fs';
import {join} from 'node:path';
import {createInterface} from 'node:readline';
import {cacheFolder} from '../../client/python/python.ts';
import {Folder} from '../support/machine/folder.ts';
import {processes} from '../support/machine/home.ts';
import {GLEANER} from '../support/machine/process.ts';
import {until} from '../support/machine/until.ts';

describe('Ctrl-C during the start of a local cloud', () => {
  const folder = new Folder(afterEach);
  beforeEach(() => {
    // A cache without the tiny model: every start makes the model.
    mkdirSync(folder.at('gleaner'));
    for (const name of readdirSync(cacheFolder()).filter(name => name !== 'tiny-model'))
      symlinkSync(join(cacheFolder(), name), folder.at(`gleaner/${name}`));
  });

  it('ends gleaner local up with one line while it makes the tiny model', async () => {
    // A terminal sends the signal to the whole process group.
    await interruptOnce(['local', 'up', '--port', '0', '--dir', 'up'], pid => -pid);
  });

  it('ends gleaner demo when the process that makes the tiny model misses the signal @long', async () => {
    await interruptOnce(['demo', '--port', '0', '--dir', 'demo'], pid => pid);
  });

  async function interruptOnce(args: string[], target: (pid: number) => number): Promise<void> {
    const child = spawn(process.execPath, [GLEANER, ...args], {
      cwd: folder.path,
      detached: true,
      env: {...process.env, XDG_CACHE_HOME: folder.path},
    });
    const pid = child.pid ?? 0;
    let output = '';
    let isSent = false;
    const hear = (chunk: Buffer) => {
      output += chunk;
      if (isSent || !output.includes('Making a tiny random model')) return;
      isSent = true;
      const python = () => processes().some(({ppid, args}) => ppid === pid && /model\.tiny/.test(args));
      const send = () => (python() ? process.kill(target(pid), 'SIGINT') : setTimeout(send, 20));
      send();
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    const [code] = await once(child, 'close');
    assert.equal(code, 130, output);
    assert.match(output, /^gleaner: Interrupted before the local cloud was up$/m);
    assert.doesNotMatch(output, /Traceback|KeyboardInterrupt|Failed/);
    assert.deepEqual(
      processes().filter(({pgid}) => pgid === pid),
      [],
    );
  }
});

describe('kill -9 of the launcher of a local cloud, which starts Node 24 from an older Node', () => {
  const folder = new Folder(after);

  it('leaves no process of the cloud', async () => {
    const older =
      'Object.defineProperty(process, "versions", {value: {...process.versions, node: "20.0.0"}})';
    const options = ['--import', `data:text/javascript,${encodeURIComponent(older)}`, GLEANER];
    const args = ['local', 'up', '--json', '--quiet', '--port', '0', '--dir', folder.at('cloud')];
    const launcher = spawn(process.execPath, [...options, ...args], {stdio: ['ignore', 'pipe', 'inherit']});
    await once(createInterface({input: launcher.stdout}), 'line');
    const all = processes();
    const below = (parent: number): number[] =>
      all.filter(({ppid}) => ppid === parent).flatMap(({pid}) => [pid, ...below(pid)]);
    const pids = below(launcher.pid ?? 0);
    const left = () => processes().filter(({pid}) => pids.includes(pid));
    try {
      assert.ok(left().some(({args}) => /function-host/.test(args)));
      launcher.kill('SIGKILL');
      await until('the processes of the cloud ended', () => left().length === 0);
    } finally {
      for (const {pid} of left()) process.kill(pid, 'SIGKILL');
    }
  });
});
