import assert from 'node:assert/strict';
import {addSpecOptions} from '../../../cli/commands/spec-options.ts';
import {type SpecOptions, specOf} from '../../../cli/run/spec/spec.ts';
import {planText} from '../../../cli/run/start.ts';
import {GleanerCommand} from '../../../cli/terminal/command.ts';
import {resultLines} from '../../../client/explanations/result-lines.ts';
import {answers} from '../../../client/json/index.ts';
import {compareSides, differencesOf, type Side} from '../../../client/views/comparison.ts';
import {NO_UPLOADS, ResultFold, type Stats} from '../../../shared/domain/run/result.ts';
import {aRun, aStats} from '../../world/builders.ts';

describe('The spec of run start', () => {
  for (const {given, spec} of [
    {given: '--layers 0-23 --tokens last', spec: {layers: '0-23', tokens: 'last'}},
    {given: '--layers 3 --tokens=0,-1 --bos true', spec: {layers: [3], tokens: [0, -1], bos: true}},
    {given: '--shard-size 500MB --budget-usd 50', spec: {shard_size_gb: 0.5, budget_usd: 50}},
    {given: '--budget-usd none --context-size none', spec: {budget_usd: null, context_size: null}},
    {given: '--seed 2147483647 --priority=-1000', spec: {seed: 2 ** 31 - 1, priority: -1000}},
    {given: '--generate 8', spec: {generate: {max_new_tokens: 8, temperature: 0}}},
    {given: '--template-kwargs {"a":false}', spec: {record: {template_kwargs: {a: false}}}},
    {given: '--field body --keep id', spec: {record: {field: 'body'}, keep: ['id']}},
  ])
    it(`the spec of run start is ${JSON.stringify(spec)} for ${given}`, async () => {
      const command = addSpecOptions(new GleanerCommand()).parse(given.split(' '), {from: 'user'});
      assert.deepEqual(await specOf(command.opts()), spec);
    });

  for (const given of ['--row-tokens 300', '--seed 2147483648', '--expire-days 0', '--bos no'])
    it(`the spec of run start refuses ${given}`, () => {
      const command = addSpecOptions(new GleanerCommand())
        .exitOverride()
        .configureOutput({writeErr: () => {}});
      assert.throws(() => command.parse(given.split(' '), {from: 'user'}), /is invalid/);
    });

  it('the spec of run start has the options on top of the run.json of the folder', async () =>
    assert.deepEqual(await specOf({dtype: 'fp32', field: 'body'}, Buffer.from('{"dtype":"bf16","seed":3}')), {
      dtype: 'fp32',
      record: {field: 'body'},
      seed: 3,
    }));

  for (const {given, error} of [
    {given: {priority: 5000}, error: /priority: expected at most 1000, but it is 5000/},
    {given: {sites: ['bad']}, error: /sites\.0: expected a site: resid_pre, .* but it is "bad"/},
    {given: {layers: '5-2'}, error: /layers: expected a range from low to high, "2-5"/},
    {given: {field: 'a', template: 'b'}, error: /record: expected field or template, not both/},
    {
      given: {template_kwargs: {messages: 1}},
      error: /template_kwargs\.messages: expected names of variables, other/,
    },
    {given: {template_kwargs: {a: {b: 1}}}, error: /template_kwargs\.a: expected texts, numbers/},
    {given: {template_kwargs: {a: 1e20}}, error: /template_kwargs\.a: expected a number with fewer digits/},
    {given: {spec: '/nowhere/run.json'}, error: /Failed to read --spec \/nowhere\/run\.json/},
  ] as {given: SpecOptions; error: RegExp}[])
    it(`the spec of run start is refused in words for ${JSON.stringify(given)}`, () =>
      assert.rejects(specOf(given), error));
});

describe('The plan of run start', () => {
  const stream = {
    stream: '000',
    gzip: false,
    path: 'd/stream_000.jsonl',
    file: 'stream_000.jsonl',
    bytes: 54_000,
  };
  const folder = {folder: 'd', spec: undefined, streams: [stream]};
  for (const {budget, of, text} of [
    {budget: 50, of: folder, text: 'Run r: 1 stream of 54 kB from d, budget $50.00'},
    {budget: null, of: undefined, text: 'Run r: the streams in the bucket, no budget'},
  ])
    it(`reads: ${text}`, () =>
      assert.equal(
        planText('r', budget, {folder: of && {...of, streams: [{...stream, known: undefined}]}}),
        text,
      ));
});

