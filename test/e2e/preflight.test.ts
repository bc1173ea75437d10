import assert from 'node:assert/strict';
import {gleaner} from '../support/machine/command.ts';
import {Folder} from '../support/machine/folder.ts';

/** Small model that the kernel of TPUs takes; it has no weights and no tokenizer. */
const CONFIG = {
  ...{model_type: 'llama', hidden_size: 256, intermediate_size: 512, num_hidden_layers: 2, vocab_size: 1024},
  ...{num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 4096, rms_norm_eps: 1e-5},
};

describe('gleaner preflight', () => {
  const folder = new Folder(after);
  const model = (changes: object) => folder.put('config.json', JSON.stringify({...CONFIG, ...changes}));
  before(() => model({}));

  async function ask(...args: string[]) {
    const {code, stdout, stderr} = await gleaner(['preflight', '--model', folder.path, ...args, '--json']);
    return {code, stderr, answer: stdout === '' ? undefined : JSON.parse(stdout)};
  }

  it('names memory, speed and price of the program of a run', async () => {
    const all = await ask('--accelerator', 'v5litepod-8');
    assert.equal(all.code, 0, all.stderr);
    const [found] = all.answer.programs;
    assert.deepEqual([found.fits, found.mesh, found.chips, found.shape], [true, '8x1', 8, '1x2048']);
    assert.equal(all.answer.recommended, 'v5litepod-8');
    assert.ok(found.hbm_bytes.arguments > 1024 * 256 * 2, JSON.stringify(found));
    const full_rows = (8 * 2048) / (found.estimated_ms / 1000);
    assert.ok(Math.abs(found.tokens_per_s / full_rows - 1) < 0.01, JSON.stringify(found));
    const {spot, on_demand} = found.usd_per_million_tokens;
    assert.ok(spot > 0 && spot < on_demand, JSON.stringify(found));
  });

  it('recommends the cheapest of the smallest types, and compiles for slices and for TPU7x @long', async () => {
    const {answer} = await ask();
    assert.deepEqual(
      answer.programs.map(({accelerator}: {accelerator: string}) => accelerator),
      ['v5litepod-1', 'v6e-1', 'v5p-8', 'tpu7x-8'],
    );
    const usd = answer.programs.flatMap(
      ({usd_per_million_tokens: {spot}}: {usd_per_million_tokens: {spot: number | null}}) => spot ?? [],
    );
    assert.equal(usd.length, 3, 'the list of prices has no TPU7x');
    assert.equal(answer.recommended, answer.programs[usd.indexOf(Math.min(...usd))].accelerator);
    const slices = await ask('--accelerator', 'v5litepod-16,v6e-16,v5p-16,tpu7x-16');
    assert.equal(slices.code, 0, slices.stderr);
    for (const {accelerator, hosts, mesh} of slices.answer.programs)
      assert.deepEqual(
        [hosts, mesh],
        {'v5p-16': [2, '8x1'], 'tpu7x-16': [2, '16x1']}[accelerator as string] ?? [4, '16x1'],
      );
    assert.equal(slices.answer.recommended, null);
  });

  it('answers no with exit 1 for a model that does not fit', async () => {
    model({
      hidden_size: 16_384,
      intermediate_size: 65_536,
      num_hidden_layers: 40,
      num_attention_heads: 128,
      num_key_value_heads: 8,
    });
    const {code, answer} = await ask('--accelerator', 'v6e-1');
    model({});
    assert.equal(code, 1);
    for (const program of answer.programs) {
      assert.equal(program.fits, false);
      assert.match(program.reason, /Failed to fit the model into 1 /);
      assert.deepEqual(program.usd_per_million_tokens, {spot: null, on_demand: null});
    }
  });

  const wrong: {name: string; args: string[]; says: RegExp; exit: number}[] = [
    {
      name: 'an unknown type behind a known one, before it compiles,',
      args: ['--accelerator', 'v5litepod-1,v9-8'],
      says: /^gleaner: Failed to compile for v9-8: give one of v5litepod-1,/,
      exit: 1,
    },
    {
      name: 'a type that the compiler lacks',
      args: ['--accelerator', 'v4-8'],
      says: /give one of v5litepod-1,/,
      exit: 1,
    },
    {
      name: 'layers that the model lacks',
      args: ['--accelerator', 'v6e-1', '--layers', '7'],
      says: /layers 0 to 1/,
      exit: 1,
    },
    {
      name: 'a position that no sample has',
      args: ['--accelerator', 'v6e-1', '--tokens', '5000'],
      says: /tokens/,
      exit: 1,
    },
    {
      name: 'a model that is not there',
      args: ['--accelerator', 'v6e-1', '--model', './none'],
      says: /it is no folder of this machine/,
      exit: 1,
    },
  ];
  for (const {name, args, says, exit} of wrong)
    it(`answers ${name} with a reason and exit ${exit}`, async () => {
      const {code, stdout, stderr} = await gleaner(['preflight', '--model', folder.path, ...args]);
      assert.equal(code, exit, stderr);
      assert.match(stderr, says);
      assert.equal(stdout, '');
    });
});
