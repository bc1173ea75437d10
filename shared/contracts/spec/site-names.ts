/** The sites of a run, and their names in other libraries. */

export const SITES = [
  'resid_pre',
  'resid_mid',
  'resid_post',
  'attn_out',
  'mlp_out',
  'embeddings',
  'q',
  'k',
  'v',
  'rot_q',
  'rot_k',
  'attn_z',
  'mlp_in',
  'mlp_neurons',
  'router_logits',
  'experts',
  'final_norm',
  'top_tokens',
  'top_logprobs',
  'loss',
] as const;
export type Site = (typeof SITES)[number];

/** Sites whose values are ids, stored as 32-bit integers whatever `dtype` is. */
export const NUMBERS_OF_THINGS: readonly string[] = ['experts', 'top_tokens'];
/** Sites that no reduction reads. */
export const NOT_REDUCED: readonly string[] = [...NUMBERS_OF_THINGS, 'top_logprobs', 'loss'];

/**
 * Names of TransformerLens and SAELens, and of nnsight, below the name of a block. Names whose values differ between families are left out:
 * `mlp.output` of nnsight is before the post norm of Gemma 2, and `ln_final.hook_normalized` of TransformerLens lacks the weights of RMSNorm.
 */
export const OTHER_NAMES: Record<string, Site> = {
  hook_resid_pre: 'resid_pre',
  hook_resid_mid: 'resid_mid',
  hook_resid_post: 'resid_post',
  hook_attn_out: 'attn_out',
  hook_mlp_out: 'mlp_out',
  hook_embed: 'embeddings',
  'attn.hook_q': 'q',
  'attn.hook_k': 'k',
  'attn.hook_v': 'v',
  'attn.hook_rot_q': 'rot_q',
  'attn.hook_rot_k': 'rot_k',
  'attn.hook_z': 'attn_z',
  'mlp.hook_in': 'mlp_in',
  'mlp.hook_post': 'mlp_neurons',
  'mlp.gate.hook_out': 'router_logits',
  'mlp.hook_expert_indices': 'experts',
  'ln_final.hook_out': 'final_norm',
  input: 'resid_pre',
  output: 'resid_post',
  'self_attn.q_proj.output': 'q',
  'self_attn.k_proj.output': 'k',
  'self_attn.v_proj.output': 'v',
  'self_attn.o_proj.input': 'attn_z',
  'attn.c_proj.input': 'attn_z',
  'attention.dense.input': 'attn_z',
  'mlp.input': 'mlp_in',
  'mlp.down_proj.input': 'mlp_neurons',
  'mlp.c_proj.input': 'mlp_neurons',
  'mlp.dense_4h_to_h.input': 'mlp_neurons',
  'model.norm.output': 'final_norm',
  'transformer.ln_f.output': 'final_norm',
  'gpt_neox.final_layer_norm.output': 'final_norm',
};

const names = Object.keys(OTHER_NAMES).map(name => name.replaceAll('.', '\\.'));
/** `blocks.12.hook_resid_post` of TransformerLens and SAELens, `model.layers.12.output` of nnsight, or the end of such a name. */
export const OTHER_NAME = new RegExp(
  `^(?:(?:blocks|(?:model|gpt_neox)\\.layers|transformer\\.h)\\.(\\d{1,4})\\.)?(${names.join('|')})$`,
);

/** The site, and the layer where the name has one. Undefined for an unknown name. */
export function readSite(name: string): {site: Site; layer?: number} | undefined {
  if ((SITES as readonly string[]).includes(name)) return {site: name as Site};
  const [, layer, rest = ''] = OTHER_NAME.exec(name) ?? [];
  const site = OTHER_NAMES[rest];
  if (!site) return undefined;
  return layer === undefined ? {site} : {site, layer: Number(layer)};
}

type Sites = {sites?: string[] | undefined; layers?: string | number[] | undefined};

/** The same spec with our names of sites, and with the layers that block names contain. */
export function withOwnNames<T extends Sites>(spec: T): T {
  if (!spec.sites) return spec;
  const read = spec.sites.flatMap(name => readSite(name) ?? []);
  const layers = [...new Set(read.flatMap(({layer}) => layer ?? []))].sort((a, b) => a - b);
  const sites = [...new Set(read.map(({site}) => site))];
  return {...spec, sites, ...(layers.length > 0 ? {layers} : {})};
}

export function siteProblem({sites = [], layers}: Sites): string | undefined {
  const read = sites.flatMap(name => readSite(name) ?? []);
  const named = read.filter(({layer}) => layer !== undefined);
  const keys = new Set(read.map(({site, layer}) => `${site}.${layer}`));
  if (keys.size < read.length) return 'expected each site once, also under another name';
  if (named.length === 0) return undefined;
  if (named.length < read.length) return 'expected names with the number of a block, or names without it';
  if (layers !== undefined) return 'expected names without the number of a block beside `layers`';
  const size = new Set(read.map(({site}) => site)).size * new Set(read.map(({layer}) => layer)).size;
  return size === read.length
    ? undefined
    : 'expected the same blocks for each site: all layers have all sites';
}
