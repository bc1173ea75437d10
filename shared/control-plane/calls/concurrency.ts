import {Rejected} from '../../contracts/errors.ts';

/** Round trips under way at once: enough to finish within minutes, few enough for one small instance. */
const AT_ONCE = 32;

/**
 * Batches of a mass change at once. A batch writes 50 documents and takes two round trips: so a collection gets about 500 writes in its first
 * second, with which Firestore wants a ramp of traffic to begin.
 */
export const MASS_LANES = 2;

/**
 * Runs `work` for each item, `width` items at once. A failure stops no other item. The first failure is thrown at the end. A `Rejected`
 * is thrown only without other failures, because it ends the caller's message for good.
 */
export async function forEachConcurrently<T>(
  items: readonly T[],
  work: (item: T) => Promise<unknown>,
  width = AT_ONCE,
): Promise<void> {
  const queue = items.values();
  const failures: unknown[] = [];
  const lane = async () => {
    for (const item of queue) await work(item).catch(error => failures.push(error));
  };
  await Promise.all(Array.from({length: Math.min(width, items.length)}, lane));
  if (failures.length > 0) throw failures.find(error => !(error instanceof Rejected)) ?? failures[0];
}

/** Divides the items into lists of at most `most`, for one transaction each. */
export function batchesOf<T>(items: readonly T[], most: number): T[][] {
  return Array.from({length: Math.ceil(items.length / most)}, (_, batch) =>
    items.slice(batch * most, (batch + 1) * most),
  );
}
