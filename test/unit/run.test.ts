import assert from 'node:assert/strict';
import {spawnSync} from 'node:child_process';
import {fileURLToPath} from 'node:url';

const RUN = fileURLToPath(new URL('../run.ts', import.meta.url));

describe('npm test', () => {
  it('names the parts of a tier in one line where it is asked for an unknown part', () => {
    const {status, stdout, stderr} = spawnSync(process.execPath, [RUN, 'nope'], {encoding: 'utf8'});
    assert.deepEqual([status, stdout], [1, '']);
    assert.match(stderr, /^Tier full has no part nope; it has e2e, .*shell-lint\n$/);
  });
});
