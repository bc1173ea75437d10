/** Keys of a model's config.json that decide whether a run can use it. The worker reads the whole file; commands and functions read these keys first. */
import rules from './model-rules.json' with {type: 'json'};
import type {RunSpec} from './spec.ts';

/** The rules of one value of `model_type`, as config_rules.py writes them. */
type Family = {
  inner: string | null;
  layers: string;
  activation: string;
  reads: readonly string[];
  renamed: Readonly<Record<string, readonly unknown[]>>;
  ropes: readonly string[];
  ropes_by_layer_type: boolean;
  windows: string;
};

const FAMILY_RULES: Readonly<Record<string, Family>> = Object.fromEntries(
  Object.entries(rules.families).map(([name, own]) => [name, {...rules.usual, ...own}]),
);
const NEUTRAL: Readonly<Record<string, readonly unknown[]>> = rules.neutral;
const LAYER_TYPES = ['full_attention', 'sliding_attention'];
const SHOWN_PROBLEMS = 20;

export const FAMILIES: readonly string[] = Object.keys(FAMILY_RULES);
export const MAX_CONFIG_BYTES = 16 * 1024 * 1024;

type Table = {[key: string]: unknown};

/** Why no run with these layers can use the model, and the remedy; undefined if it can be used. */
export function configProblem(text: string, {model, layers}: Pick<RunSpec, 'model' | 'layers'>) {
  const config = tableOfText(text);
  if (!config) return `config.json of ${model} is no JSON object: copy the model again`;
  const {model_type} = config;
  const family = familyOf(model_type);
  if (family === undefined)
    return `${model} has ${model_type === undefined ? 'no model_type' : `model_type ${shown(model_type)}`}, and the supported types are ${FAMILIES.join(', ')}: set \`model\` to a model of one of these`;
  const problems = [...unsupportedKeys(config, family)];
  if (problems.length > 0)
    return `config.json of ${model} has what Gleaner does not compute: ${problems.slice(0, SHOWN_PROBLEMS).join('; ')}: set \`model\` to another model`;
  const {layers: count = 0} = sizesOf(text);
  const absent = Math.max(-1, ...layerNumbers(layers));
  if (count < 1 || absent < count) return undefined;
  return `${model} has layers 0 to ${count - 1}, and none with number ${absent}: set \`layers\` within them`;
}

/** The number of layers and the width of the model, where config.json has them. */
export function sizesOf(text: string): {layers?: number; width?: number} {
  const config = tableOfText(text) ?? {};
  const {inner = null, layers = ''} = familyOf(config.model_type) ?? {};
  const fields = inner === null ? config : tableOf(config[inner]);
  const sizes = {layers: fields[layers], width: fields.hidden_size ?? fields.n_embd};
  return Object.fromEntries(Object.entries(sizes).filter(([, size]) => Number.isSafeInteger(size)));
}

function familyOf(model_type: unknown): Family | undefined {
  const isFamily = typeof model_type === 'string' && Object.hasOwn(FAMILY_RULES, model_type);
  return isFamily ? FAMILY_RULES[model_type] : undefined;
}

/** The keys whose values the decoder does not support, each with the reason. */
function* unsupportedKeys(config: Table, family: Family): Generator<string> {
  const {inner} = family;
  if (inner === null) return yield* problemsOf(config, family, '');
  const fields = config[inner];
  if (!isTable(fields)) return yield `${inner} is ${shown(fields)}`;
  yield* neutralProblems(config, family, '');
  yield* problemsOf(fields, family, `${inner}.`);
}

function* problemsOf(fields: Table, family: Family, prefix: string): Generator<string> {
  yield* neutralProblems(fields, family, prefix);
  const activation = fields[family.activation];
  const activations: unknown[] = rules.activations;
  if (activation !== undefined && !activations.includes(activation))
    yield `${prefix}${family.activation} is ${shown(activation)}, supported is ${activations.join(', ')}`;
  yield* ropeProblems(fields, family, prefix);
  yield* layerTypeProblems(fields, family, prefix);
  const {quant_method, ...quantization} = tableOf(fields.quantization_config);
  const isRead = family.reads.includes('quantization_config');
  const isQuantized = quant_method !== undefined || Object.keys(quantization).length > 0;
  if (isRead && isQuantized && quant_method !== 'mxfp4')
    yield `${prefix}quantization_config.quant_method is ${shown(quant_method)}, supported is mxfp4`;
}

