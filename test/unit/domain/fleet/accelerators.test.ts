import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {
  ACCELERATORS,
  acceleratorProblem,
  COMPILED,
  hostsOfType,
  ONE_HOST,
  quotaIdsOf,
  quotaSizeOf,
  runAcceleratorProblem,
  runtimeOf,
  runtimeProblem,
} from '../../../../shared/domain/fleet/accelerators.ts';
import {INSTANCE_TYPES, type Provider} from '../../../../shared/domain/records/providers.ts';

const WORKER = new URL('../../../../worker-startup/', import.meta.url);

describe('types of TPUs', () => {
  it('the command and the worker compile for the same types', () => {
    const text = readFileSync(new URL('gleaner_worker/preflight/accelerators.py', WORKER), 'utf8');
    const types = [...text.matchAll(/^ {4}"([^"]+-\d+)": \("/gm)].map(match => match[1]);
    assert.deepEqual(COMPILED, types);
  });

  it('each accelerator has a runtime version that fits, and two quotas', () => {
    for (const type of ONE_HOST) {
      assert.equal(runtimeProblem(type, runtimeOf(type)), undefined, type);
      assert.equal(quotaIdsOf(type, true).length, 2, type);
    }
  });

  it('each instance has an image that fits, a quota, and its chips as the count', () => {
    const provider = 'compute-engine';
    for (const type of INSTANCE_TYPES) {
      assert.equal(acceleratorProblem(type, provider), undefined, type);
      assert.equal(runtimeProblem(type, runtimeOf(type, provider), provider), undefined, type);
      assert.equal(quotaIdsOf(type, true, provider).length, 1, type);
    }
    assert.deepEqual(
      ['v6e-8', 'v5p-8', 'tpu7x-8'].map(type => quotaSizeOf(type, provider)),
      [8, 4, 4],
    );
    assert.equal(quotaSizeOf('v5p-8'), 8);
  });

  for (const [accelerator, provider, says] of [
    ['ct6e-standard-8t', 'compute-engine', /name the accelerator v6e-8/],
    ['tpu7x-8', 'tpu-api', /use provider "compute-engine"/],
    ['v5litepod-8', 'compute-engine', /or provider "tpu-api"/],
    ['v6e-16', 'compute-engine', /no instance with a v6e-16/],
  ] as [string, Provider, RegExp][])
    it(`${accelerator} is refused for ${provider}`, () =>
      assert.match(acceleratorProblem(accelerator, provider) ?? '', says));

  for (const [accelerator, spot, first] of [
    ['v5litepod-8', true, 'TPUV5sPreemptibleLitepodServingPerProjectPerZoneForTPUAPI'],
    ['v5litepod-1', false, 'TPUV5sLitepodServingPerProjectPerZoneForTPUAPI'],
    ['v5litepod-16', true, 'TPUV5sPreemptibleLitepodPerProjectPerZoneForTPUAPI'],
    ['v6e-8', true, 'TPUV6EPreemptiblePerProjectPerZoneForTPUAPI'],
    ['v5p-8', false, 'TPUV5PPerProjectPerZoneForTPUAPI'],
    ['v4-8', true, 'TPUV4sPreemptiblePodPerProjectPerZoneForTPUAPI'],
  ] as const)
    it(`${spot ? 'spot' : 'on-demand'} ${accelerator} counts against ${first}`, () =>
      assert.equal(quotaIdsOf(accelerator, spot)[0], first));
});

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
