import {Rejected} from '../../contracts/errors.ts';

/** Round trips under way at once: enough that they do not add up to minutes, and few enough for one small instance. */
const ABREAST = 32;

/**
 * Does the work for each item, some at once. A failure stops no other item; the first failure is thrown at the end, and one
 * that can succeed later goes before a `Rejected`, which ends the caller's message for good.
 */
export async function forEachConcurrently<T>(
  items: readonly T[],
  work: (item: T) => Promise<unknown>,
  width = ABREAST,
): Promise<void> {
  const left = items.values();
  const failures: unknown[] = [];
  const lane = async () => {
    for (const item of left) await work(item).catch(error => failures.push(error));
  };
  await Promise.all(Array.from({length: Math.min(width, items.length)}, lane));
  if (failures.length > 0) throw failures.find(error => !(error instanceof Rejected)) ?? failures[0];
}
