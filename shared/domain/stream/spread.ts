/** Spreads the workers that request work over streams and over time. */
import {streamId} from '../names.ts';

/** Maps a text to an evenly spread number from 0 to below 1: FNV-1a with the final mix of MurmurHash. */
export function fractionOf(text: string): number {
  let hash = 0x811c9dc5;
  for (const character of text) hash = Math.imul(hash ^ (character.codePointAt(0) ?? 0), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return ((hash ^ (hash >>> 16)) >>> 0) / 2 ** 32;
}

export type Indexes = {first: number; last: number};

/** The stream after which this asker starts its search. */
export function placeAmong({first, last}: Indexes, asker: string): string {
  return streamId(first + Math.floor(fractionOf(asker) * (last - first + 1)));
}

/** Pending streams over which askers spread: as many as may ask at once. */
const FRONT = 100;

/**
 * Orders runs of equal rank for the asker. The runs with the first `FRONT` pending streams come first, in an order that differs by asker: a
 * run with more of these streams is the first choice of more askers. So a large run stays before all younger runs.
 */
export function spreadOver<T extends {run: string; streams_pending: number}>(
  runs: readonly T[],
  asker: string,
): T[] {
  let room = FRONT;
  const placed = runs.map(found => {
    const weight = Math.min(Math.max(found.streams_pending, 1), room);
    room -= weight;
    const place = -Math.log(1 - fractionOf(`${asker} ${found.run}`)) / weight;
    return {found, place: weight > 0 ? place : Number.MAX_VALUE};
  });
  return placed.sort((a, b) => a.place - b.place).map(({found}) => found);
}

/** The documents in an order that differs by asker. */
export function shuffled<T>(found: readonly T[], asker: string, idOf: (document: T) => string): T[] {
  const place = (document: T) => fractionOf(`${asker} ${idOf(document)}`);
  return found.toSorted((a, b) => place(a) - place(b));
}

/** Delay before the next request, from `least_s` to below `most_s`, in tenths of a second. */
export function retryIn(least_s: number, most_s: number, asker: string): number {
  return Math.floor((least_s + (most_s - least_s) * fractionOf(`${asker} again`)) * 10) / 10;
}
