/** Spreads the workers that request work over streams and over time. */
import {streamId} from '../names.ts';

/** Maps a text to a number from 0 to below 1, evenly spread: FNV-1a with the final mix of MurmurHash. */
export function fractionOf(text: string): number {
  let hash = 0x811c9dc5;
  for (const character of text) hash = Math.imul(hash ^ (character.codePointAt(0) ?? 0), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return ((hash ^ (hash >>> 16)) >>> 0) / 2 ** 32;
}

/** The stream after which this asker starts its search. Undefined is the start, also where one page holds all streams. */
export function placeAmong(streams: number, page: number, asker: string): string | undefined {
  return streams > page ? streamId(Math.floor(fractionOf(asker) * streams)) : undefined;
}

/** The streams in an order that belongs to the asker. */
export function shuffled<T extends {stream: string}>(found: readonly T[], asker: string): T[] {
  const place = ({stream}: T) => fractionOf(`${asker} ${stream}`);
  return found.toSorted((a, b) => place(a) - place(b));
}

/** Delay before the next request, from `least_s` to below `most_s`, in tenths of a second. */
export function retryIn(least_s: number, most_s: number, asker: string): number {
  return Math.floor((least_s + (most_s - least_s) * fractionOf(`${asker} again`)) * 10) / 10;
}