function* neutralProblems(fields: Table, family: Family, prefix: string): Generator<string> {
  for (const [key, values] of Object.entries(NEUTRAL))
    if (!family.reads.includes(key) && !values.some(value => isSame(value, fields[key])))
      yield `${prefix}${key} is ${shown(fields[key])}, which this family does not support`;
  for (const [key, [own, usual]] of Object.entries(family.renamed))
    if (!(String(own) in fields) && key in fields && !isSame(usual, fields[key]))
      yield `${prefix}${key} is ${shown(fields[key])}, ${own === '' ? 'which models of this family do not use' : `models of this family use ${own}`}`;
}

function* ropeProblems(fields: Table, family: Family, prefix: string): Generator<string> {
  if (family.ropes.length === 0) return;
  const chosen = Object.keys(tableOf(fields.rope_scaling)).length > 0 ? 'rope_scaling' : 'rope_parameters';
  const table = tableOf(fields[chosen]);
  const isByType = family.ropes_by_layer_type && chosen === 'rope_parameters';
  const strange = Object.keys(table).find(key => LAYER_TYPES.includes(key) !== isByType);
  if (strange !== undefined)
    yield `${prefix}${chosen}.${strange} is ${shown(table[strange])}, this family has one rope for ${isByType ? 'each type of layer' : 'all layers'}`;
  else if (!isByType) yield* kindProblems(table, family, `${prefix}${chosen}.`);
  else
    for (const type of LAYER_TYPES)
      yield* kindProblems(tableOf(table[type]), family, `${prefix}rope_parameters.${type}.`);
}

function* kindProblems(table: Table, family: Family, prefix: string): Generator<string> {
  const kind = table.rope_type ?? table.type ?? 'default';
  const {partial_rotary_factor: part} = table;
  if (family.ropes_by_layer_type && !('rope_type' in table) && (table.type ?? 'default') !== 'default')
    yield `${prefix}type is ${shown(table.type)}, which transformers leaves unread in this family: name the key rope_type`;
  // The first files of Phi-3 use other names for longrope.
  const isLongrope = !family.ropes.includes('yarn') && ['su', 'yarn'].includes(String(kind));
  if (!isLongrope && !family.ropes.includes(String(kind)))
    yield `${prefix}rope_type is ${shown(kind)}, supported is ${family.ropes.join(', ')}`;
  if (!family.reads.includes('partial_rotary_factor') && ![undefined, null, 1].includes(part as null))
    yield `${prefix}partial_rotary_factor is ${shown(part)}, only a full rotation is supported`;
}

function* layerTypeProblems(
  {layer_types: types = null}: Table,
  family: Family,
  prefix: string,
): Generator<string> {
  if (types === null) return;
  const known = family.windows === 'nowhere' ? LAYER_TYPES.slice(0, 1) : LAYER_TYPES;
  const isUniform = family.windows === 'everywhere';
  const isSupported = (type: unknown, [first]: unknown[]) =>
    known.includes(String(type)) && !(isUniform && type !== first);
  if (!Array.isArray(types) || !types.every((type, _, all) => isSupported(type, all)))
    yield `${prefix}layer_types is ${shown(types)}, supported is ${known.join(isUniform ? ' alone or ' : ' and ')}`;
}

/** Whether the values are equal, true and 1 included; `undefined` is equal to null. */
function isSame(value: unknown, other: unknown): boolean {
  const plain = (each: unknown) =>
    typeof each === 'boolean' ? String(Number(each)) : (JSON.stringify(each) ?? 'null');
  return plain(value) === plain(other);
}

function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? 'missing';
  return text.length <= 100 ? text : `${text.slice(0, 97)}...`;
}

function isTable(value: unknown): value is Table {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export const tableOf = (value: unknown): Table => (isTable(value) ? value : {});

export function tableOfText(text: string): Table | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isTable(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** The layers that a spec names. `count`: the layers of the model, or 0 where it is unknown. */
export function layerNumbers(layers: RunSpec['layers'], count = 0): number[] {
  if (Array.isArray(layers)) return layers;
  const [first = 0, last = 0] =
    layers === 'all' ? [0, Math.min(count, 10_000) - 1] : layers.split('-').map(Number);
  return Array.from({length: last - first + 1}, (_, index) => first + index);
}
