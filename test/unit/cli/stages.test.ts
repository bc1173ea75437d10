import assert from 'node:assert/strict';
import {
  helpLines,
  helpsOf,
  limitText,
  rateOfStages,
  workOf,
  workOfProgram,
} from '../../../cli/run/estimate/stages.ts';
import type {Compiled, Rate} from '../../../client/views/assumptions.ts';
import {usdPerMillion} from '../../../client/views/rates.ts';
import {COMPILED, ONE_HOST} from '../../../shared/domain/fleet/accelerators.ts';
import {uploadRateOf, withMeasured} from '../../../shared/domain/fleet/upload-rates.ts';

/** All 32 layers of Llama 3.1 8B in bf16 on v5litepod-8. */
const PROGRAM = {
  ...{accelerator: 'v5litepod-8', fits: true, tokens_per_s: 78_118, stored_bytes_per_token: 262_144},
  generated_tokens_per_s: null,
} as Compiled & {fits: true};
const BF16 = {format: 'safetensors', dtype: 'bf16', compute_dtype: 'bf16'} as const;
const WORK = workOfProgram(PROGRAM, BF16);
const STORED = {layers: 32, dtype: 'bf16', tokens: 'all'};
const PRICED = {tokens_per_sample: 2048, usd_per_hour: 1.96};

describe('The slowest stage of a run', () => {
  it('the slowest stage of a run is the upload for all layers, and gives the speed and the price', () => {
    const rate = rateOfStages(WORK);
    assert.equal(rate.limit, 'the upload');
    assert.equal(rate.estimate, 1.6e9 / 262_144);
    const usd = usdPerMillion(1.96, rate.estimate * 3600);
    assert.equal(usd?.toFixed(9), ((1.96 / 3600 / (1.6e9 / 262_144)) * 1e6).toFixed(9));
  });

  it('the slowest stage of a run is the same for a sample of streams and for a program with full rows', () => {
    const tokens = 1e9;
    const sure = (estimate: number) => ({estimate, low: estimate, high: estimate});
    const sampled = {
      ...{computed_tokens: tokens, generated_tokens: 0, operations: 1, stream_bytes: 4 * tokens},
      totals: {tokens: sure(tokens), shard_bytes: sure(tokens * 262_144)},
    } as unknown as Parameters<typeof workOf>[0];
    const work = workOf(sampled, BF16, {accelerator: 'v5litepod-8', upload: WORK.upload, compiled: PROGRAM});
    assert.equal(work && rateOfStages(work).estimate, rateOfStages(WORK).estimate);
  });

  it('the slowest stage of a run is the chips where little is stored, and then nothing helps', () => {
    const last = workOfProgram({...PROGRAM, stored_bytes_per_token: null}, BF16);
    assert.deepEqual([rateOfStages(last).limit, helpsOf(last, STORED, PRICED)], ['computing', []]);
  });

  it('the slowest stage of a run is the download where a stream has more bytes than its shards', () => {
    const rate = rateOfStages({...WORK, bytes: {raw: 1, stored: 1, read: 1e6}});
    assert.deepEqual([rate.limit, rate.estimate], ['the download', 1600]);
  });

  it('the slowest stage of a run has each change that helps with its bytes and its price, the best first', () => {
    const helps = helpsOf(WORK, STORED, PRICED);
    assert.deepEqual(
      helps.map(({change, bytes, per}) => `${change}: ${bytes} a ${per}`),
      [
        'tokens "random:64": 16777216 a sample',
        'one layer: 8192 a token',
        'tokens "last" or "mean": 262144 a sample',
        'tokens "::8": 32768 a token',
        'dtype int8: 131072 a token',
        'half of the 32 layers: 131072 a token',
      ],
    );
    const prices = helps.map(each => each.usd_per_million_tokens ?? assert.fail());
    assert.deepEqual(
      prices,
      prices.toSorted((a, b) => a - b),
    );
    const [first, ...lines] = helpLines('v5litepod-8', rateOfStages(WORK), STORED, helps);
    assert.match(
      first ?? '',
      /^the chips produce 20 GB a second for 32 layers in bf16, and are busy 8 % of the time on v5litepod-8; this helps:$/,
    );
    assert.equal(lines[0], '  tokens "random:64": 17 MB a sample, $0.0070 a million tokens');
  });

  it('the slowest stage of a run offers no change that the run has made', () => {
    const made = {layers: 1, dtype: 'int8', tokens: 'random:64'};
    assert.deepEqual(helpsOf(WORK, made, PRICED), []);
  });
});

describe('The upload rate of a type of TPU', () => {
  it('the upload rate of a type of TPU has bounds, a basis and a source for every type', () => {
    for (const type of [...COMPILED, ...ONE_HOST]) {
      const {low, estimate, high, basis, source} = uploadRateOf(type);
      assert.ok(0 < low && low <= estimate && estimate <= high && source !== '', type);
      assert.equal(basis, 'assumed', `${type}: this project has measured no TPU`);
    }
    assert.ok(uploadRateOf('v5litepod-8').estimate > uploadRateOf('v5litepod-1').estimate);
    assert.deepEqual(
      ['tpu7x-8', 'tpu7x-16'].map(type => uploadRateOf(type).estimate),
      [1.6e9, 3.2e9],
    );
  });

  it('the upload rate of a type of TPU is named in the limit that rests on it', () => {
    const at = (upload: typeof WORK.upload) => limitText(rateOfStages({...WORK, upload}));
    assert.equal(at(WORK.upload), 'the upload, at an assumed 1.6 GB/s');
    const measured = withMeasured(WORK.upload, {bytes: 9e9, seconds: 10, bound_seconds: 9}, 'a');
    assert.equal(at(measured), 'the upload, at 0.90 GB/s as measured by run a');
    assert.equal(limitText({limit: 'computing'} as Rate), 'computing');
  });

  const assumed = uploadRateOf('v6e-1');
  for (const {name, uploads, estimate, high} of [
    {name: 'is what uploads measured that were the limit', uploads: [4e9, 10, 6], estimate: 4e8, high: 4e8},
    {
      name: 'is not lowered by uploads that waited for the chips',
      uploads: [4e9, 10, 1],
      estimate: 1e9,
      high: 1.7e9,
    },
    {
      name: 'is raised by uploads that waited for the chips',
      uploads: [20e9, 10, 1],
      estimate: 2e9,
      high: 2e9,
    },
    {
      name: 'is not what a worker reports beyond any network',
      uploads: [4e15, 10, 9],
      estimate: 1e9,
      high: 1.7e9,
    },
    {name: 'is not measured in no time', uploads: [4e9, 0, 0], estimate: 1e9, high: 1.7e9},
  ])
    it(name, () => {
      const [bytes = 0, seconds = 0, bound_seconds = 0] = uploads;
      const rate = withMeasured(assumed, {bytes, seconds, bound_seconds}, 'a');
      assert.deepEqual([rate.estimate, rate.high], [estimate, high]);
    });
});
