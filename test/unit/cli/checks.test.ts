import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {readdirSync, readFileSync} from 'node:fs';
import {type Finding, refuseProblems} from '../../../cli/checks/findings.ts';
import {checkModel, checkReductions, readModelConfig} from '../../../cli/checks/model.ts';
import {checkBudget, checkOffer} from '../../../cli/checks/pool.ts';
import {keptFindings, recordsProblem, samplesFindings} from '../../../cli/checks/records.ts';
import {checkRepository} from '../../../cli/checks/repository.ts';
import type {Hub} from '../../../cli/streams/sources/hub.ts';
import {firstLines} from '../../../cli/streams/sources/lines.ts';
import type {Cloud} from '../../../client/cloud/cloud.ts';
import {type GoogleApi, GoogleError} from '../../../client/google/api.ts';
import {setQuiet} from '../../../client/text/output.ts';
import {configProblem, FAMILIES} from '../../../shared/contracts/spec/model-config.ts';
import {completeSpec, type RunSpec, type RunSpecInput} from '../../../shared/contracts/spec/spec.ts';
import {bucketModelProblem} from '../../../shared/control-plane/runs/check-model.ts';
import {LIST_PRICES} from '../../../shared/domain/billing/list-prices.ts';
import {Folder} from '../../support/machine/folder.ts';
import {FakeBucket} from '../../world/bucket.ts';
import {aConfig, T0} from '../../world/builders.ts';
import {callAtOnce} from '../../world/call.ts';
import {COMMIT, FakeHub} from './streams/a-hub.ts';

const LLAMA = '{"model_type": "llama", "num_hidden_layers": 24}';
const SPEC = completeSpec({}, aConfig()).spec;

const said = (findings: readonly Finding[]) =>
  findings
    .map(finding =>
      Object.entries(finding).map(([kind, text]) => (kind === 'problem' ? text : `${kind}: ${text}`)),
    )
    .join('\n');

