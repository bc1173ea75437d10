import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {once} from 'node:events';
import {mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {cacheFolder} from '../../cli/python/python.ts';
import {processes} from './home.ts';

const MAIN = fileURLToPath(new URL('../../cli/main.ts', import.meta.url));

describe('Ctrl-C during the start of a local cloud', () => {
  let dir: string;
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), 'gleaner-interrupt-'));
    // A cache without the tiny model: every start makes the model.
    mkdirSync(join(dir, 'gleaner'));
    for (const name of readdirSync(cacheFolder()).filter(name => name !== 'tiny-model'))
      symlinkSync(join(cacheFolder(), name), join(dir, 'gleaner', name));
  });
  afterEach(() => rmSync(dir, {recursive: true, force: true}));

  it('ends gleaner local up with one line while it makes the tiny model', async () => {
    // A terminal sends the signal to the whole process group.
    await interruptOnce(['local', 'up', '--port', '0', '--dir', 'up'], pid => -pid);
  });

  it('ends gleaner demo when the process that makes the tiny model misses the signal @long', async () => {
    await interruptOnce(['demo', '--port', '0', '--dir', 'demo'], pid => pid);
  });

  async function interruptOnce(args: string[], target: (pid: number) => number): Promise<void> {
    const child = spawn(process.execPath, [MAIN, ...args], {
      cwd: dir,
      detached: true,
      env: {...process.env, XDG_CACHE_HOME: dir},
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
