import {timingSafeEqual} from 'node:crypto';

/** Compares two texts in constant time, so that timing reveals nothing about where they differ. */
export function isSameText(one: string, other: string): boolean {
  const [a, b] = [Buffer.from(one), Buffer.from(other)];
  return a.length === b.length && timingSafeEqual(a, b);
}
