/** Files of a model that a worker needs beside config.json, as worker-startup/gleaner_worker/model/identity.py names them. */
const TOKENIZER = 'tokenizer.json';
const WEIGHTS = ['model.safetensors', 'model.safetensors.index.json'];
const PICKLED = /^(pytorch_model|consolidated)[^/]*\.(bin|pt|pth)(\.index\.json)?$/;

/** Why no run can use the model with files of these names, and the remedy; undefined where nothing speaks against it. */
export function filesProblem(names: readonly string[] | undefined, model: string): string | undefined {
  if (names === undefined) return undefined;
  const savedBy = (name: string) =>
    `with transformers, ${name}.from_pretrained(${JSON.stringify(model)}).save_pretrained(FOLDER)`;
  if (!WEIGHTS.some(name => names.includes(name))) {
    const pickled = names.find(name => PICKLED.test(name));
    return pickled === undefined
      ? `${model} has no ${WEIGHTS.join(' and no ')}: put the safetensors files beside config.json`
      : `${model} has pickled weights only (${pickled}), which are never read, because a pickle can run code: save them as safetensors ${savedBy('AutoModelForCausalLM')}, copy that folder to the bucket, and set \`model\` to its address`;
  }
  if (names.includes(TOKENIZER)) return undefined;
  return `${model} has no ${TOKENIZER}: make it ${savedBy('AutoTokenizer')}, and put it beside config.json`;
}
