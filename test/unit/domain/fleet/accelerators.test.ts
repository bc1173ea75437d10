import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {
  COMPILED,
  ONE_HOST,
  quotaIdsOf,
  runtimeOf,
  runtimeProblem,
} from '../../../../shared/domain/fleet/accelerators.ts';

const WORKER = new URL('../../../../worker-startup/', import.meta.url);

describe('types of TPUs', () => {
  it('the command and the worker compile for the same types', () => {
    const text = readFileSync(new URL('gleaner_worker/preflight/accelerators.py', WORKER), 'utf8');
    const types = [...text.matchAll(/^ {4}"(v[^"]+)": \("/gm)].map(match => match[1]);
    assert.deepEqual(COMPILED.toSorted(), types.toSorted());
  });

  it('each accelerator has a runtime version that fits, and two quotas', () => {
    for (const type of ONE_HOST) {
      assert.equal(runtimeProblem(type, runtimeOf(type)), undefined, type);
      assert.equal(quotaIdsOf(type, true).length, 2, type);
    }
  });

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
