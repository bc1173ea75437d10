import assert from 'node:assert/strict';
import fc from 'fast-check';
import {scaleSample, startLines} from '../../../cli/run/estimate/before-start.ts';
import {reportOf} from '../../../cli/run/estimate/estimate.ts';
import {pricesText} from '../../../cli/run/estimate/price-origin.ts';
import {reportOn} from '../../../cli/run/estimate/report.ts';
import {reportLines} from '../../../cli/run/estimate/report-lines.ts';
import {rateOfStages, workOf} from '../../../cli/run/estimate/stages.ts';
import type {Cloud} from '../../../client/cloud/cloud.ts';
import {
  ASSUMED,
  type Compiled,
  hoursOf,
  measuredSpan,
  type Numbers,
  type Sampled,
  storedBytes,
} from '../../../client/views/assumptions.ts';
import {completeSpec} from '../../../shared/contracts/spec/spec.ts';
import {LIST_PRICES} from '../../../shared/domain/billing/list-prices.ts';
import {uploadRateOf} from '../../../shared/domain/fleet/upload-rates.ts';
import {aConfig} from '../../world/builders.ts';
import {aStore} from '../../world/scenes/put-documents.ts';

const sure = (estimate: number) => ({estimate, low: estimate, high: estimate});

/** Qwen2.5-0.5B over 200,000 samples of 2,048 tokens, every layer in bf16. */
function aSample(changes: Partial<Sampled> = {}): Sampled {
  const tokens = 200_000 * 2048;
  return {
    model: {name: 'Qwen/Qwen2.5-0.5B', revision: null, family: 'qwen2', d_model: 896},
    layers: 24,
    deepest_layer: 23,
    model_layers: 24,
    row_bytes: 43_008,
    streams: 32,
    stream_bytes: 1.6e9,
    exact: false,
    sample: {blocks: 24, lines: 1000, bytes: 6e6},
    totals: {
      lines: sure(200_000),
      samples: {estimate: 200_000, low: 190_000, high: 210_000},
      rejected: sure(0),
      truncated: sure(0),
      tokens: {estimate: tokens, low: tokens * 0.95, high: tokens * 1.05},
      rows: sure(tokens),
      shard_bytes: {estimate: tokens * 43_012, low: tokens * 40_000, high: tokens * 46_000},
      shards: sure(17_700),
    },
    computed_tokens: tokens,
    generated_tokens: 0,
    operations: tokens * 0.89e9,
    reject_reasons: [],
    warnings: [],
    ...changes,
  };
}
const BF16: Numbers = {format: 'safetensors', dtype: 'bf16', compute_dtype: 'bf16'};
const COMPILED: Compiled = {
  ...{model: 'm', layers: 24, accelerator: 'v5litepod-1', devices: 1, shape: '1x2048', hbm_limit_bytes: 17e9},
  ...{fits: true, mesh: '1x1'},
  hbm_bytes: {arguments: 1e9, temp: 1e6, output: 1e8},
  ...{estimated_ms: 20.48, tokens_per_s: 100_000, share_of_peak: 0.45, stored_bytes_per_token: null},
  ...{generated_tokens_per_s: null, compile_cpu_s: 12},
};
const V5E = {accelerator: 'v5litepod-1', workers: 32};
const assumedRate = (sampled: Sampled, numbers: Numbers, {accelerator}: typeof V5E, compiled?: Compiled) => {
  const work = workOf(sampled, numbers, {accelerator, upload: uploadRateOf(accelerator), compiled});
  return work && rateOfStages(work);
};

