import type {Comparison} from '../json/compared-manifest.ts';
import {type Column, counted} from '../text/format.ts';

type Drift = [name: string, Comparison['drift'][string]];

/** A row for each layer of each site: its drift, and the place of its worst row. */
export const driftColumns: Record<string, Column<Drift>> = {
  layer: {title: 'Layer', cell: ([name]) => name},
  error: {
    title: 'Relative error',
    cell: ([, {relative_error}]) => relative_error.toExponential(1),
    right: true,
  },
  cosine: {title: 'Cosine', cell: ([, {cosine}]) => cosine.toFixed(6), right: true},
  overlap: {title: 'Overlap', cell: ([, {overlap}]) => overlap?.toFixed(4) ?? '', right: true},
  lost: {title: 'Unexplained', cell: ([, of]) => of.reconstruction_error?.toFixed(4) ?? '', right: true},
  worst: {title: 'Worst row', cell: ([, {worst}]) => worst.relative_error.toExponential(1), right: true},
  place: {title: 'Place', cell: ([, {worst}]) => placeText(worst)},
};

function placeText({stream, sample, position}: Drift[1]['worst']): string {
  return `stream ${stream}, sample ${sample}${position === null ? '' : `, token ${position}`}`;
}

/** The counts of a comparison, and the versions that computed it. */
export function comparedText({samples, rows, versions}: Comparison): string {
  const names = Object.entries(versions).map(([name, version]) => `${name} ${version}`);
  return `${counted(samples, 'sample')} with ${counted(rows, 'row')}, computed again in fp32 by ${names.join(', ')}`;
}
