import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {COMPILED} from '../../../../shared/domain/fleet/accelerators.ts';

const WORKER = new URL('../../../../worker-startup/', import.meta.url);

describe('types of TPUs', () => {
  it('the command and the worker compile for the same types', () => {
    const text = readFileSync(new URL('gleaner_worker/preflight/accelerators.py', WORKER), 'utf8');
    const types = [...text.matchAll(/^ {4}"(v[^"]+)": \("/gm)].map(match => match[1]);
    assert.deepEqual(COMPILED.toSorted(), types.toSorted());
  });
});
