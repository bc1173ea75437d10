/** Spreads askers: over the streams that they try, and over the time at which they ask again. */
import {streamId} from '../names.ts';

/** A number from 0 to below 1 that looks drawn, and is the same for the same text: FNV-1a, mixed as MurmurHash ends. */
export function fractionOf(text: string): number {
  let hash = 0x811c9dc5;
  for (const character of text) hash = Math.imul(hash ^ (character.codePointAt(0) ?? 0), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return ((hash ^ (hash >>> 16)) >>> 0) / 2 ** 32;
}

/** The stream behind which this asker begins to look; undefined is the first place, also where few streams are one page. */
export function placeAmong(streams: number, page: number, asker: string): string | undefined {
  return streams > page ? streamId(Math.floor(fractionOf(asker) * streams)) : undefined;
}

/** In an order of the asker's own. */
export function shuffled<T extends {stream: string}>(found: readonly T[], asker: string): T[] {
  const place = ({stream}: T) => fractionOf(`${asker} ${stream}`);
  return found.toSorted((a, b) => place(a) - place(b));
}

/** Seconds from `least_s` to below `most_s`, in tenths, to ask again in. */
export function retryIn(least_s: number, most_s: number, asker: string): number {
  return Math.floor((least_s + (most_s - least_s) * fractionOf(`${asker} again`)) * 10) / 10;
}
