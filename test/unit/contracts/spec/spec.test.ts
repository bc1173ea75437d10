import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {Ajv2020} from 'ajv/dist/2020.js';
import {runSpecJsonSchema} from '../../../../cli/build/reference/json-schemas.ts';
import {Rejected} from '../../../../shared/contracts/errors.ts';
import {parseValue} from '../../../../shared/contracts/messages/schemas.ts';
import {frozenSpec, parseRunSpec, type RunSpec, specHash} from '../../../../shared/contracts/spec/spec.ts';
import {cases, complete, DEFAULTS, expected, file} from '../spec-cases.ts';

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
    it(`run.json with ${name} is accepted and completed`, () => {
      assert.deepEqual(complete(parseRunSpec(JSON.stringify(given), 'run.json')).spec, expected(completes));
    });

  for (const {name, given, says} of cases.invalid)
    it(`run.json with ${name} is refused, and the reason names the key`, () =>
      refuses(JSON.stringify(given), says));

  const texts: {name: string; text: string; says: string[]}[] = [
    {name: 'text that is no JSON', text: '{', says: ['run.json is not JSON']},
    {name: 'a list', text: '[]', says: ['run.json is not valid', 'expected an object, got a list']},
    {name: 'null', text: 'null', says: ['run.json is not valid']},
    {name: 'the key of a prototype', text: '{"__proto__": {"model": "tiny"}}', says: ['__proto__']},
    {name: 'an unknown key', text: '{"modle": 1}', says: ['there is no modle, did you mean `model`?']},
    {
      name: 'an unknown key without a near one',
      text: '{"flavour": 1}',
      says: ['there is no flavour; the keys are model, revision'],
    },
    {name: 'half a character in the model', text: '{"model": "\\ud800"}', says: ['model', 'Unicode']},
    {
      name: 'an offset without a fixed affinity',
      text: '{"stream_offset": 8}',
      says: ['stream_offset', 'affinity "fixed"'],
    },
    {name: 'an unknown affinity', text: '{"affinity": "sticky"}', says: ['affinity']},
    {
      name: 'half a character in the template',
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
    {
      name: 'a key twice, the second time escaped',
      text: '{"seed": 1, "s\\u0065ed" : 2}',
      says: ['"seed" twice'],
    },
    {
      name: 'a key twice in an inner object',
      text: '{"keep": ["{", "seed"], "record": {"field": "a", "field": "\\":"}}',
      says: ['"field" twice'],
    },
    {name: 'an infinite number', text: '{"shard_size_gb": 1e999}', says: ['shard_size_gb']},
  ];
  for (const {name, text, says} of texts)
    it(`run.json with ${name} is refused, and the reason names the mistake`, () => refuses(text, says));

  it('run.json may have one key in two objects, and in a text', () => {
    const given = {model: '"seed": 1, "seed": 2', seed: 1, record: {field: 'seed'}, keep: ['seed', 'model']};
    assert.deepEqual(parseRunSpec(JSON.stringify(given), 'run.json'), given);
  });

  it('run.json is valid in every example of its page', () => {
    const examples = readFileSync(file('docs/run-spec.md'), 'utf8').matchAll(/```json\n(.*?)```/gs);
    const specs = Array.from(examples, ([, text = '']) => parseRunSpec(text, 'run.json'));
    assert.ok(specs.some(({features, project, moments}) => features && project && moments));
  });

  it('run.json may start with a byte order mark', () => {
    assert.deepEqual(parseRunSpec('\ufeff{"seed": 7}', 'run.json'), {seed: 7});
  });

  it('placement and spec of run.json are separate, and only the spec is hashed', () => {
    const {spec, placement} = complete({model: 'tiny', pool: 'big', priority: 7, budget_usd: null});
    const others = {
      affinity: 'any',
      stream_offset: 0,
      allow_cross_region: false,
      expire_days: null,
    };
    assert.deepEqual(placement, {pool: 'big', priority: 7, budget_usd: null, ...others});
    assert.equal(specHash(spec), specHash(complete({model: 'tiny'}).spec));
  });

  it('the JSON Schema of run.json refuses every invalid case except ranges, slices, positions, blocks of sites and lengths of other keys', () => {
    const fits = new Ajv2020({strict: false}).compile(runSpecJsonSchema());
    const refusedAll = cases.valid.filter(({given}) => !fits(given));
    const taken = cases.invalid.filter(({given}) => fits(given));
    assert.deepEqual(refusedAll, []);
    assert.ok(taken.length < cases.invalid.length / 4);
    const compared = [
      'the mean of the numbers of experts',
      'the mean of the numbers of tokens',
      'the largest numbers of tokens of spans',
      'a context beyond the longest sample',
      'an overlap of whole chunks',
      'a chunk of one token',
    ];
    const otherKeys = /^(layers|tokens|sites|mask|generate|keep|features|project|moments)/;
    for (const {name, says} of taken)
      if (!compared.includes(name)) assert.match(says[0] ?? '', otherKeys, name);
    for (const given of [
      {stream_offset: 8},
      {record: {template: 'a', predictions_per_task: 2}},
      {format: 'pkl.gz', dtype: 'bf16'},
    ])
      assert.ok(!fits(given), JSON.stringify(given));
  });

  it('the JSON Schema of run.json has the defaults of a completed spec', () => {
    const {properties} = runSpecJsonSchema() as {properties: Record<string, {default?: unknown}>};
    const said = Object.entries(properties).filter(([, {default: value}]) => value !== undefined);
    assert.ok(said.length >= 10);
    const {spec, placement} = complete({});
    const all = {features: [], project: [], moments: null, ...spec, ...placement};
    for (const [key, {default: value}] of said) assert.deepEqual(all[key as keyof RunSpec], value, key);
    assert.deepEqual(Object.keys(properties).sort(), Object.keys(all).sort());
  });
});

describe('a frozen spec of another release', () => {
  for (const {name, spec, spec_hash, completes} of cases.frozen)
    it(`a frozen spec ${name} keeps its hash and its meaning`, () => {
      const frozen = parseValue(frozenSpec, spec, 'The spec');
      assert.equal(specHash(frozen), spec_hash);
      assert.deepEqual(complete(frozen).spec, expected(completes));
    });

  it('a frozen spec of a later release with an unknown key is refused', () => {
    assert.throws(() => parseValue(frozenSpec, {...DEFAULTS, heads: [0]}, 'The spec'), /heads/);
  });
});
