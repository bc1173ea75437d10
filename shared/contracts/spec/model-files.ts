/** The files of a model's folder, from the same table as the worker's: worker-startup/gleaner_worker/model_files.py. */
import rules from './model-rules.json' with {type: 'json'};

const RULES = rules.files.map(({pattern, ...rule}) => ({...rule, pattern: new RegExp(`^(?:${pattern})$`)}));
const TOKENIZER = 'tokenizer.json';
const ONE_FILE = 'model.safetensors';
const INDEX = 'model.safetensors.index.json';
/** Subfolder of a model in which transformers looks for more files. */
export const TEMPLATES = 'additional_chat_templates';
const PICKLED = /^(pytorch_model|consolidated)[^/]*\.(bin|pt|pth)(\.index\.json)?$/;

/** The use of a file with this name in the folder of a model; undefined if no worker looks for it. */
function ruleOf(name: string) {
  return RULES.find(({pattern}) => pattern.test(name));
}

/** True for a file that a worker reads. */
export function isReadByWorkers(name: string): boolean {
  return ruleOf(name)?.use === 'read';
}

/** Why no run can use a model with files of these names, and the remedy; undefined if it can be used. */
export function filesProblem(names: readonly string[] | undefined, model: string): string | undefined {
  if (names === undefined) return undefined;
  const savedBy = (name: string) =>
    `with transformers, ${name}.from_pretrained(${JSON.stringify(model)}).save_pretrained(FOLDER)`;
  const [problem] = refusedFiles(names);
  if (problem !== undefined) return `${model} has ${problem}`;
  if (!names.includes(ONE_FILE) && !names.includes(INDEX)) {
    const pickled = names.find(name => PICKLED.test(name));
    return pickled === undefined
      ? `${model} has no ${ONE_FILE} and no ${INDEX}: put the safetensors files beside config.json`
      : `${model} has pickled weights only (${pickled}), which are never read, because a pickle can run code: save them as safetensors ${savedBy('AutoModelForCausalLM')}, copy that folder to the bucket, and set \`model\` to its address`;
  }
  if (names.includes(TOKENIZER)) return undefined;
  return `${model} has no ${TOKENIZER}: make it ${savedBy('AutoTokenizer')}, and put it beside config.json`;
}

/** Files that a worker refuses, and pairs of files that hold the same part of a model. */
function* refusedFiles(names: readonly string[]): Generator<string> {
  for (const name of names) {
    const rule = ruleOf(name);
    if (rule?.use === 'refused') yield `${name}, which is not supported: ${rule.why}`;
  }
  const other = names.find(name => /\.safetensors$/.test(name) && name !== ONE_FILE && isReadByWorkers(name));
  if (other !== undefined && names.includes(ONE_FILE) && names.includes(INDEX))
    yield `${ONE_FILE} and ${INDEX} with ${other}, which are two sources of its weights, and transformers reads ${ONE_FILE} alone: delete the ones that are not the model's`;
  const default_template = `${TEMPLATES}/default.jinja`;
  if (names.includes(default_template) && names.includes('chat_template.jinja'))
    yield `chat_template.jinja and ${default_template}, and both are the default chat template: delete one`;
}