describe('A config.json before a run', () => {
  const cases: {text: string; layers: 'all' | string | number[]; says: RegExp | undefined}[] = [
    {text: LLAMA, layers: 'all', says: undefined},
    {text: LLAMA, layers: '0-23', says: undefined},
    {text: LLAMA, layers: '0-24', says: /layers 0 to 23, and none with number 24: set `layers`/},
    {text: LLAMA, layers: [3, 99], says: /none with number 99/},
    {text: '{"model_type": "gpt2", "n_layer": 12}', layers: [12], says: /layers 0 to 11/},
    {
      text: '{"model_type": "gemma3", "text_config": {"num_hidden_layers": 4}}',
      layers: [4],
      says: /layers 0 to 3/,
    },
    {
      text: '{"model_type": "mamba"}',
      layers: 'all',
      says: /model_type "mamba", and the supported types are gemma, gemma2, /,
    },
    {text: '{"model_type": "toString"}', layers: 'all', says: /model_type "toString"/},
    {text: '{}', layers: 'all', says: /has no model_type, and/},
    {text: '[1]', layers: 'all', says: /no JSON object/},
  ];
  for (const {text, layers, says} of cases)
    it(`${text} with layers ${JSON.stringify(layers)} ${says ? 'is refused' : 'is accepted'}`, () => {
      const problem = configProblem(text, {model: 'm', layers: layers as 'all'});
      if (says) assert.match(problem ?? '', says);
      else assert.equal(problem, undefined);
    });

  const refused: {config: object; says: RegExp}[] = [
    {config: {model_type: 'olmo2', clip_qkv: 8}, says: /clip_qkv is 8, which this family does not support/},
    {config: {model_type: 'llama', per_layer_config: {0: {head_dim: 8}}}, says: /per_layer_config is \{"0"/},
    {config: {model_type: 'qwen2', hidden_act: 'mish'}, says: /hidden_act is "mish", supported is gelu, /},
    {config: {model_type: 'gpt2', intermediate_size: 50}, says: /intermediate_size is 50, .* use n_inner/},
    {
      config: {model_type: 'phi3', rope_scaling: {type: 'linear'}},
      says: /rope_scaling.rope_type is "linear"/,
    },
    {
      config: {model_type: 'gemma3', text_config: {rope_parameters: {rope_type: 'default'}}},
      says: /text_config.rope_parameters.rope_type is "default", .* each type of layer/,
    },
    {
      config: {model_type: 'llama', rope_parameters: {partial_rotary_factor: 0.5}},
      says: /rope_parameters.partial_rotary_factor is 0.5/,
    },
    {
      config: {model_type: 'olmo3', layer_types: ['chunked_attention']},
      says: /layer_types is .*, supported is full_attention and sliding_attention/,
    },
    {
      config: {model_type: 'gpt_oss', quantization_config: {quant_method: 'awq'}},
      says: /quant_method is "awq", supported is mxfp4/,
    },
    {
      config: {model_type: 'olmo3', rope_scaling: {type: 'linear', factor: 8}},
      says: /rope_scaling.type is "linear", .* name the key rope_type/,
    },
    {
      config: {model_type: 'qwen3', mlp_bias: true, num_experts: 4},
      says: /mlp_bias is true, .*; num_experts is 4, /,
    },
  ];
  for (const {config, says} of refused)
    it(`${JSON.stringify(config)} is refused by name`, () =>
      assert.match(configProblem(JSON.stringify(config), {model: 'm', layers: 'all'}) ?? '', says));

  it('a config.json before a run of a small model of each family is accepted', () => {
    const golden = new URL('../../worker/golden/', import.meta.url);
    const models = readdirSync(golden).map(name =>
      readFileSync(new URL(`${name}/config.json`, golden), 'utf8'),
    );
    const families = models.map(text => JSON.parse(text).model_type);
    assert.deepEqual([...new Set(families)].sort(), [...FAMILIES].sort());
    for (const text of models) assert.equal(configProblem(text, {model: 'm', layers: 'all'}), undefined);
  });
});

describe('The model of a run', () => {
  const spec = {model: 'gs://bucket/models/m', revision: null, layers: 'all'} as const;
  const aCloud = (objects: Record<string, string>) => {
    const bucket = new FakeBucket(() => T0);
    for (const [name, text] of Object.entries(objects)) bucket.put(name, text);
    return {connection: {is_google: true}, objects: bucket.through(callAtOnce)} as unknown as Cloud;
  };

  const check = async (cloud: Cloud, asked: Parameters<typeof checkModel>[1], hub?: () => Hub) =>
    checkModel(await readModelConfig(cloud, asked, hub), asked);

  const aModel = (...names: string[]) =>
    aCloud({
      'models/m/config.json': LLAMA,
      ...Object.fromEntries(names.map(name => [`models/m/${name}`, ''])),
    });

  it('the model of a run is read from the bucket', async () => {
    assert.equal(said(await check(aModel('model.safetensors', 'tokenizer.json'), spec)), '');
    assert.match(
      said(await check(aCloud({}), spec)),
      /no gs:\/\/bucket\/models\/m\/config.json: copy the model/,
    );
  });

  const lacking: {names: string[]; says: RegExp}[] = [
    {
      names: ['pytorch_model.bin', 'tokenizer.json', 'onnx/model.safetensors'],
      says: /pickled weights only \(pytorch_model.bin\), .*AutoModelForCausalLM.from_pretrained\("gs:/,
    },
    {names: ['pytorch_model.bin.index.json'], says: /pickled weights only/},
    {
      names: ['consolidated.safetensors', 'tokenizer.json'],
      says: /has no model.safetensors and no model.safe/,
    },
    {names: ['model.safetensors', 'vocab.json'], says: /has no tokenizer.json: make it .*AutoTokenizer/},
    {
      names: ['model.safetensors', 'model.safetensors.index.json', 'model-00001-of-00002.safetensors'],
      says: /model.safetensors and .*index.json with model-00001-of-.* two sources of its weights, .*: delete/,
    },
    {names: ['model.safetensors', 'adapter_config.json'], says: /adapter_config.json, .*: merge the adapter/},
    {
      names: ['chat_template.jinja', 'additional_chat_templates/default.jinja'],
      says: /both are the default chat template: delete one/,
    },
    {names: ['additional_chat_templates/tool use.jinja'], says: /tool use.jinja, .*: rename it/},
  ];
  for (const {names, says} of lacking)
    it(`the model of a run with the files ${names.join(', ')} is refused with a remedy`, async () =>
      assert.match(said(await check(aModel(...names), spec)), says));

  it('the model of a run is read from the hub, and one that does not answer leaves the start to a person', async () => {
    const hub = await FakeHub.start({
      main: {
        commit: COMMIT,
        files: {
          'config.json': Buffer.from(LLAMA.padEnd(200)),
          'model.safetensors': Buffer.alloc(9),
          'tokenizer.json': Buffer.alloc(9),
        },
      },
    });
    const ask = (model: string, layers: number[]) =>
      check(aCloud({}), {model, revision: COMMIT, layers}, () => hub.client(undefined, 'model'));
    assert.equal(said(await ask('org/model', [0])), '');
    assert.match(said(await ask('org/model', [24])), /layers 0 to 23/);
    assert.match(said(await ask('org/modle', [0])), /404.*check the name and --model and --revision/);
    const client = hub.client(undefined, 'model');
    await hub.end();
    const config = await readModelConfig(aCloud({}), {...spec, model: 'org/model'}, () => client);
    assert.match('silent' in config ? config.silent : '', /^the model org\/model is unknown here. Failed to/);
  });

  const saes = (layers: number[], config: object = {}, weights = 'sae_weights.safetensors') =>
    Object.fromEntries(
      layers.flatMap(layer => [
        [`models/saes/layer_${layer}/cfg.json`, JSON.stringify({d_in: 64, ...config})],
        [`models/saes/layer_${layer}/${weights}`, ''],
      ]),
    );
  const scope = {name: 'scope', weights: 'gs://bucket/models/saes', path: 'layer_{layer}'};
  const probe = {name: 'probe', weights: 'gs://bucket/models/w/probes.safetensors'};
  const reductions: {name: string; given: RunSpecInput; objects: Record<string, string>; says: RegExp}[] = [
    {
      name: 'SAEs of all layers, one of Gemma Scope 2 without a config, and a file of matrices',
      given: {features: [scope, {...scope, name: 'gemma', path: 'g', layers: [1]}], project: [probe]},
      objects: {
        ...saes([0, 1, 2]),
        'models/saes/g/params.safetensors': '',
        'models/w/probes.safetensors': '',
      },
      says: /^$/,
    },
    {
      name: 'absent SAEs',
      given: {features: [scope]},
      objects: saes([1]),
      says: /^gs:\/\/bucket\/models\/saes has no SAE at "layer_\{layer\}" for layer 0, 2, which scope asks for: correct/,
    },
    {
      name: 'an SAE without safetensors',
      given: {features: [scope], layers: [1]},
      objects: saes([1], {}, 'sae.pt'),
      says: /no SAE .* for layer 1,/,
    },
    {
      name: 'a crosscoder',
      given: {features: [scope], layers: [0]},
      objects: saes([0], {architecture: 'crosscoder'}),
      says: /^scope has the architecture crosscoder, and the supported ones are standard, jumprelu, .*: choose/,
    },
    {
      name: 'an SAE of another model at its own hook',
      given: {features: [scope], layers: [0]},
      objects: saes([0], {d_in: 32, metadata: {hook_name: 'blocks.0.hook_resid_post'}}),
      says: /^scope reads vectors of 32 values, and resid_post of the model has 64: choose/,
    },
    {
      name: 'an SAE of neurons, whose width config.json does not say',
      given: {features: [{...scope, site: 'mlp_neurons'}], layers: [0]},
      objects: saes([0], {d_in: 32, architecture: 'batchtopk'}),
      says: /^$/,
    },
    {
      name: 'an absent file of matrices',
      given: {project: [probe]},
      objects: {'w/other.safetensors': ''},
      says: /^gs:\/\/bucket\/models\/w has no safetensors file at "probes.safetensors" for layer 0, which probe/,
    },
  ];
  for (const {name, given, objects, says} of reductions)
    it(`the reductions of a run are checked by the command and by the control plane: ${name}`, async () => {
      const config = '{"model_type": "llama", "num_hidden_layers": 3, "hidden_size": 64}';
      const model = {'config.json': config, 'model.safetensors': '', 'tokenizer.json': ''};
      const own = Object.entries(model).map(([file, text]) => [`models/m/${file}`, text]);
      const cloud = aCloud({...Object.fromEntries(own), ...objects});
      const asked = completeSpec({...given, model: spec.model}, aConfig()).spec;
      assert.match(said(await checkReductions(cloud, await readModelConfig(cloud, asked), asked)), says);
      assert.match((await bucketModelProblem(cloud.objects, asked)) ?? '', says);
    });

  it('the reductions of a run on a local cloud are read from a folder of this machine', async () => {
    const folder = new Folder();
    folder.put('layer_1/cfg.json', '{"architecture": "temporal"}');
    folder.put('layer_1/sae_weights.safetensors', '');
    folder.put('probes.safetensors', '');
    const cloud = {...aCloud({}), connection: {is_google: false}} as unknown as Cloud;
    const ask = async (given: object) =>
      said(await checkReductions(cloud, {silent: ''}, completeSpec(given, aConfig()).spec));
    const features = (weights: string, layer: number) =>
      ask({features: [{name: 'scope', weights, path: 'layer_{layer}', layers: [layer]}]});
    const project = (weights: string) => ask({project: [{name: 'probe', weights, layers: [0]}]});
    assert.match(await features(folder.path, 1), /^scope has the architecture temporal/);
    assert.match(await features(`${folder.path}/`, 2), /has no SAE at "layer_\{layer\}" for layer 2/);
    assert.match(await features(folder.at('absent'), 1), /has no SAE at/);
    assert.equal(await project(folder.at('probes.safetensors')), '');
    assert.match(await project(folder.at('other.safetensors')), /no safetensors file at "other/);
    folder.end();
  });

  it('the reductions of a run are read from the hub, and those of a TPU VM are left unchecked', async () => {
    const [config, tensors] = [Buffer.from('{"architecture": "temporal"}'), Buffer.alloc(9)];
    const files = {'a/cfg.json': config, 'a/w.safetensors': tensors};
    const hub = await FakeHub.start({main: {commit: COMMIT, files}});
    const client = hub.client(undefined, 'model');
    const ask = (weights: string, path: string) => {
      const given = {features: [{name: 'scope', weights, path, layers: [0]}]};
      const asked = completeSpec(given, aConfig()).spec;
      return checkReductions(aCloud({}), {silent: ''}, asked, () => client);
    };
    assert.match(said(await ask('org/model', 'a')), /^scope has the architecture temporal/);
    assert.match(said(await ask('org/model', 'b')), /^org\/model has no SAE at "b" for layer 0/);
    assert.match(said(await ask('org/absent', 'a')), /^org\/absent has no SAE/);
    assert.equal(said(await ask('/data/saes', 'a')), 'unchecked: the files of /data/saes');
    await hub.end();
    assert.match(said(await ask('org/model', 'a')), /^Failed to/);
  });

  it('the model of a run in a folder of a TPU VM is left unchecked on Google Cloud', async () =>
    assert.match(
      said(await check(aCloud({}), {...spec, model: '/data/m'})),
      /^unchecked: .*folder of the TPU VMs/,
    ));
});

describe('The first records of a stream', () => {
  const cases: {
    lines: string[];
    record?: Partial<typeof SPEC.record>;
    spans?: Partial<Pick<RunSpec, 'tokens' | 'mask'>>;
    says: RegExp | undefined;
  }[] = [
    {lines: ['{"text": "a"}'], says: undefined},
    {lines: ['{"train": [], "test": []}'], says: undefined},
    {
      lines: ['{"question": "a", "answer": "b"}'],
      says: /the fields question, answer, and none of text, .*--field/,
    },
    {lines: ['{"question": "a"}'], record: {field: 'question'}, says: undefined},
    {
      lines: ['{"question": "a"}'],
      record: {field: 'answer'},
      says: /fields question, and not answer: correct --field/,
    },
    {lines: ['{"question": "a"}'], record: {template: '{{ question }}'}, says: undefined},
    {lines: ['{"text": "a", "s": []}'], spans: {tokens: 'mean:field:s', mask: 'regex:a'}, says: undefined},
    {lines: ['{"text": "a"}'], spans: {mask: 'field:s'}, says: /fields? text, and not s, whose spans/},
    {lines: ['{"q": 1}', '{"text": "one good record"}'], says: undefined},
    {lines: ['"text"'], says: /not a JSON object/},
    {lines: ['{}'], says: /has no field/},
    {lines: [], says: undefined},
  ];
  for (const {lines, record, spans, says} of cases)
    it(`${lines.join(' ')} with ${JSON.stringify(spans ?? record ?? {})} ${says ? 'are refused' : 'are accepted'}`, () => {
      const problem = recordsProblem(lines, {...SPEC, ...spans, record: {...SPEC.record, ...record}});
      if (says) assert.match(problem ?? '', says);
      else assert.equal(problem, undefined);
    });

  const fields: {lines: string[]; keep?: string[]; spec?: Partial<RunSpec>; says: string}[] = [
    {
      lines: ['{"text": "a", "label": 1}'],
      keep: ['labl'],
      says: 'none of the first records has the field "labl", which --keep (keep of run.json) names; did you mean "label"?',
    },
    {
      lines: ['{"text": "a"}', '{"text": "b", "id": 1}'],
      keep: ['source'],
      says: 'none of the first records has the field "source", which --keep (keep of run.json) names; they have text, id',
    },
    {lines: ['{"text": "a"}', '{"text": "b", "id": 1}'], keep: ['id'], says: ''},
    {
      lines: ['{"text": "a", "id": 1, "a label": 2}'],
      keep: ['id'],
      says: "note: The shards will not have these fields: a label; to copy them: run start --keep 'id,a label', or keep of run.json",
    },
    {
      lines: ['{"messages": [], "tools": [], "id": 1}', '{"train": [], "test": []}'],
      spec: {over_long: 'pack'},
      says: 'note: The shards will not have these fields: id',
    },
    {
      lines: ['{"q": "a", "a": "b", "cut": []}'],
      spec: {record: {...SPEC.record, template: '{{ q }}'}, mask: 'field:cut'},
      says: 'note: The shards will not have these fields: a; to copy them: run start --keep a, or keep of run.json',
    },
    {lines: [], says: ''},
    {
      lines: [],
      keep: ['labl'],
      says: 'unchecked: that the records have labl of --keep: no record is on this machine',
    },
    {
      lines: ['{"identity": "a", "id": 1, "a,b": 1, "c d": 2}'],
      spec: {record: {...SPEC.record, template: '{{ identity }}{{ record["c d"] }}'}},
      says: 'note: The shards will not have these fields: id, a,b; to copy them: run start --keep id, or keep of run.json',
    },
    {lines: ['{"text": "a", "a,b": 1}'], says: 'note: The shards will not have these fields: a,b'},
  ];
  for (const {lines, keep = [], spec, says} of fields)
    it(`${lines.join(' ')} with --keep "${keep.join()}" ${says || 'say nothing'}`, () =>
      assert.equal(said(keptFindings(lines, {...SPEC, ...spec, keep})), says));

  it('the first records of a stream that are all rejected by the code of the worker are refused', () => {
    const range = (estimate: number) => ({estimate, low: 0, high: null});
    const sampled = (samples: number, rejected: number) =>
      ({
        totals: {samples: range(samples), rejected: range(rejected)},
        reject_reasons: rejected ? [{reason: 'it has 9000 tokens', samples: rejected}] : [],
      }) as unknown as Parameters<typeof samplesFindings>[0];
    assert.match(
      said(samplesFindings(sampled(0, 3))),
      /all of the first 3 samples would be rejected, such as: it has 9000/,
    );
    assert.deepEqual(samplesFindings(sampled(1, 3)), []);
    assert.deepEqual(samplesFindings(sampled(0, 0)), []);
  });

  it('the first records of a stream are read from the beginning of a file, gzip or not', async () => {
    const folder = new Folder();
    folder.put('plain', `{"a":1}\n\n{"b":2}\n${'x'.repeat(2 << 20)}\n`);
    assert.deepEqual(await firstLines(folder.at('plain'), 5), ['{"a":1}', '{"b":2}']);
    execFileSync('gzip', ['-k', folder.at('plain')]);
    assert.deepEqual(await firstLines(folder.at('plain.gz'), 1), ['{"a":1}']);
    folder.end();
  });
});

describe('A budget', () => {
  const pool = {accelerator: 'v5litepod-1', spot: true, zones: ['us-central1-a']};
  it('a budget below the shortest life of a TPU is refused, with the least that is enough', () => {
    const [, least = ''] =
      /--budget-usd (\S+) or more/.exec(said(checkBudget(0.001, pool, LIST_PRICES))) ?? [];
    assert.ok(Number(least) > 0.01);
    assert.deepEqual(checkBudget(Number(least), pool, LIST_PRICES), []);
    assert.match(said(checkBudget(0.001, undefined, LIST_PRICES)), /is too small for one TPU/);
    assert.match(said(checkBudget(1, pool, {})), /^unchecked: .*price of v5litepod-1 is unknown/);
  });
});

describe('A repository', () => {
  it('a repository answers with its branches, and a missing one is named', async () => {
    const folder = new Folder();
    const git = (...args: string[]) => execFileSync('git', ['-C', folder.path, ...args], {stdio: 'ignore'});
    git('init', '-q', '-b', 'main');
    git('-c', 'user.name=a', '-c', 'user.email=a@b.c', 'commit', '-q', '--allow-empty', '-m', 'first');
    const repo = folder.path;
    assert.deepEqual(await checkRepository({repo, branch: 'main'}), []);
    assert.deepEqual(await checkRepository({repo, commit: 'a'.repeat(40)}), []);
    assert.match(
      said(await checkRepository({repo, branch: 'nobranch'})),
      /has no branch nobranch: correct --branch/,
    );
    assert.match(said(await checkRepository({repo, pr: 7})), /has no pull request 7: correct --pr/);
    assert.match(said(await checkRepository({repo: folder.at('nothing'), branch: 'main'})), /correct --repo/);
    const silent = {repo: 'https://127.0.0.1:9/nothing.git', branch: 'main'};
    assert.match(said(await checkRepository(silent)), /^unchecked: the repository https/);
    folder.end();
  });
});

describe('The offer of zones', () => {
  it('the offer of zones names what a zone lacks, and is left unchecked without an answer', async () => {
    const offer = {
      zones: ['us-central1-a', 'us-east5-b'],
      accelerator: 'v6e-1',
      runtime_version: 'v2-alpha-tpuv6e',
      provider: 'tpu-api' as const,
    };
    const api = (code: number) =>
      ({
        call: async (_: string, address: string) => {
          if (address.includes('us-central1-a/acceleratorTypes')) throw new GoogleError(code, 'ask', 'no');
          return {};
        },
      }) as unknown as GoogleApi;
    assert.match(
      said(await checkOffer(api(404), 'p', offer)),
      /^us-central1-a has no v6e-1: take another zone[^\n]*$/,
    );
    assert.match(said(await checkOffer(api(503), 'p', offer)), /^unchecked: /);
  });

  it('the offer of zones asks Compute Engine for the machine type and the image of an instance', async () => {
    const asked: string[] = [];
    const call = async (_: string, address: string) => void asked.push(address);
    const image = 'projects/mine/global/images/family/workers';
    const terms = {accelerator: 'tpu7x-8', runtime_version: image, provider: 'compute-engine' as const};
    await checkOffer({call} as unknown as GoogleApi, 'p', {zones: ['us-central1-c'], ...terms});
    const at = 'compute.googleapis.com/compute/v1';
    const machine = `${at}/projects/p/zones/us-central1-c/machineTypes/tpu7x-standard-4t`;
    assert.deepEqual(asked, [machine, `${at}/${image}`]);
  });
});

describe('The findings of the checks', () => {
  before(() => setQuiet(true));
  after(() => setQuiet(false));
  it('the findings of the checks are one error with every problem, and none without a problem', () => {
    refuseProblems('start run r', [{unchecked: 'the model'}]);
    assert.throws(
      () => refuseProblems('start run r', [{problem: 'no model'}, {problem: 'no field'}]),
      /^CliError: Failed to start run r:\n {2}no model\n {2}no field; --no-check skips this check$/,
    );
  });
});
