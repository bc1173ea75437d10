/** Keys of a model's config.json that decide whether a run can use it. The worker reads the whole file; commands and functions read these keys first. */
import type {RunSpec} from './spec.ts';

/**
 * Supported values of `model_type`, each with the path of its number of layers. As families.py has them.
 */
export const FAMILIES: Readonly<Record<string, string>> = {
  gemma2: 'num_hidden_layers',
  gemma3: 'text_config.num_hidden_layers',
  gemma3_text: 'num_hidden_layers',
  gpt2: 'n_layer',
  gpt_neox: 'num_hidden_layers',
  gpt_oss: 'num_hidden_layers',
  granite: 'num_hidden_layers',
  llama: 'num_hidden_layers',
  mistral: 'num_hidden_layers',
  mixtral: 'num_hidden_layers',
  olmo2: 'num_hidden_layers',
  olmo3: 'num_hidden_layers',
  phi3: 'num_hidden_layers',
  qwen2: 'num_hidden_layers',
  qwen3: 'num_hidden_layers',
  qwen3_moe: 'num_hidden_layers',
  smollm3: 'num_hidden_layers',
};

export const MAX_CONFIG_BYTES = 16 * 1024 * 1024;

type Table = {[key: string]: unknown};

/** Why no run with these layers can use the model, and the remedy; undefined where nothing speaks against it. */
export function configProblem(
  text: string,
  {model, layers}: Pick<RunSpec, 'model' | 'layers'>,
): string | undefined {
  const config = tableOf(text);
  if (!config) return `config.json of ${model} is no JSON object: copy the model again`;
  const {model_type} = config;
  const path =
    typeof model_type === 'string' && Object.hasOwn(FAMILIES, model_type) ? FAMILIES[model_type] : undefined;
  if (path === undefined)
    return `${model} has ${model_type === undefined ? 'no model_type' : `model_type ${JSON.stringify(model_type).slice(0, 100)}`}, and the supported types are ${Object.keys(FAMILIES).join(', ')}: set \`model\` to a model of one of these`;
  const count = path.split('.').reduce<unknown>((value, key) => (value as Table | undefined)?.[key], config);
  if (!Number.isSafeInteger(count) || Number(count) < 1) return undefined;
  const absent = highestOf(layers);
  if (absent < Number(count)) return undefined;
  return `${model} has layers 0 to ${Number(count) - 1}, and none with number ${absent}: set \`layers\` within them`;
}

function tableOf(text: string): Table | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Table)
      : undefined;
  } catch {
    return undefined;
  }
}

/** The highest layer that the spec names; -1 for all layers. */
function highestOf(layers: RunSpec['layers']): number {
  if (Array.isArray(layers)) return Math.max(...layers);
  return layers === 'all' ? -1 : Number(layers.split('-')[1]);
}
