import assert from 'node:assert/strict';
import {readFileSync, writeFileSync} from 'node:fs';
import {fileURLToPath} from 'node:url';
import {Ajv2020} from 'ajv/dist/2020.js';
import fc from 'fast-check';
import {Rejected} from '../../../shared/contracts/errors.ts';
import {parseValue} from '../../../shared/contracts/schemas.ts';
import {
  completeSpec,
  frozenSpec,
  parseRunSpec,
  type RunSpec,
  type RunSpecInput,
  runSpecJsonSchema,
  specHash,
} from '../../../shared/contracts/spec.ts';
import {SITES} from '../../../shared/contracts/spec-keys.ts';
import {aConfig} from '../../support/builders.ts';

const file = (path: string) => fileURLToPath(new URL(`../../../${path}`, import.meta.url));

/** The same cases that `test/worker/test_spec.py` holds the worker to. */
type Cases = {
  defaults: RunSpec;
  valid: {name: string; given: RunSpecInput; completes: RunSpecInput}[];
  frozen: {name: string; spec: RunSpecInput; spec_hash: string; completes: RunSpecInput}[];
  invalid: {name: string; given: unknown; says: string[]}[];
};
const cases: Cases = JSON.parse(readFileSync(file('test/fixtures/spec-cases.json'), 'utf8'));

const complete = (input: RunSpecInput) => completeSpec(input, aConfig());
const expected = (changes: RunSpecInput) => ({
  ...cases.defaults,
  ...changes,
  record: {...cases.defaults.record, ...changes.record},
});

function refuses(text: string, says: string[]): void {
  assert.throws(
    () => parseRunSpec(text, 'run.json'),
    error => {
      assert.ok(error instanceof Rejected, String(error));
      for (const word of says) assert.ok(error.message.includes(word), error.message);
      return true;
    },
  );
}

describe('run.json', () => {
  for (const {name, given, completes} of cases.valid)
    it(`with ${name} is taken and completed`, () => {
      assert.deepEqual(complete(parseRunSpec(JSON.stringify(given), 'run.json')).spec, expected(completes));
    });

  for (const {name, given, says} of cases.invalid)
    it(`with ${name} is refused, and the reason names it`, () => refuses(JSON.stringify(given), says));

  const texts: {name: string; text: string; says: string[]}[] = [
    {name: 'no JSON', text: '{', says: ['run.json is not JSON']},
    {name: 'a list', text: '[]', says: ['run.json is not valid', 'expected an object, got a list']},
    {name: 'nothing', text: 'null', says: ['run.json is not valid']},
    {name: 'the key of a prototype', text: '{"__proto__": {"model": "tiny"}}', says: ['__proto__']},
    {
      name: 'a wrong key, also naming the right ones',
      text: '{"modle": 1}',
      says: ['no modle', 'model, revision'],
    },
    {name: 'half a character in its model', text: '{"model": "\\ud800"}', says: ['model', 'Unicode']},
    {name: 'an offset for nobody', text: '{"stream_offset": 8}', says: ['stream_offset', 'affinity "fixed"']},
    {name: 'an affinity that there is not', text: '{"affinity": "sticky"}', says: ['affinity']},
    {
      name: 'half a character in its template',
      text: '{"record": {"template": "\\udc00"}}',
      says: ['record.template'],
    },
    {
      name: 'a very long template',
      text: JSON.stringify({record: {template: 'x'.repeat(16_385)}}),
      says: ['record.template', '16384'],
    },
    {
      name: 'very many layers',
      text: JSON.stringify({layers: Array.from({length: 1001}, (_, n) => n)}),
      says: ['layers', '1000'],
    },
    {
      name: 'very many positions',
      text: JSON.stringify({tokens: Array.from({length: 1025}, (_, n) => n)}),
      says: ['tokens', '1024'],
    },
    {
      name: 'very many fields to keep',
      text: JSON.stringify({keep: Array.from({length: 33}, (_, n) => `f${n}`)}),
      says: ['keep', '32'],
    },
    {name: 'a key twice', text: '{"seed": 1, "seed": 1}', says: ['not valid', 'the key "seed" twice']},
    {name: 'a key twice, once escaped', text: '{"seed": 1, "s\\u0065ed" : 2}', says: ['"seed" twice']},
    {
      name: 'a key twice inside',
      text: '{"keep": ["{", "seed"], "record": {"field": "a", "field": "\\":"}}',
      says: ['"field" twice'],
    },
    {name: 'a number that is none', text: '{"shard_size_gb": 1e999}', says: ['shard_size_gb']},
  ];
  for (const {name, text, says} of texts)
    it(`with ${name} is refused, and the reason names it`, () => refuses(text, says));

  it('may have a key of the same name in another object, and in a text', () => {
    const given = {model: '"seed": 1, "seed": 2', seed: 1, record: {field: 'seed'}, keep: ['seed', 'model']};
    assert.deepEqual(parseRunSpec(JSON.stringify(given), 'run.json'), given);
  });

  it('may begin with the mark of its encoding, as some editors write it', () => {
    assert.deepEqual(parseRunSpec('\ufeff{"seed": 7}', 'run.json'), {seed: 7});
  });

  it('says what it costs apart from what its shards hold', () => {
    const {spec, placement} = complete({model: 'tiny', pool: 'big', priority: 7, budget_usd: null});
    const {affinity, stream_offset} = placement;
    assert.deepEqual([affinity, stream_offset], ['any', 0]);
    assert.deepEqual(placement, {pool: 'big', priority: 7, budget_usd: null, affinity, stream_offset});
    assert.equal(specHash(spec), specHash(complete({model: 'tiny'}).spec));
  });

  it('is described by docs/run.schema.json, for editors', () => {
    const path = file('docs/run.schema.json');
    const schema = runSpecJsonSchema();
    if (process.env.UPDATE_RUN_SCHEMA) writeFileSync(path, `${JSON.stringify(schema, null, 2)}\n`);
    assert.deepEqual(
      JSON.parse(readFileSync(path, 'utf8')),
      JSON.parse(JSON.stringify(schema)),
      'docs/run.schema.json is out of date: run this test with UPDATE_RUN_SCHEMA=1, then `npm run format`',
    );
  });

  it('is described as it is taken, but for ranges, slices and positions, which the description names', () => {
    const fits = new Ajv2020({strict: false}).compile(runSpecJsonSchema());
    const refusedAll = cases.valid.filter(({given}) => !fits(given));
    const taken = cases.invalid.filter(({given}) => fits(given));
    assert.deepEqual(refusedAll, []);
    assert.ok(taken.length < cases.invalid.length / 4);
    for (const {name, says} of taken) assert.match(says[0] ?? '', /^(layers|tokens)/, name);
    for (const given of [
      {stream_offset: 8},
      {record: {template: 'a', predictions_per_task: 2}},
      {format: 'pkl.gz', dtype: 'bf16'},
    ])
      assert.ok(!fits(given), JSON.stringify(given));
  });

  it('is described with the defaults that it gets', () => {
    const {properties} = runSpecJsonSchema() as {properties: Record<string, {default?: unknown}>};
    const said = Object.entries(properties).filter(([, {default: value}]) => value !== undefined);
    assert.ok(said.length >= 10);
    const {spec, placement} = complete({});
    for (const [key, {default: value}] of said)
      assert.deepEqual({...spec, ...placement}[key as keyof RunSpec], value, key);
    assert.deepEqual(Object.keys(properties).sort(), Object.keys({...spec, ...placement}).sort());
  });
});

