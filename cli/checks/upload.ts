/** The upload of a run before its start, from the sizes in the model's config.json alone. */
import {modelSizes} from '../../shared/contracts/model-config.ts';
import type {RunSpec} from '../../shared/contracts/spec.ts';
import {computedTokens} from '../run/estimate/assumptions.ts';
import {uploadOf, uploadText} from '../run/estimate/upload-share.ts';

const RESIDUAL = ['resid_pre', 'resid_mid', 'resid_post', 'attn_out', 'mlp_out', 'mlp_in'];
const BYTES = {bf16: 2, fp16: 2, fp32: 4, int8: 1};

/** A sentence about an upload that cannot keep up with the chips. Undefined where it keeps up, or where other sizes decide. */
export function uploadWarning(
  config: string,
  {layers, sites, tokens, dtype, compute_dtype}: RunSpec,
  accelerator: string,
): string | undefined {
  const sizes = modelSizes(config);
  if (!sizes || tokens !== 'all' || !sites.every(site => RESIDUAL.includes(site))) return undefined;
  const chosen = layersOf(layers, sizes.layers);
  const rate = computedTokens(
    accelerator,
    2 * sizes.block_weights * (Math.max(...chosen) + 1),
    compute_dtype,
  );
  if (rate === undefined) return undefined;
  const bytes = chosen.length * sites.length * sizes.d_model * BYTES[dtype as keyof typeof BYTES];
  return uploadText(uploadOf(rate, bytes), {layers: chosen.length, dtype, tokens, accelerator});
}

function layersOf(layers: RunSpec['layers'], count: number): number[] {
  if (Array.isArray(layers)) return [...new Set(layers)];
  const [first = 0, last = count - 1] = layers === 'all' ? [] : layers.split('-').map(Number);
  return Array.from({length: last - first + 1}, (_, number) => first + number);
}
