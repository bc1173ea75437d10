import {Rejected} from '../../contracts/errors.ts';

/** Concurrent round trips: enough to finish within minutes, few enough for one small instance. */
const AT_ONCE = 32;

/**
 * Concurrent batches of a mass change. A batch writes 50 documents in two round trips, so a collection gets about 500 writes in its first
 * second, the rate at which Firestore wants traffic to start ramping up.
 */
export const MASS_LANES = 2;

/**
 * Runs `work` for each item, `width` items at once. A failure does not stop other items; the first one is thrown at the end. A `Rejected` is
 * thrown only if nothing else failed, because it ends the caller's message for good.
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

/** Divides the items into lists of at most `most`, one for each transaction. */
export function batchesOf<T>(items: readonly T[], most: number): T[][] {
  return Array.from({length: Math.ceil(items.length / most)}, (_, batch) =>
    items.slice(batch * most, (batch + 1) * most),
  );
}
