import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {once} from 'node:events';
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
  it('a second Ctrl-C ends a command that hears nothing any more', async () => {
    const child = spawn(process.execPath, ['--input-type=module', '-e', BUSY], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    child.stdout.on('data', () => child.kill('SIGINT'));
    const [code, signal] = await once(child, 'close');
    assert.deepEqual([code, signal], [null, 'SIGINT']);
  });
});
