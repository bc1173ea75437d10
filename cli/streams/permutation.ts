/** Order of rows by a seed, the same on every machine. */
import {createHash} from 'node:crypto';

/**
 * Random order of the numbers 0 to `count` - 1 (Fisher-Yates). `positions[row]` is the place of the row in that order.
 * Needs 8 bytes a row for a moment, and 4 bytes afterwards.
 */
export function positionsOf(count: number, seed: number): Uint32Array {
  const next = generator(seed);
  const order = new Uint32Array(count);
  for (let index = 0; index < count; index++) order[index] = index;
  for (let index = count - 1; index > 0; index--) {
    const other = Math.floor(next() * (index + 1));
    const value = order[index] as number;
    order[index] = order[other] as number;
    order[other] = value;
  }
  const positions = new Uint32Array(count);
  for (let place = 0; place < count; place++) positions[order[place] as number] = place;
  return positions;
}

/** xoshiro128** (Blackman and Vigna, 2018): numbers in [0, 1) with 53 random bits. */
function generator(seed: number): () => number {
  const bytes = createHash('sha256').update(`gleaner streams ${seed}`).digest();
  let [a, b, c, d] = [
    bytes.readInt32LE(0),
    bytes.readInt32LE(4),
    bytes.readInt32LE(8),
    bytes.readInt32LE(12),
  ];
  const word = () => {
    const product = Math.imul(b, 5);
    const result = Math.imul((product << 7) | (product >>> 25), 9);
    const shifted = b << 9;
    c ^= a;
    d ^= b;
    b ^= c;
    a ^= d;
    c ^= shifted;
    d = (d << 11) | (d >>> 21);
    return result >>> 0;
  };
  return () => ((word() >>> 5) * 2 ** 26 + (word() >>> 6)) / 2 ** 53;
}
