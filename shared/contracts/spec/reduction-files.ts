/** What the files of a reduction say before a TPU reads them. The worker repeats these checks, and reads the tensors. */
import {layerNumbers, sizesOf, tableOf, tableOfText} from './model-config.ts';
import {readSite} from './site-names.ts';
import type {RunSpec} from './spec.ts';

const ARCHITECTURES =
  'standard, jumprelu, gated, topk, batchtopk, matryoshka_batchtopk, transcoder, skip_transcoder, jumprelu_transcoder, jumprelu_skip_transcoder';
/** Sites whose vectors are as wide as the model. */
const WIDE = ['resid_pre', 'resid_mid', 'resid_post', 'attn_out', 'mlp_out', 'mlp_in', 'final_norm'];
/** Names below the path of a layer, which may itself be a file. Folders of Gemma Scope 2 may have params.safetensors alone. */
const TENSORS = /^$|\.safetensors$/;
const CONFIG = /^((cfg|config|hyperparams)\.json|params\.safetensors)?$/;

/** Names below `weights`, and the text of a file. */
export type Files = {
  names: readonly string[];
  read: (name: string) => Promise<string | Uint8Array | undefined>;
};
type Entry = ReturnType<typeof entriesOf>[number];

/** The entries of both lists. One file as `weights` becomes its folder and a path. */
export function entriesOf({features = [], project = []}: Pick<RunSpec, 'features' | 'project'>) {
  return [...features, ...project].map(({weights, path = '', ...entry}, index) => {
    const [, folder, file] = /^((?:gs:|[./]).*)\/([^/]+\.safetensors)$/.exec(weights) ?? [];
    return {...entry, weights: folder ?? weights, path: file ?? path, isSae: index < features.length};
  });
}

/** Why no run can use these files, and the remedy. `model`: config.json of the model, or '' where it is unknown. */
export async function entryProblem(entry: Entry, spec: RunSpec, model: string, {names, read}: Files) {
  const {name, weights, path, isSae} = entry;
  const {layers: count, width} = sizesOf(model);
  const numbers = layerNumbers(entry.layers ?? spec.layers, count);
  const layers = path.includes('{layer}') ? numbers : [numbers[0] ?? 0];
  const placeOf = (layer: number) => path.replace('{layer}', String(layer)).replace(/[^/]$/, '$&/');
  const isAbsent = (layer: number) => {
    const place = placeOf(layer);
    const files = names.flatMap(file => (`${file}/`.startsWith(place) ? [file.slice(place.length)] : []));
    return !files.some(file => TENSORS.test(file)) || (isSae && !files.some(file => CONFIG.test(file)));
  };
  const absent = layers.filter(isAbsent).slice(0, 20);
  if (absent.length > 0)
    return `${weights} has no ${isSae ? 'SAE' : 'safetensors file'} at "${path}" for layer ${absent.join(', ')}, which ${name} asks for: correct \`weights\`, \`path\` or \`layers\``;
  const config = `${placeOf(layers[0] ?? 0)}cfg.json`;
  const text = Buffer.from((isSae && names.includes(config) && (await read(config))) || '{}').toString(
    'utf8',
  );
  const {architecture = 'standard', d_in, hook_name, metadata} = tableOfText(text) ?? {};
  if (!ARCHITECTURES.split(', ').includes(String(architecture)))
    return `${name} has the architecture ${String(architecture).slice(0, 99)}, and the supported ones are ${ARCHITECTURES}: choose another SAE`;
  const site = entry.site ?? readSite(String(hook_name ?? tableOf(metadata).hook_name))?.site ?? '';
  return width && d_in !== undefined && d_in !== width && WIDE.includes(site)
    ? `${name} reads vectors of ${Number(d_in)} values, and ${site} of the model has ${width}: choose an SAE of this model`
    : undefined;
}
