import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {once} from 'node:events';
import {readFileSync} from 'node:fs';
import {ROOT} from '../../support/machine/process.ts';

/** A command that hears the first signal, and then never yields. */
const BUSY = `
import {stopSignal} from '${ROOT}cli/terminal/stop-signal.ts';
setInterval(() => {}, 1000);
void stopSignal().then(() => {
  process.stdout.write('heard\\n', () => { for (;;); });
});
process.stdout.write('ready\\n');
`;

describe('a second Ctrl-C', () => {
  it('ends a command that hears nothing any more', async () => {
    const child = spawn(process.execPath, ['--input-type=module', '-e', BUSY], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    child.stdout.on('data', () => child.kill('SIGINT'));
    const [code, signal] = await once(child, 'close');
    assert.deepEqual([code, signal], [null, 'SIGINT']);
  });

  for (const file of ['cli/deploy/deploy.ts', 'cli/smoke/smoke.ts'])
    it(`is of the system in ${file}: its handlers hear one signal`, () => {
      assert.doesNotMatch(readFileSync(`${ROOT}${file}`, 'utf8'), /process\.on\(/);
    });
});
