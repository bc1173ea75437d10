import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  NO_UPLOADS,
  ResultFold,
  type Stats,
  type StreamSummary,
} from '../../../../shared/domain/run/result.ts';
import type {StreamFacts} from '../../../../shared/domain/run/summarize.ts';
import {aStats} from '../../../world/builders.ts';

const SHA = 'b'.repeat(64);
const MODEL = {
  name: 'org/name',
  revision: 'c'.repeat(40),
  fingerprint: 'f'.repeat(16),
  weights_sha256: SHA,
  tokenizer_sha256: SHA,
  files: {'config.json': SHA},
  unknown_keys: [],
};

function aSummary(changes: Partial<StreamSummary> = {}): StreamSummary & {sha256: string} {
  return {
    sha256: SHA,
    total_samples: 9,
    total_rejected: 1,
    total_tokens: 100,
    total_shards: 2,
    total_truncated: 3,
    total_rows: 100,
    stats: {'resid_post.0': aStats({mean: 0.5, norm: 2, max_abs: 7})},
    model: MODEL,
    versions: {python: '3.11.2', jax: '0.10.2'},
    code: null,
    upload: NO_UPLOADS,
    ...changes,
  };
}

/** Facts of a stream from its shards, equal to its summary. */
function facts(stream: string, summary: StreamSummary, changes: Partial<StreamFacts> = {}): StreamFacts {
  return {
    stream,
    status: 'completed',
    last_error: null,
    digest: SHA,
    total_samples_processed: summary.total_samples,
    rejected_samples: summary.total_rejected,
    total_tokens: summary.total_tokens,
    total_shards: summary.total_shards,
    total_bytes: 1000,
    ...changes,
  };
}

function fold(summaries: ReturnType<typeof aSummary>[]) {
  const folded = new ResultFold();
  for (const [index, summary] of summaries.entries()) folded.add(facts(`00${index}`, summary), summary);
  return folded.result();
}