describe('The uploads of a completed run', () => {
  const lines = (bytes: number) =>
    resultLines({...new ResultFold().result(), upload: {bytes, seconds: 12, bound_seconds: 6}});

  it('the uploads of a completed run have a line with their rate, and none where no bytes were counted', () => {
    assert.deepEqual(lines(336e6), [
      'uploads: 336 MB in 12 s, 28 MB a second of a host; uploads were the bottleneck 50 % of the time',
    ]);
    assert.deepEqual(lines(0), []);
  });

  it('the result of a completed run names its tensors, and moments where there are no others', () => {
    const fold = new ResultFold().result();
    const model = {
      ...{name: 'm', revision: null, fingerprint: 'f', files: {}, unknown_keys: []},
      ...{weights_sha256: 'a'.repeat(64), tokenizer_sha256: 'b'.repeat(64)},
    };
    const stats = {'scope.0': aStats({}), 'scope.1': aStats({})};
    assert.deepEqual(resultLines({...fold, model, stats, rows: 9}), [
      '9 rows of 2 tensors (scope of layers 0-1) from m',
    ]);
    assert.deepEqual(resultLines({...fold, model, rows: 9}), ['moments from m']);
  });
});

describe('The keys that differ between two specs', () => {
  it('the keys that differ between two specs do not depend on the order of keys', () =>
    assert.deepEqual(differencesOf({a: 1, b: {c: 1, d: 2}}, {b: {d: 2, c: 1}, a: 1}), []));
  it('the keys that differ between two specs are named with both values', () =>
    assert.deepEqual(differencesOf({a: 1, b: 2}, {a: 1, c: 3}), [
      {key: 'b', wanted: 2, stored: undefined},
      {key: 'c', wanted: undefined, stored: 3},
    ]));
});

describe('A comparison of runs', () => {
  const STATS = aStats({mean: 0.001, norm: 12, max_abs: 40});
  const totals = {samples: 40, rejected: 0, truncated: 0, tokens: 900, rows: 900, shards: 2, bytes: 5000};
  const aSide = (run: string, stats: Partial<Stats> = {}, samples = 40): Side => ({
    run: aRun({run, status: 'completed', total_samples_processed: samples, total_tokens: 900}),
    result: {
      ...{...totals, samples, streams: 1, model: null, versions: {}, code: [], unread: {}, unread_streams: 0},
      ...{digest: null, upload: NO_UPLOADS},
      stats: {'resid_post.0': {...STATS, ...stats}},
    },
    shards: new Map([
      ['000/1', 'AAAA'],
      ['000/2', run],
    ]),
  });
  const compared = (a: Side, b: Side) => {
    const comparison = compareSides(a, b);
    answers['run compare']?.parse(JSON.parse(JSON.stringify(comparison)));
    return comparison;
  };

  for (const {what, stats, same} of [
    {what: 'equal statistics', stats: {}, same: true},
    {what: 'the rounding of another machine', stats: {norm: 12.001}, same: true},
    {what: 'means near zero that differ by less than the norm shows', stats: {mean: -0.001}, same: true},
    {what: 'another norm', stats: {norm: 12.1}, same: false},
    {what: 'one value that is not finite', stats: {non_finite: 1}, same: false},
  ])
    it(`a comparison of runs finds ${same ? 'the same' : 'a difference'} in ${what}`, () =>
      assert.equal(compared(aSide('a'), aSide('b', stats)).same, same));

  it('a comparison of runs begins with the largest difference', () => {
    const {statistics} = compared(aSide('a'), aSide('b', {norm: 13, max_abs: 80}));
    assert.deepEqual(
      statistics.map(({name}) => name),
      ['resid_post.0 max_abs', 'resid_post.0 norm'],
    );
  });

  it('a comparison of runs names the tensors that only one run stores, and lists no statistic of them', () => {
    const [a, b] = [aSide('a'), aSide('b')];
    const [stats] = Object.values(b.result?.stats ?? {});
    Object.assign(b.result?.stats ?? {}, {'mlp_out.0': stats, 'mlp_out.1': stats});
    const {same, statistics, notes} = compared(a, b);
    assert.deepEqual([same, statistics, notes], [false, [], ['only run b stores mlp_out.0, mlp_out.1']]);
  });

  it('a comparison of runs finds a difference in the samples', () =>
    assert.equal(compared(aSide('a'), aSide('b', {}, 39)).same, false));

  it('a comparison of runs counts shards with equal bytes', () => {
    const [a, b] = [aSide('a'), aSide('b')];
    b.shards.set('001/1', 'BBBB');
    assert.deepEqual(compared(a, b).shards, {same_bytes: 1, other_bytes: 1, only_a: 0, only_b: 1});
  });

  it('a comparison of runs never calls a run the same that has not ended', () => {
    const a = {
      ...aSide('a'),
      run: aRun({run: 'a', status: 'active', total_samples_processed: 40, total_tokens: 900}),
    };
    const {same, notes} = compared(a, aSide('b'));
    assert.deepEqual([same, notes], [false, ['run a is active: only what is stored is compared']]);
  });

  it('a comparison of runs finds a layer that one run alone has', () => {
    const b = aSide('b');
    if (b.result) b.result.stats['resid_post.1'] = STATS;
    assert.equal(compared(aSide('a'), b).same, false);
  });
});
