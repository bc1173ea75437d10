import assert from 'node:assert/strict';
import {type Answer, cheapestOf, linesOf} from '../../../cli/preflight.ts';

const PROGRAM = {
  ...{
    model: 'm',
    layers: 24,
    devices: 8,
    chips: 8,
    hosts: 1,
    shape: '1x2048',
    hbm_limit_bytes: 16e9,
    fits: true,
    mesh: '1x8',
  },
  ...{hbm_bytes: {arguments: 1e9, temp: 1e9, output: 1e9}, estimated_ms: 10, tokens_per_s: 7000},
  ...{share_of_peak: 0.3, compile_cpu_s: 9, stored_bytes_per_token: null, upload: null},
  ...{usd_per_million_tokens: {spot: 0.2, on_demand: 0.4}},
} as const;
const at = (accelerator: string, spot: number | null, more: object = {}) =>
  ({...PROGRAM, accelerator, usd_per_million_tokens: {spot, on_demand: spot}, ...more}) as Answer;
const SPEC = {dtype: 'bf16', tokens: 'all'} as const;
const NO = {fits: false, reason: 'Failed to fit the model into 8 TPUs'};

describe('gleaner preflight recommends', () => {
  for (const [name, programs, wanted] of [
    ['the lowest price', [at('v6e-8', 0.143), at('v5p-8', 0.125)], 'v5p-8'],
    ['the smaller of equals', [at('v5litepod-4', 0.1), at('v5litepod-8', 0.1)], 'v5litepod-4'],
    ['no slice, because a run has none', [at('v5litepod-16', 0.1, {hosts: 4}), at('v5p-8', 0.125)], 'v5p-8'],
    ['no type without a price', [at('tpu7x-8', null), at('v6e-8', 0.143)], 'v6e-8'],
    ['nothing where no type of one host holds the program', [at('v6e-8', null, NO)], undefined],
  ] as [string, Answer[], string | undefined][])
    it(name, () => {
      assert.equal(cheapestOf(programs)?.accelerator, wanted);
      const line = linesOf(programs, 'us-central1-a', SPEC).find(each => each.startsWith('Recommended: '));
      assert.equal(line?.includes(`: ${wanted}, for `), wanted === undefined ? undefined : true);
    });

  it('no single hosts of the size of a slice, which may be too small', () => {
    const lines = linesOf([at('v5litepod-16', 0.158, {hosts: 4})], 'us-central1-a', SPEC).join('\n');
    assert.match(lines, /v5litepod-16 is here to compare: it has 4 hosts/);
    assert.doesNotMatch(lines, /×/);
  });
});