describe('an estimate of a run', () => {
  it('the upload limits all layers of a small model, and computing limits one layer', () => {
    const all = assumedRate(aSample(), BF16, V5E) ?? assert.fail();
    assert.equal(all.limit, 'the upload');
    assert.ok(Math.abs(all.estimate - 1e9 / 43_012) < 1, String(all.estimate));
    const {totals} = aSample();
    const one = aSample({totals: {...totals, shard_bytes: sure(totals.tokens.estimate * 1792)}});
    const rate = assumedRate(one, BF16, V5E) ?? assert.fail();
    assert.equal(rate.limit, 'computing');
    assert.ok(Math.abs(rate.estimate - (197e12 * 0.4) / 0.89e9) < 1);
    const fp32 = assumedRate(one, {...BF16, compute_dtype: 'fp32'}, V5E) ?? assert.fail();
    assert.ok(Math.abs(fp32.estimate * ASSUMED.fp32_products - rate.estimate) < 1);
  });

  it('the compiler replaces the share of the peak, and pays for padding', () => {
    const {totals} = aSample();
    const tokens = totals.tokens.estimate;
    const one = aSample({computed_tokens: 2 * tokens, totals: {...totals, shard_bytes: sure(tokens * 1792)}});
    const rate = assumedRate(one, BF16, V5E, COMPILED) ?? assert.fail();
    assert.equal(rate.limit, 'computing');
    assert.deepEqual([rate.estimate, rate.low, rate.high], [50_000, 25_000, 60_000]);
    const refused: Compiled = {...COMPILED, fits: false, reason: 'too large'};
    assert.equal(assumedRate(one, BF16, V5E, refused), undefined);
  });

  it('generated tokens cost the time of their steps, which only a compiled program knows', () => {
    const {totals} = aSample();
    const tokens = totals.tokens.estimate;
    const shard_bytes = sure(tokens * 1792);
    const half = aSample({generated_tokens: tokens / 2, totals: {...totals, shard_bytes}});
    const rate = assumedRate(half, BF16, V5E, {...COMPILED, generated_tokens_per_s: 10_000} as Compiled);
    assert.equal(rate?.limit, 'computing and decoding');
    assert.ok(Math.abs((rate?.estimate ?? 0) - 1 / (1 / 100_000 + 0.5 / 10_000)) < 1);
    assert.equal(assumedRate(half, BF16, V5E), undefined);
  });

  it('encoding limits a run with gzip', () => {
    const rate = assumedRate(aSample(), {...BF16, format: 'pkl.gz', dtype: 'fp32'}, V5E);
    assert.equal(rate?.limit, 'encoding');
  });

  it('the rate is undefined for an unknown TPU type or zero tokens', () => {
    assert.equal(assumedRate(aSample(), BF16, {...V5E, accelerator: 'v9-8'}), undefined);
    const {totals} = aSample();
    assert.equal(assumedRate(aSample({totals: {...totals, tokens: sure(0)}}), BF16, V5E), undefined);
  });

  it('stored bytes are exact only without a codec', () => {
    const {totals} = aSample();
    assert.deepEqual(storedBytes(aSample(), BF16), totals.shard_bytes);
    const packed = storedBytes(aSample(), {...BF16, format: 'safetensors.zst'});
    assert.ok(packed.low < totals.shard_bytes.low && packed.estimate < totals.shard_bytes.estimate);
    assert.ok((packed.high ?? 0) > (totals.shard_bytes.high ?? 0));
  });

  it('more workers add only their starts to TPU hours, and no more workers than streams count', () => {
    const rate = {...measuredSpan(100_000), limit: 'measured'};
    const hours = (workers: number) => hoursOf(aSample(), rate, {...V5E, workers});
    const [one, many, more] = [hours(1), hours(32), hours(1000)];
    assert.ok(Math.abs(many.tpu.estimate - one.tpu.estimate - (31 * 300) / 3600) < 1e-9);
    assert.deepEqual(more, many);
    assert.ok(many.clock.estimate < one.clock.estimate / 10);
    const work = ((200_000 * 2048) / 100_000 / 3600) * 1.05;
    assert.ok(Math.abs(one.tpu.estimate - work - 300 / 3600) < 1e-9);
  });

  it('an estimate like an earlier run has its speed and its starts, bounded by the upload that it measured', () => {
    const earlier = {
      run: 'a',
      tokens_per_s: 20_000,
      start_s: 90,
      usd_per_hour: 4.8,
      usd_per_million_tokens: 0.3,
    };
    const spec = completeSpec({model: 'm'}, aConfig()).spec;
    const like = (upload: ReturnType<typeof uploadRateOf> | undefined, work_s = 60) =>
      reportOn('x', spec, aSample(), {...V5E, zone: 'us-central1-a'}, LIST_PRICES, {
        ...{earlier: {...earlier, work_s, upload}, upload: uploadRateOf('v5litepod-1')},
      });
    const tokens = aSample().totals.tokens.estimate;
    assert.equal(like(undefined).tpu_hours?.estimate, (tokens / 20_000 + 32 * 90) / 3600);
    const rate = {low: 4.3e8, estimate: 4.3e8, high: 4.3e8, basis: 'measured', source: 'run a'} as const;
    assert.equal(like(rate).tokens_per_second?.limit, 'the upload');
    assert.equal(Math.round(like(rate).tokens_per_second?.estimate ?? 0), Math.round(4.3e8 / 43_012));
    assert.equal(like({...rate, high: 1e9}).tokens_per_second?.estimate, 20_000);
    const short = like(undefined, 59);
    const {low, high} = short.tokens_per_second ?? assert.fail();
    assert.deepEqual([low, high], [10_000, 40_000], 'seconds of work are no measurement');
    assert.equal(short.tpu_hours?.high, (short.totals.tokens.high ?? 0) / 10_000 / 3600 + (32 * 180) / 3600);
    assert.match(
      reportLines(short, 0).join('\n'),
      /earlier .* 20,000 tokens\/s from 59 s of work, plus 90 s of /,
    );
  });

  it('an estimate of a run without dense vectors names its reductions, and no change of their type or tokens', () => {
    const {spec} = completeSpec({project: [{name: 'probe', weights: 'org/w'}], moments: {}}, aConfig());
    const reductions = [
      {name: 'probe', bytes_per_token: 96, weight_bytes: 86_016},
      {name: 'moments', bytes_per_sample: 7168, weight_bytes: 0},
    ];
    const machine = {...V5E, zone: 'us-central1-a'};
    const known = {upload: uploadRateOf('v5litepod-1')};
    const sampled = {...aSample(), reductions};
    const text = reportLines(reportOn('x', spec, sampled, machine, LIST_PRICES, known), 0).join('\n');
    assert.match(text, /24 layers, probe, moments, tokens "all", safetensors\n/);
    assert.match(text, / probe: 96 bytes a token, 86 kB of weights\n.* moments: 7\.2 kB a sample\n/);
    assert.match(text, /for 24 layers, and are busy .*this helps:\n +one layer: .*\n +half of the 24 layers/);
    assert.doesNotMatch(text, /int8|tokens "::8"/);
  });

  it('an estimate of a run that run start prints has samples, bytes, time, dollars and their day beside the budget', () => {
    const spec = completeSpec({model: 'm'}, aConfig()).spec;
    const machine = {...V5E, zone: 'us-central1-a'};
    const half = scaleSample(aSample(), {streams: 16, stream_bytes: 0.8e9});
    const known = {upload: uploadRateOf('v5litepod-1')};
    const report = reportOn('x', spec, half, machine, LIST_PRICES, known);
    const text = startLines(report, 50, Date.parse('2026-11-24T00:00:00.000Z')).join('\n');
    assert.match(text, /samples {4}100,000 \(95,000 to 105,000\)/);
    assert.match(text, /limited by the upload, at an assumed 1\.0 GB\/s\n/);
    assert.match(text, /\n {2}chips wait .* this helps:\n {13}tokens "::8": .*\n {2}time /);
    assert.match(text, /dollars .* spot, .*list prices of 2026-11-23; .*; budget \$50\.00/);
    const catalog = {
      'v5litepod@us-central1': {
        usd: 1,
        spot_usd: 1,
        source: 'catalog',
        as_of: '2026-11-22',
        since_at: '2026-10-01T07:00:00.000Z',
      },
    } as const;
    const of = (is_google: boolean) =>
      reportOn('x', spec, half, {...machine, is_google}, catalog, known).prices_are;
    assert.match(pricesText(of(true), 'us-central1-a', 0), /^Cloud Billing Catalog of 2026-11-22/);
    assert.match(pricesText(of(false), 'us-central1-a', 0), /^recorded prices of 2026-10-01, /);
  });

  it('an estimate of a run warns that a deployment whose pool has no document is priced as one small TPU', async () => {
    const warnings = async (documents: object, options: object) => {
      const connection = {deployment: 'gleaner', project: 'p', is_google: true};
      const cloud = {store: await aStore({...documents}), connection} as unknown as Cloud;
      const asked = {what: 'x', input: {model: 'm'}, sampled: aSample({warnings: []})};
      return (await reportOf(cloud, asked, options)).warnings.join();
    };
    const guessed = /^pool tpu has no document yet: this prices 1 v5litepod-1 in us-central1-a; /;
    assert.match(await warnings({}, {}), guessed);
    assert.match(await warnings({}, {accelerator: 'v6e-8'}), /this prices 1 v6e-8 in us-central1-a/);
    assert.equal(await warnings({}, {accelerator: 'v6e-8', zone: 'us-east1-d', workers: 2}), '');
    assert.equal(await warnings({'pools/tpu': {...aConfig().pool}}, {}), '');
  });

  it('each estimate lies inside its range, which is open where the sample has no upper bound', () => {
    const formats = fc.constantFrom('safetensors', 'safetensors.zst', 'pkl.gz');
    const dtypes = fc.constantFrom('bf16', 'fp16', 'fp32', 'int8');
    const types = fc.constantFrom('v2-8', 'v3-8', 'v4-8', 'v5litepod-1', 'v5litepod-8', 'v5p-8', 'v6e-4');
    fc.assert(
      fc.property(
        formats,
        dtypes,
        types,
        fc.nat(99),
        fc.boolean(),
        (format, dtype, accelerator, workers, open) => {
          const {totals} = aSample();
          const end = <T extends {high: number | null}>(span: T) => (open ? {...span, high: null} : span);
          const given = aSample({
            totals: {...totals, tokens: end(totals.tokens), shard_bytes: end(totals.shard_bytes)},
          });
          const numbers: Numbers = {format, dtype, compute_dtype: 'bf16'};
          const rate = assumedRate(given, numbers, {accelerator, workers}) ?? assert.fail();
          const {tpu, clock} = hoursOf(given, rate, {accelerator, workers});
          for (const {low, estimate, high} of [rate, tpu, clock, storedBytes(given, numbers)])
            assert.ok(
              low <= estimate && estimate <= (high ?? Number.POSITIVE_INFINITY),
              `${low} ${estimate} ${high}`,
            );
          assert.equal(tpu.high === null, open);
        },
      ),
    );
  });
});
