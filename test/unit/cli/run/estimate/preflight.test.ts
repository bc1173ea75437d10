import assert from 'node:assert/strict';
import {
  type Answer,
  answerOf,
  cheapestOf,
  remarks,
  rowLines,
} from '../../../../../cli/run/estimate/preflight.ts';
import type {Compiled} from '../../../../../client/views/assumptions.ts';
import {completeSpec} from '../../../../../shared/contracts/spec/spec.ts';
import {LIST_PRICES} from '../../../../../shared/domain/billing/list-prices.ts';
import {aConfig} from '../../../../world/builders.ts';

const PROGRAM = {
  ...{model: 'm', layers: 32, devices: 8, shape: '1x2048', hbm_limit_bytes: 16e9, fits: true, mesh: '1x8'},
  ...{hbm_bytes: {arguments: 1e9, temp: 1e9, output: 1e9}, estimated_ms: 10, tokens_per_s: 7000},
  ...{share_of_peak: 0.3, compile_cpu_s: 9, stored_bytes_per_token: null, generated_tokens_per_s: null},
} as const;
const ZONE = 'us-central1-a';
const SPEC = completeSpec({model: 'm'}, aConfig()).spec;
const ASKED = {spec: SPEC, zone: ZONE, prices: LIST_PRICES, is_google: true};
const compiled = (accelerator: string, more: object = {}) =>
  answerOf({...PROGRAM, accelerator, ...more} as Compiled, SPEC, LIST_PRICES, ZONE);
const at = (accelerator: string, spot: number | null, more: object = {}): Answer => ({
  ...compiled(accelerator, more),
  ...{usd_per_million_tokens: {spot, on_demand: spot}, ...more},
});
const NO = {fits: false, reason: 'Failed to fit the model into 8 TPUs'};
/** All layers of Llama 3.1 8B in bf16, at the speeds of the TPU compiler. */
const LLAMA = [
  compiled('v5litepod-1', {tokens_per_s: 9720, stored_bytes_per_token: 262_144}),
  compiled('v6e-1', {tokens_per_s: 32_295, stored_bytes_per_token: 262_144}),
  compiled('v5p-8', {tokens_per_s: 91_366, stored_bytes_per_token: 262_144}),
];

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
      const line = remarks(programs, ASKED).find(each => each.startsWith('Recommended: '));
      assert.equal(line?.includes(`: ${wanted}, for `), wanted === undefined ? undefined : true);
    });

  it('no single hosts of the size of a slice, which may be too small', () => {
    const lines = remarks([at('v5litepod-16', 0.158, {hosts: 4})], ASKED).join('\n');
    assert.match(lines, /v5litepod-16 is listed for comparison: it has 4 hosts/);
    assert.doesNotMatch(lines, /×/);
  });
});

describe('gleaner preflight', () => {
  it('gleaner preflight ranks and prices by the slowest stage, and says on what the price rests', () => {
    // By the chips alone: $0.0070, $0.0047 and $0.010.
    assert.deepEqual(
      LLAMA.map(({usd_per_million_tokens: {spot}}) => spot?.toFixed(3)),
      ['0.018', '0.040', '0.152'],
    );
    assert.equal(cheapestOf(LLAMA)?.accelerator, 'v5litepod-1');
    const line = remarks(LLAMA, ASKED).at(-2) ?? '';
    assert.match(line, /limited by the upload, at an assumed 1\.0 GB\/s \(list prices of 2026-11-23/);
  });

  it('gleaner preflight names a type without a price and its speed', () => {
    const program = compiled('tpu7x-8', {tokens_per_s: 320_000, stored_bytes_per_token: 262_144});
    assert.equal(
      remarks([program], ASKED)[0],
      'tpu7x-8 has no price here, so it cannot be recommended; a run gets 6,104 tokens/s on it (its chips: 320,000)',
    );
  });

  it('gleaner preflight names the bytes of each reduction, and the mesh of their weights', () => {
    const reductions = [{name: 'scope', bytes_per_token: 12_416, weight_bytes: 8.6e9}];
    const line = 'scope: 12 kB a token, 8.6 GB of weights';
    assert.equal(remarks([compiled('v6e-8', {reductions})], ASKED)[0], `${line}, mesh 1x8`);
    assert.equal(remarks([compiled('v6e-8', {...NO, mesh: undefined, reductions})], ASKED)[1], line);
  });

  it('gleaner preflight names what helps the recommended type, with bytes and price', () => {
    const lines = remarks(LLAMA, ASKED);
    assert.ok(
      lines.some(line => /^ {2}tokens "::8": 33 kB a token, \$/.test(line)),
      lines.join('\n'),
    );
  });

  it('gleaner preflight prints a row as it comes in the columns of the rows that follow', () => {
    const types = LLAMA.map(({accelerator}) => accelerator);
    const [titles = '', ...rows] = LLAMA.flatMap((program, index) =>
      rowLines([program], types).slice(index && 1),
    );
    assert.equal(rows.length, 3);
    const column = titles.indexOf('limited by');
    for (const row of rows) assert.equal(row.indexOf('the upload'), column, row);
  });
});
