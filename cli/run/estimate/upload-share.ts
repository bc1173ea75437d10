/** Share of the chips' time that the upload of a host leaves, and the changes that raise it. */
import {chipsOf} from '../../../shared/domain/billing/prices.ts';
import {counted} from '../../terminal/format.ts';
import {ASSUMED} from './assumptions.ts';

export type Upload = {
  /** Bytes that the chips of one host make while they compute. */
  bytes_per_s: number;
  /** Share of the time in which the chips compute: 1 where the upload keeps up. */
  chips_busy: number;
};

type Stored = {layers: number; dtype?: string | undefined; tokens?: unknown; accelerator: string};

/** Upload of a worker that computes `tokens_per_s` and stores `bytes_per_token`. */
export function uploadOf(tokens_per_s: number, bytes_per_token: number): Upload {
  const bytes_per_s = tokens_per_s * bytes_per_token;
  return {bytes_per_s, chips_busy: Math.min(1, ASSUMED.upload_bytes_per_s.estimate / bytes_per_s)};
}

/** A sentence about an upload that cannot keep up; undefined for another. */
export function uploadText(
  {bytes_per_s, chips_busy}: Upload,
  {layers, dtype, tokens, accelerator}: Stored,
): string | undefined {
  if (chips_busy === 1) return undefined;
  const helps = [
    ...(layers > 1 ? ['fewer layers'] : []),
    ...(dtype === 'int8' ? [] : ['dtype int8']),
    ...(tokens === 'all' ? ['tokens "mean"'] : []),
    ...((chipsOf(accelerator)?.chips ?? 1) > 1 ? ['more TPUs with fewer chips'] : []),
  ];
  const gigabytes = (bytes: number) => `${(bytes / 1e9).toPrecision(2)} GB/s`;
  const needs = `the upload of ${counted(layers, 'layer')} in ${dtype} needs ${gigabytes(bytes_per_s)}`;
  const has = `a host has about ${gigabytes(ASSUMED.upload_bytes_per_s.estimate)}`;
  const busy = `the chips of ${accelerator} are busy ${Math.max(1, Math.round(chips_busy * 100))} % of the time`;
  return `${needs}, and ${has}: ${busy}${helps.length > 0 ? `; this helps: ${helps.join(', ')}` : ''}`;
}
