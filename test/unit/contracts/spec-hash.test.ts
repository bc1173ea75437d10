import assert from 'node:assert/strict';
import fc from 'fast-check';
import {parseValue} from '../../../shared/contracts/messages/schemas.ts';
import {SITES} from '../../../shared/contracts/spec/site-names.ts';
import {frozenSpec, type RunSpecInput, specHash} from '../../../shared/contracts/spec/spec.ts';
import type {Fields} from '../../../shared/domain/records/field.ts';
import {DEFAULT_SPEC_HASH, recordKeys, specKeys} from '../../../shared/domain/records/spec-keys.ts';
import {complete, DEFAULTS} from './spec-cases.ts';

const {record: _record, ...wordsOfSpec} = DEFAULTS;
/** Each key alone, with each declared value or the next number. */
const otherValues = (all: Fields, defaults: Record<string, unknown>): object[] =>
  Object.entries(all).flatMap(([name, field]) => {
    const others = {number: [Number(defaults[name] ?? 1) + 1], flag: [true], word: [], text: [], own: []};
    const values = field.kind === 'word' ? field.words : others[field.kind];
    return values.filter(value => value !== defaults[name]).map(value => ({[name]: value}));
  });
const inputs: fc.Arbitrary<RunSpecInput> = fc.record(
  {
    model: fc.string({minLength: 1, maxLength: 20}),
    revision: fc.option(fc.string({minLength: 1, maxLength: 8})),
    layers: fc.oneof(
      fc.constant('all'),
      fc.constant('0-23'),
      fc.uniqueArray(fc.nat(99), {minLength: 1, maxLength: 5}),
    ),
    sites: fc.shuffledSubarray([...SITES], {minLength: 1}),
    tokens: fc.oneof(
      fc.constantFrom('all', 'last', 'mean', 'last:turns', '0:16', '-8:'),
      fc.uniqueArray(fc.integer({min: -9, max: 9}), {minLength: 1, maxLength: 5}),
    ),
    exclude_special: fc.boolean(),
    max_seq_length: fc.integer({min: 20, max: 131_072}),
    over_long: fc.constantFrom('reject', 'truncate'),
    shard_size_gb: fc.constantFrom(0.001, 1, 64),
    record: fc.record(
      {
        field: fc.option(fc.string({minLength: 1, maxLength: 8})),
        predictions_per_task: fc.integer({min: 1, max: 9}),
      },
      {requiredKeys: []},
    ),
    keep: fc.uniqueArray(fc.string({minLength: 1, maxLength: 8}), {maxLength: 3}),
    seed: fc.nat(2 ** 31 - 1),
    dtype: fc.constantFrom('bf16', 'fp16', 'fp32', 'int8'),
  },
  {requiredKeys: []},
);

describe('the hash of a spec', () => {
  it('the hash of a spec does not depend on the order of keys', () => {
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

  it('the hash of a spec is the same for a default and for its explicit value', () => {
    assert.equal(specHash(complete(wordsOfSpec).spec), specHash(complete({}).spec));
    assert.equal(specHash(complete({moments: null, features: []}).spec), DEFAULT_SPEC_HASH);
    assert.equal(
      specHash(complete({moments: {}}).spec),
      specHash(complete({sites: [], moments: {sites: ['hook_resid_post'], layers: null}}).spec),
    );
    assert.equal(
      specHash(complete({sites: ['mlp_out', 'attn_out']}).spec),
      specHash(complete({sites: ['attn_out', 'mlp_out']}).spec),
    );
  });

  it('the hash of a spec differs for each key that shards depend on', () => {
    const changes: RunSpecInput[] = [
      {},
      ...otherValues(specKeys, DEFAULTS),
      ...otherValues(recordKeys, DEFAULTS.record).map(record => ({record})),
      {model: 'other'},
      {revision: 'v1'},
      {layers: '0-1'},
      {layers: [0, 1]},
      {layers: [1, 0]},
      {sites: ['mlp_out']},
      {tokens: 'last'},
      {tokens: [0, 1]},
      {tokens: [1, 0]},
      {shard_size_gb: 2},
      {over_long: 'chunk', overlap: 1},
      {over_long: 'pack', context_size: 512},
      {bos: true},
      {bos: false},
      {tokens: 'assistant'},
      {tokens: 'mean:assistant'},
      {mask: 'assistant'},
      {generate: {max_new_tokens: 8, temperature: 0}},
      {record: {field: 'text'}},
      {record: {template: 'text'}},
      {record: {encoder: 'MinimalGridEncoder()'}},
      {moments: {}},
      {moments: {}, sites: ['resid_post']},
      {moments: {layers: [1]}},
      {features: [{name: 'a', weights: 'w'}]},
      {features: [{name: 'a', weights: 'w', k: 32}]},
      {project: [{name: 'a', weights: 'w'}]},
      {keep: ['id']},
      {keep: ['id', 'name']},
    ];
    assert.equal(new Set(changes.map(change => specHash(complete(change).spec))).size, changes.length);
  });

  it('the hash of a spec stays the same through the manifest', () => {
    fc.assert(
      fc.property(inputs, input => {
        const {spec} = complete(input);
        const frozen = parseValue(frozenSpec, JSON.parse(JSON.stringify(spec)), 'The spec');
        assert.equal(specHash(frozen), specHash(spec));
        assert.deepEqual(complete(frozen).spec, spec);
      }),
    );
  });

  it('the hash of the default spec, which every shard carries, changes only with a new key', () => {
    assert.equal(specHash(complete({}).spec), DEFAULT_SPEC_HASH);
  });
});