describe('the result of a run', () => {
  it('the result of a run adds up its streams and their uploads', () => {
    const upload = {bytes: 5000, seconds: 2.5, bound_seconds: 1};
    const {
      stats: _,
      digest: __,
      model,
      versions,
      ...counts
    } = fold([
      aSummary(),
      aSummary({
        ...{total_samples: 1, total_rejected: 0, total_tokens: 50, total_rows: 1, total_truncated: 0},
        upload,
      }),
    ]);
    assert.deepEqual(counts, {
      upload,
      streams: 2,
      samples: 10,
      rejected: 1,
      truncated: 3,
      tokens: 150,
      rows: 101,
      shards: 4,
      bytes: 2000,
      code: [],
      unread: {},
      unread_streams: 0,
    });
    assert.deepEqual([model, versions], [MODEL, {python: ['3.11.2'], jax: ['0.10.2']}]);
  });

  it('the result weighs means and norms by rows, keeps the largest value and counts non-finite values', () => {
    const one = aStats({mean: 1, norm: 10, max_abs: 3, non_finite: 2});
    const other = aStats({mean: -2, norm: 4, max_abs: 8, non_finite: 5});
    const {stats} = fold([
      aSummary({total_rows: 3, stats: {'resid_post.0': one}}),
      aSummary({total_rows: 1, stats: {'resid_post.0': other}}),
    ]);
    assert.deepEqual(stats, {'resid_post.0': aStats({mean: 0.25, norm: 8.5, max_abs: 8, non_finite: 7})});
  });

  it('the result weighs the int8 error by mean squares', () => {
    const int8 = (mean_square: number, int8_error: number) =>
      aSummary({total_rows: 10, stats: {'mlp_out.3': aStats({mean_square, int8_error})}});
    const {stats} = fold([int8(9, 0.01), int8(1, 0.05)]);
    // Squared errors are 9·0.01² and 1·0.05² of energies 9 and 1.
    assert.equal(stats['mlp_out.3']?.int8_error, Number(Math.sqrt((9e-4 + 25e-4) / 10).toPrecision(7)));
    assert.equal(stats['mlp_out.3']?.mean_square, 5);
    assert.equal(fold([int8(0, 0)]).stats['mlp_out.3']?.int8_error, 0, 'all values are zero');
  });

  it('the result weighs active features by rows, and those that were cut by active features', () => {
    const features = (total_rows: number, l0: number, cut: number, cut_rows: number) =>
      aSummary({total_rows, stats: {'scope.3': aStats({l0, cut, cut_rows})}});
    const {stats} = fold([features(30, 10, 0.5, 1), features(10, 30, 0.1, 0.2)]);
    assert.deepEqual(stats, {'scope.3': aStats({l0: 15, cut: 0.3, cut_rows: 0.8})});
    assert.equal(fold([features(5, 0, 0, 0)]).stats['scope.3']?.cut, 0, 'none is active');
  });

  it('the statistics of a run equal those of its values for every division into streams', () => {
    const values = fc.array(
      fc.array(fc.double({min: -100, max: 100, noNaN: true}), {minLength: 1, maxLength: 20}),
      {minLength: 1, maxLength: 8},
    );
    const of = (rows: number[]) =>
      aStats({
        mean: rows.reduce((a, b) => a + b, 0) / rows.length,
        norm: rows.reduce((a, b) => a + Math.abs(b), 0) / rows.length,
        max_abs: Math.max(...rows.map(Math.abs)),
      });
    fc.assert(
      fc.property(values, streams => {
        const {stats, rows} = fold(
          streams.map(rows => aSummary({total_rows: rows.length, stats: {'resid_post.0': of(rows)}})),
        );
        const whole = of(streams.flat());
        assert.equal(rows, streams.flat().length);
        for (const key of ['mean', 'norm', 'max_abs'] as const)
          assert.ok(Math.abs((stats['resid_post.0']?.[key] ?? NaN) - whole[key]) <= 2e-5, key);
      }),
    );
  });

  it('shares of zeros and quantiles are weighed by rows, and the largest values are those of each position', () => {
    const basic = {mean: 0, norm: 1, max_abs: 9, non_finite: 0};
    const of = (total_rows: number, zeros: number, norms: number, max_abs_by_position: number[]) => {
      const norm_quantiles: Stats['norm_quantiles'] = [norms, norms, norms, norms, norms];
      const stats = {'a.0': {...basic, zeros, norm_quantiles, max_abs_by_position}};
      return aSummary({total_rows, stats});
    };
    const both = [of(30, 0.5, 4, [9, 1]), of(10, 0.1, 8, [2, 3, 7])];
    assert.deepEqual(fold(both).stats['a.0'], {
      ...{...basic, zeros: 0.4, norm_quantiles: [5, 5, 5, 5, 5], max_abs_by_position: [9, 3, 7]},
    });
  });

  it('the result of a run without rows has no NaN', () => {
    const nothing = {'a.0': aStats({norm: 0, max_abs: 0, norm_quantiles: [0, 0, 0, 0, 0]})};
    assert.deepEqual(fold([aSummary({total_rows: 0, stats: nothing})]).stats, nothing);
  });

  it('the result names each version and each bundle once', () => {
    const {versions, code} = fold([
      aSummary({versions: {jax: '0.10.2'}, code: 'b'}),
      aSummary({versions: {jax: '0.9.0', libtpu: '1'}, code: 'a'}),
      aSummary({versions: {jax: '0.10.2'}, code: 'b'}),
    ]);
    assert.deepEqual([versions, code], [{jax: ['0.10.2', '0.9.0'], libtpu: ['1']}, ['a', 'b']]);
  });

  const misfits: {name: string; summary: Partial<StreamSummary>; says: RegExp}[] = [
    {
      name: 'other samples than its shards',
      summary: {total_samples: 8},
      says: /8, 1, 100, 2;.* 9, 1, 100, 2/,
    },
    {name: 'another number of shards', summary: {total_shards: 3}, says: /9, 1, 100, 3/},
    {
      name: 'another model than the streams before it',
      summary: {model: {...MODEL, fingerprint: 'e'.repeat(16)}},
      says: /model eeeeeeeeeeeeeeee, the streams before it with ffffffffffffffff/,
    },
    {name: 'other layers', summary: {stats: {'resid_post.1': aStats()}}, says: /other layers or sites/},
    {name: 'no statistics', summary: {stats: {}}, says: /other layers or sites/},
  ];
  for (const {name, summary, says} of misfits)
    it(`a metadata.json with ${name} is unread, and its stream still counts`, () => {
      const folded = new ResultFold();
      folded.add(facts('000', aSummary()), aSummary());
      folded.add(facts('001', aSummary()), aSummary({total_rows: 1_000_000, ...summary}));
      const {streams, samples, rows, stats, unread} = folded.result();
      assert.deepEqual([streams, samples, rows, stats], [2, 18, 100, aSummary().stats]);
      assert.deepEqual(Object.keys(unread), ['001']);
      assert.match(unread['001'] ?? '', says);
    });

  it('a fold that another process continues gives the same bytes', () => {
    const values = fc.double({min: -1e6, max: 1e6, noNaN: true});
    const some = fc.array(fc.record({mean: values, int8_error: fc.double({min: 0, max: 1, noNaN: true})}), {
      minLength: 1,
      maxLength: 12,
    });
    fc.assert(
      fc.property(some, fc.nat(12), (streams, split) => {
        const summaries = streams.map(({mean, int8_error}, index) =>
          aSummary({
            total_rows: index,
            versions: {jax: `0.${index % 3}`, 7: 'a'},
            stats: {
              'resid_post.0': aStats({mean, non_finite: index, mean_square: mean ** 2, int8_error}),
            },
          }),
        );
        let folded = new ResultFold();
        for (const [index, summary] of summaries.entries()) {
          if (index === split) folded = new ResultFold(JSON.parse(JSON.stringify(folded.state())));
          folded.add(
            facts(`00${index}`, summary),
            index % 4 === 3 ? {unread: 'it is missing', sha256: ''} : summary,
          );
        }
        const whole = new ResultFold();
        for (const [index, summary] of summaries.entries())
          whole.add(
            facts(`00${index}`, summary),
            index % 4 === 3 ? {unread: 'it is missing', sha256: ''} : summary,
          );
        assert.equal(JSON.stringify(folded.result()), JSON.stringify(whole.result()));
      }),
    );
  });

  it('the result names a thousand unread streams and counts all of them', () => {
    const folded = new ResultFold();
    for (let index = 0; index < 1500; index++)
      folded.add(facts(`${1000 + index}`, aSummary()), {unread: 'it is missing', sha256: ''});
    const {streams, unread, unread_streams} = folded.result();
    assert.deepEqual([streams, Object.keys(unread).length, unread_streams], [1500, 1000, 1500]);
  });

  it('the result of unread streams has the totals of their shards', () => {
    const folded = new ResultFold();
    folded.add(facts('007', aSummary()), {unread: 'it is missing', sha256: ''});
    const {streams, samples, bytes, stats, model, unread} = folded.result();
    assert.deepEqual(
      {streams, samples, bytes, stats, model, unread},
      {streams: 1, samples: 9, bytes: 1000, stats: {}, model: null, unread: {'007': 'it is missing'}},
    );
  });
});
