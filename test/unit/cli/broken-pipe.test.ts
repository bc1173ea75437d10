import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {once} from 'node:events';
import {ROOT} from '../../support/machine/process.ts';

describe('A command whose reader ends first', () => {
  it('a command whose reader ends first exits as after SIGPIPE, without a stack trace', async () => {
    const child = spawn(process.execPath, ['cli/main.ts', 'complete', 'bash'], {cwd: ROOT});
    child.stdout.destroy();
    let said = '';
    child.stderr.on('data', text => (said += text));
    const [code] = await once(child, 'close');
    assert.deepEqual([code, said], [141, '']);
  });
});
