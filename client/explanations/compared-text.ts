import type {Comparison} from '../json/compared-manifest.ts';
import {counted} from '../text/format.ts';

/** A row for each layer of each site: its drift, and the place of its worst row. */
export function driftRows({drift}: Comparison): string[][] {
  return Object.entries(drift).map(([name, {relative_error, cosine, worst}]) => [
    name,
    relative_error.toExponential(1),
    cosine.toFixed(6),
    worst.relative_error.toExponential(1),
    `stream ${worst.stream}, sample ${worst.sample}${worst.position === null ? '' : `, token ${worst.position}`}`,
  ]);
}

/** The counts of a comparison, and the versions that computed it. */
export function comparedText({samples, rows, versions}: Comparison): string {
  const names = Object.entries(versions).map(([name, version]) => `${name} ${version}`);
  return `${counted(samples, 'sample')} with ${counted(rows, 'row')}, computed again in fp32 by ${names.join(', ')}`;
}
