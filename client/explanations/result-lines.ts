/** The result of a completed run for a person. */
import type {RunResult} from '../../shared/domain/run/result.ts';
import {bytesText, counted, durationText, numberText} from '../text/format.ts';

/** `39,447 rows of 8 tensors (resid_post and mlp_out of layers 0-3) from Qwen/Qwen2.5-0.5B at 060db6499f32; int8 error up to 0.41 %`. */
export function resultLines({rows, model, stats, unread, unread_streams, upload}: RunResult): string[] {
  const errors = Object.values(stats).flatMap(({int8_error}) => int8_error ?? []);
  const error = errors.length > 0 ? `; int8 error up to ${(Math.max(...errors) * 100).toPrecision(2)} %` : '';
  const names = Object.keys(stats);
  const stored = names.length > 0 ? `${counted(rows, 'row')} of ${tensorsText(names)}` : 'moments';
  const more = unread_streams - Object.keys(unread).length;
  const at = model?.revision ? ` at ${model.revision.slice(0, 12)}` : '';
  return [
    ...(model ? [`${stored} from ${model.name}${at}${error}`] : []),
    ...(upload.bytes > 0 ? [uploadText(upload)] : []),
    ...Object.entries(unread).map(
      ([stream, why]) => `metadata.json of stream ${stream} is not in the result: ${why}`,
    ),
    ...(more > 0 ? [`metadata.json of ${counted(more, 'further stream')} is not in the result`] : []),
  ];
}

/** `uploads: 336 MB in 12 s, 28 MB a second of a host; uploads were the bottleneck 40 % of the time`. */
function uploadText({bytes, seconds, bound_seconds}: RunResult['upload']): string {
  const share = Math.round(Math.min(1, bound_seconds / seconds) * 100);
  return `uploads: ${bytesText(bytes)} in ${durationText(seconds)}, ${bytesText(bytes / seconds)} a second of a host; uploads were the bottleneck ${share} % of the time`;
}

/** `8 tensors (resid_post and mlp_out of layers 0-3)`. */
export function tensorsText(names: readonly string[]): string {
  const pairs = names.map(name => name.split('.'));
  const sites = [...new Set(pairs.map(([site = '']) => site))];
  const layers = [...new Set(pairs.map(([, layer]) => Number(layer)))].sort((a, b) => a - b);
  const of = layers.length === 1 ? `layer ${layers[0]}` : `layers ${ranges(layers)}`;
  return `${counted(names.length, 'tensor')} (${sites.join(' and ')} of ${of})`;
}

/** Ascending numbers as ranges: `1-3, 5` for 1, 2, 3 and 5. */
export function ranges(numbers: readonly number[]): string {
  const spans: [number, number][] = [];
  for (const number of numbers) {
    const last = spans.at(-1);
    if (last?.[1] === number - 1) last[1] = number;
    else spans.push([number, number]);
  }
  return spans
    .map(([first, last]) => (first === last ? numberText(first) : `${numberText(first)}-${numberText(last)}`))
    .join(', ');
}
