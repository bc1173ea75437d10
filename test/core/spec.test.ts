import assert from 'node:assert/strict';
import fc from 'fast-check';
import {Rejected} from '../../shared/errors.ts';
import type {RunSpecInput} from '../../shared/schemas.ts';
import {completeSpec, parseRunSpec, specHash} from '../../shared/spec.ts';
import {aConfig} from '../builders.ts';

const complete = (input: RunSpecInput) => completeSpec(input, aConfig());

const bad: {name: string; text: string; says: string[]}[] = [
  {name: 'no JSON', text: '{', says: ['run.json is not JSON']},
  {name: 'a list', text: '[]', says: ['run.json is not valid', 'expected object']},
  {name: 'nothing', text: 'null', says: ['run.json is not valid']},
  {name: 'an unknown key', text: '{"modle": "tiny"}', says: ['modle']},
  {name: 'two unknown keys', text: '{"modle": 1, "laers": 2}', says: ['modle', 'laers']},
  {name: 'an unknown key inside', text: '{"record": {"filed": "text"}}', says: ['record', 'filed']},
  {name: 'a wrong value', text: '{"over_long": "cut"}', says: ['over_long', 'reject', 'truncate']},
  {name: 'a number as text', text: '{"max_seq_length": "2048"}', says: ['max_seq_length', 'expected number']},
  {name: 'two problems', text: '{"seed": -1, "dtype": "int4"}', says: ['seed', 'dtype']},
  {name: 'no layer', text: '{"layers": []}', says: ['layers']},
  {name: 'a layer that is no number', text: '{"layers": ["0"]}', says: ['layers']},
  {name: 'a range with a gap in it', text: '{"layers": "0-3,7"}', says: ['layers', '0-23']},
  {
    name: 'bf16 in a pickle',
    text: '{"format": "pkl.gz", "dtype": "bf16"}',
    says: ['dtype', 'pkl.gz cannot hold bf16'],
  },
  {name: 'a shard of no size', text: '{"shard_size_gb": 0}', says: ['shard_size_gb']},
  {name: 'an empty model', text: '{"model": ""}', says: ['model']},
  {name: 'a pool that cannot be', text: '{"pool": "Tpu!"}', says: ['pool']},
];

describe('run.json', () => {
  for (const {name, text, says} of bad)
    it(`with ${name} is refused, and the reason names it`, () => {
      assert.throws(
        () => parseRunSpec(text, 'run.json'),
        error => error instanceof Rejected && says.every(word => error.message.includes(word)),
      );
    });

  it('may be empty: everything has a default that loses nothing', () => {
    assert.deepEqual(complete(parseRunSpec('{}', 'run.json')), {
      spec: {
        model: 'Qwen/Qwen2.5-0.5B',
        revision: null,
        layers: 'all',
        sites: ['resid_post'],
        tokens: 'all',
        dtype: 'bf16',
        format: 'safetensors',
        shard_size_gb: 1,
        max_seq_length: 2048,
        over_long: 'reject',
        record: {field: null},
        seed: 42,
      },
      placement: {pool: 'tpu', priority: 0, budget_usd: null},
    });
  });

  it('asks for fp32 where a pickle cannot hold bf16', () => {
    assert.equal(complete({format: 'pkl.gz'}).spec.dtype, 'fp32');
  });

  it('says what it costs apart from what its shards hold', () => {
    const {spec, placement} = complete({model: 'tiny', pool: 'big', priority: 7, budget_usd: null});
    assert.deepEqual(placement, {pool: 'big', priority: 7, budget_usd: null});
    assert.equal(specHash(spec), specHash(complete({model: 'tiny'}).spec));
  });
});

const inputs: fc.Arbitrary<RunSpecInput> = fc.record(
  {
    model: fc.string({minLength: 1, maxLength: 20}),
    revision: fc.option(fc.string({minLength: 1, maxLength: 8})),
    layers: fc.oneof(
      fc.constant('all' as const),
      fc.constant('0-23'),
      fc.array(fc.nat(99), {minLength: 1, maxLength: 5}),
    ),
    max_seq_length: fc.integer({min: 1, max: 131_072}),
    over_long: fc.constantFrom('reject' as const, 'truncate' as const),
    shard_size_gb: fc.constantFrom(0.001, 1, 64),
    record: fc.record({field: fc.option(fc.string({minLength: 1, maxLength: 8}))}),
    seed: fc.nat(2 ** 31 - 1),
    dtype: fc.constantFrom('bf16' as const, 'fp32' as const),
  },
  {requiredKeys: []},
);

describe('the hash of a spec', () => {
  it('does not depend on the order in which it was written', () => {
    fc.assert(
      fc.property(
        inputs.chain(input =>
          fc.tuple(
            fc.constant(input),
            fc.shuffledSubarray(Object.keys(input), {minLength: Object.keys(input).length}),
          ),
        ),
        ([input, keys]) => {
          const shuffled = Object.fromEntries(keys.map(key => [key, input[key as keyof RunSpecInput]]));
          assert.equal(specHash(complete(shuffled as RunSpecInput).spec), specHash(complete(input).spec));
          const {spec} = complete(input);
          const reversed = Object.fromEntries(Object.entries(spec).reverse()) as typeof spec;
          assert.equal(specHash(reversed), specHash(spec));
        },
      ),
    );
  });

  it('is the same for a default and for the same thing in words', () => {
    assert.equal(specHash(complete({dtype: 'bf16', seed: 42}).spec), specHash(complete({}).spec));
  });

  it('differs where any one thing that the shards depend on differs', () => {
    const changes: RunSpecInput[] = [
      {},
      {model: 'other'},
      {revision: 'v1'},
      {layers: '0-1'},
      {layers: [0, 1]},
      {layers: [1, 0]},
      {dtype: 'fp32'},
      {format: 'pkl.gz'},
      {shard_size_gb: 2},
      {max_seq_length: 2049},
      {over_long: 'truncate'},
      {record: {field: 'text'}},
      {seed: 43},
    ];
    assert.equal(new Set(changes.map(change => specHash(complete(change).spec))).size, changes.length);
  });

  it('survives being read back from the manifest', () => {
    fc.assert(
      fc.property(inputs, input => {
        const {spec} = complete(input);
        const frozen = JSON.parse(JSON.stringify({spec, ignored: 1})) as {spec: RunSpecInput};
        assert.equal(specHash(complete(frozen.spec).spec), specHash(spec));
      }),
    );
  });

  it('is what it was: it is stored with every shard', () => {
    assert.equal(
      specHash(complete({}).spec),
      '533710bb2da8975744412bd9ab6376734a7db3d067cf3322651f3b1b0579df4f',
    );
  });
});
