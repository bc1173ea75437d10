import assert from 'node:assert/strict';
import {ACCELERATORS, hostsOfType} from '../../../../shared/domain/fleet/accelerators.ts';
import {runAcceleratorProblem} from '../../../../shared/domain/fleet/run-accelerators.ts';

describe('the type of TPU of a run', () => {
  it('has one host; a slice is refused with the number of single hosts that have its chips', () => {
    for (const type of [...ACCELERATORS, 'tpu7x-8', 'tpu7x-16']) {
      const problem = runAcceleratorProblem(type);
      const [, count, single = ''] = /use (\d+) × (\S+),/.exec(problem ?? '') ?? [];
      if (hostsOfType(type) === 1) assert.equal(problem, undefined, type);
      else {
        const [size, sizeOfOne] = [type, single].map(each => Number(each.split('-')[1]));
        assert.equal(Number(count) * (sizeOfOne ?? 0), size, problem);
        assert.equal(runAcceleratorProblem(single), undefined, problem);
      }
    }
  });
});