describe('a spec that an earlier release froze', () => {
  for (const {name, spec, spec_hash, completes} of cases.frozen)
    it(`${name}: is taken as it is, keeps its hash, and means the same`, () => {
      const frozen = parseValue(frozenSpec, spec, 'The spec');
      assert.equal(specHash(frozen), spec_hash);
      assert.deepEqual(complete(frozen).spec, expected(completes));
    });

  it('by a later release is refused when it has a key that this one does not know', () => {
    assert.throws(() => parseValue(frozenSpec, {...cases.defaults, heads: [0]}, 'The spec'), /heads/);
  });
});

const {record: _record, ...wordsOfSpec} = cases.defaults;
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
      fc.constantFrom('all', 'last', 'mean', '0:16', '-8:'),
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
    assert.equal(specHash(complete(wordsOfSpec).spec), specHash(complete({}).spec));
    assert.equal(
      specHash(complete({sites: ['mlp_out', 'attn_out']}).spec),
      specHash(complete({sites: ['attn_out', 'mlp_out']}).spec),
    );
  });

  it('differs where any one thing that the shards depend on differs', () => {
    const changes: RunSpecInput[] = [
      {},
      {model: 'other'},
      {revision: 'v1'},
      {layers: '0-1'},
      {layers: [0, 1]},
      {layers: [1, 0]},
      {sites: ['mlp_out']},
      {tokens: 'last'},
      {tokens: [0, 1]},
      {tokens: [1, 0]},
      {exclude_special: true},
      {dtype: 'fp32'},
      {dtype: 'int8'},
      {compute_dtype: 'fp32'},
      {format: 'pkl.gz'},
      {format: 'safetensors.zst'},
      {shard_size_gb: 2},
      {max_seq_length: 2049},
      {over_long: 'truncate'},
      {record: {field: 'text'}},
      {record: {template: 'text'}},
      {record: {encoder: 'MinimalGridEncoder()'}},
      {record: {prompt_version: 'input-from-inputs-v0'}},
      {record: {predictions_per_task: 2}},
      {record: {add_generation_prompt: true}},
      {keep: ['id']},
      {keep: ['id', 'name']},
      {seed: 43},
    ];
    assert.equal(new Set(changes.map(change => specHash(complete(change).spec))).size, changes.length);
  });

  it('survives being read back from the manifest', () => {
    fc.assert(
      fc.property(inputs, input => {
        const {spec} = complete(input);
        const frozen = parseValue(frozenSpec, JSON.parse(JSON.stringify(spec)), 'The spec');
        assert.equal(specHash(frozen), specHash(spec));
        assert.deepEqual(complete(frozen).spec, spec);
      }),
    );
  });

  it('is what it was: it is stored with every shard', () => {
    assert.equal(
      specHash(complete({}).spec),
      '4d65787c43b8e65730a50872d9c31b9723a304e1742842709a21311809ef1920',
    );
  });
});
